package simswitch

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// CDRs says what becomes of the record of each channel that has ended, as json_cdr.conf does for mod_json_cdr. It is posted to the
// first of URLs; after a failure the next one is tried for the next channel. What nobody takes, and everything where there are no
// URLs, becomes a file of Folder.
type CDRs struct {
	// URLs are where records are posted to, with the channel's UUID as the query parameter uuid.
	URLs []string
	// Credentials are NAME:TOKEN for basic authentication; empty sends none.
	Credentials string
	// Folder takes files named UUID.cdr.json. Default: tandem/cdr below the switch's ConfDir.
	Folder string
	// Timeout bounds one post, in real time. Default 3 s.
	Timeout time.Duration
}

// recorder delivers the records. The end of a channel waits for it, as in FreeSWITCH without queue-capacity.
type recorder struct {
	cfg    CDRs
	client *http.Client

	mu   sync.Mutex
	next int // the URL whose turn it is
}

func newRecorder(cfg *CDRs, confDir string) (*recorder, error) {
	if cfg == nil {
		return nil, nil //nolint:nilnil // no recorder is a switch without mod_json_cdr
	}
	r := &recorder{cfg: *cfg}
	r.cfg.Timeout = cmp.Or(r.cfg.Timeout, 3*time.Second)
	if r.cfg.Folder == "" && confDir != "" {
		r.cfg.Folder = filepath.Join(confDir, "tandem", "cdr")
	}
	if r.cfg.Folder == "" {
		return nil, errors.New("simulated switch: CDRs need a folder")
	}
	for _, address := range r.cfg.URLs {
		if u, err := url.Parse(address); err != nil || u.Host == "" || u.RawQuery != "" {
			return nil, fmt.Errorf("simulated switch: CDRs cannot be posted to %q", address)
		}
	}
	r.client = &http.Client{Timeout: r.cfg.Timeout, Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 30 * time.Second}}
	return r, nil
}

// deliver is process_cdr and backup_cdr (mod_json_cdr.c).
func (r *recorder) deliver(uuid string, record []byte) error {
	if len(r.cfg.URLs) > 0 {
		r.mu.Lock()
		turn := r.next
		r.mu.Unlock()
		err := r.post(r.cfg.URLs[turn], uuid, record)
		if err == nil {
			return nil
		}
		r.mu.Lock()
		if r.next == turn {
			r.next = (turn + 1) % len(r.cfg.URLs)
		}
		r.mu.Unlock()
		if err := r.write(uuid, record); err != nil {
			return err
		}
		return fmt.Errorf("written to %s: %w", r.cfg.Folder, err)
	}
	return r.write(uuid, record)
}

func (r *recorder) post(address, uuid string, record []byte) error {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, address+"?uuid="+url.QueryEscape(uuid), bytes.NewReader(record))
	if err != nil {
		return fmt.Errorf("post a CDR: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "freeswitch-json/1.0")
	if name, token, ok := strings.Cut(r.cfg.Credentials, ":"); ok {
		request.SetBasicAuth(name, token)
	}
	response, err := r.client.Do(request)
	if err != nil {
		return fmt.Errorf("post a CDR: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<16))
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return fmt.Errorf("post a CDR: the answer is %d", response.StatusCode)
	}
	return nil
}

func (r *recorder) write(uuid string, record []byte) error {
	if err := os.MkdirAll(r.cfg.Folder, 0o777); err != nil { //nolint:gosec // as FreeSWITCH does; the umask decides
		return fmt.Errorf("make the CDR folder: %w", err)
	}
	if uuid != filepath.Base(uuid) {
		return fmt.Errorf("write a CDR: %q is no file name", uuid)
	}
	path := filepath.Join(r.cfg.Folder, uuid+".cdr.json")
	if err := os.WriteFile(path, append(record, '\n'), 0o666); err != nil { //nolint:gosec // as FreeSWITCH does; the umask decides
		return fmt.Errorf("write a CDR: %w", err)
	}
	return nil
}

// report delivers the record of a channel. The caller does not hold the channel's lock.
func (s *Switch) report(uuid string, record []byte) {
	if err := s.recorder.deliver(uuid, record); err != nil {
		s.log.Warn("cdr not posted", "channel", uuid, "error", err)
	}
}

// recordLocked is switch_ivr_generate_json_cdr (switch_ivr.c) with encode-values off. What is not simulated is left out: flags, capabilities, media
// statistics, the log of applications and the dialplan's extension.
func (c *channel) recordLocked() []byte {
	var w jsonWriter
	w.open("")
	w.text("core-uuid", c.sw.core)
	w.text("switchname", c.sw.hostname)
	w.open("channel_data")
	w.text("state", stateNames[c.running])
	w.text("direction", c.direction())
	w.text("state_number", itoa(int(c.state)))
	w.close()
	w.open("callStats")
	w.close()
	w.open("variables")
	for _, v := range c.vars {
		if v.value != "" {
			w.text(strings.TrimPrefix(v.name, sessionHeaderPrefix), v.value)
		}
	}
	w.close()
	w.list("callflow")
	w.open("")
	if c.profile.dialplan != "" {
		w.text("dialplan", c.profile.dialplan)
	}
	w.text("profile_index", "1")
	w.open("caller_profile")
	for _, field := range []header{
		{"username", c.profile.username}, {"dialplan", c.profile.dialplan}, {"caller_id_name", c.profile.cidName}, {"ani", c.profile.ani}, {"aniii", ""},
		{"caller_id_number", c.profile.cidNumber}, {"network_addr", c.profile.networkAddr}, {"rdnis", c.profile.rdnis},
		{"destination_number", c.profile.destination}, {"uuid", c.uuid}, {"source", c.profile.source}, {"context", c.profile.context}, {"chan_name", c.name},
	} {
		w.text(field.name, field.value)
	}
	w.close()
	w.open("times")
	t := &c.times
	for _, moment := range []struct {
		name string
		at   int64
	}{
		{"created", t.created}, {"profile_created", t.profileCreated}, {"progress", t.progress}, {"progress_media", t.progressMedia},
		{"answered", t.answered}, {"bridged", t.bridged}, {"last_hold", 0}, {"hold_accum", 0}, {"hangup", t.hangup}, {"resurrect", 0}, {"transfer", t.transfer},
	} {
		w.text(moment.name+"_time", stamp(moment.at))
	}
	w.close()
	w.close()
	w.end()
	w.close()
	return w.out
}

// jsonWriter writes objects and lists of strings as cJSON does (cJSON.c, print_string_ptr): bytes that are no UTF-8 stay as they are.
type jsonWriter struct {
	out  []byte
	more bool // something stands before, on the same level
}

func (w *jsonWriter) name(name string) {
	if w.more {
		w.out = append(w.out, ',')
	}
	w.more = true
	if name != "" {
		w.quote(name)
		w.out = append(w.out, ':')
	}
}

func (w *jsonWriter) open(name string) { w.name(name); w.out = append(w.out, '{'); w.more = false }
func (w *jsonWriter) close()           { w.out = append(w.out, '}'); w.more = true }
func (w *jsonWriter) list(name string) { w.name(name); w.out = append(w.out, '['); w.more = false }
func (w *jsonWriter) end()             { w.out = append(w.out, ']'); w.more = true }

func (w *jsonWriter) text(name, value string) { w.name(name); w.quote(value) }

func (w *jsonWriter) quote(s string) {
	w.out = append(w.out, '"')
	for i := range len(s) {
		switch b := s[i]; {
		case b == '"' || b == '\\':
			w.out = append(w.out, '\\', b)
		case b == '\n':
			w.out = append(w.out, `\n`...)
		case b == '\r':
			w.out = append(w.out, `\r`...)
		case b == '\t':
			w.out = append(w.out, `\t`...)
		case b < 0x20:
			w.out = fmt.Appendf(w.out, `\u%04x`, b)
		default:
			w.out = append(w.out, b)
		}
	}
	w.out = append(w.out, '"')
}
