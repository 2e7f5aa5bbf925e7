package simswitch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// The files that a node fetches and sends itself: http_get and http_put of mod_http_cache, the application rename on a channel of mod_loopback's
// endpoint "null", file_exists. The simulated switch touches only what is below its ConfDir; the channel that renames raises no events.

// credentialsHeader names the node and its token, as freeswitch-conf/delivery/xml_curl configures mod_http_cache.
const credentialsHeader = "Tandem-Node"

// transferLimit bounds one transfer, in real time.
const transferLimit = 30 * time.Second

// own returns a path below ConfDir as the system wants it.
func (s *Switch) own(name string) (string, error) {
	below, ok := strings.CutPrefix(path.Clean(name), path.Clean(filepath.ToSlash(s.cfg.ConfDir))+"/")
	if s.cfg.ConfDir == "" || !ok {
		return "", fmt.Errorf("%s is not below the configuration directory", name)
	}
	return filepath.Join(s.cfg.ConfDir, filepath.FromSlash(below)), nil
}

func (s *Switch) fileExists(arg string) string {
	file, err := s.own(arg)
	if err != nil {
		return "false"
	}
	if _, err := os.Stat(file); err != nil {
		return "false"
	}
	return "true"
}

// parameters cuts the {name=value} off a URL.
func parameters(arg string) string {
	if _, url, ok := strings.Cut(arg, "}"); ok && strings.HasPrefix(arg, "{") {
		return url
	}
	return arg
}

func (s *Switch) transfer(method, url string, body io.Reader, length int64) (*http.Response, error) {
	request, err := http.NewRequestWithContext(context.Background(), method, url, body)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	request.ContentLength = length
	request.Header.Set("User-Agent", "freeswitch-http-cache/1.0")
	if s.cfg.NodeCredentials != "" {
		request.Header.Set(credentialsHeader, s.cfg.NodeCredentials)
	}
	// A client of its own, which leaves no connection behind.
	client := &http.Client{Timeout: transferLimit, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("transfer a file: %w", err)
	}
	return response, nil
}

// httpGet is http_cache_get (mod_http_cache.c) of a URL that is not in the cache.
func (s *Switch) httpGet(arg string) string {
	file, err := s.download(parameters(arg))
	if err != nil {
		s.log.Error("file not fetched", "error", err)
		return "-ERR http_get Command not found!\n" // mod_event_socket.c, api_exec
	}
	return file
}

func (s *Switch) download(url string) (_ string, err error) {
	response, err := s.transfer(http.MethodGet, url, nil, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= 400 { // CURLOPT_FAILONERROR
		return "", fmt.Errorf("fetch a file: the answer is %d", response.StatusCode)
	}
	var random [16]byte
	_, _ = rand.Read(random[:])
	name := hex.EncodeToString(random[:])
	file := path.Join(filepath.ToSlash(s.cfg.ConfDir), "tandem/http_cache", name[:2], name[2:]+path.Ext(url))
	local, err := s.own(file)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(local), 0o750); err != nil {
		return "", fmt.Errorf("fetch a file: %w", err)
	}
	out, err := os.OpenFile(local, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", fmt.Errorf("fetch a file: %w", err)
	}
	_, err = io.Copy(out, response.Body)
	if err = errors.Join(err, out.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("fetch a file: %w", err), os.Remove(local))
	}
	if oldest := s.fetched.add(local, s.cfg.CachedURLs); oldest != "" {
		_ = os.Remove(oldest) // it may have been moved
	}
	return file, nil
}

// defaultCachedURLs is max-urls of mod_http_cache.c, do_config.
const defaultCachedURLs = 4000

// urlCache is what the switch has fetched, the oldest first (mod_http_cache.c, url_cache_add and url_cache_replace).
type urlCache struct {
	mu    sync.Mutex
	files []string
}

// add adds a file, and returns the one that has to go for it, if any.
func (c *urlCache) add(file string, most int) (oldest string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files = append(c.files, file); len(c.files) > most {
		oldest, c.files = c.files[0], c.files[1:]
	}
	return oldest
}

// httpPut is http_cache_put (mod_http_cache.c). An empty file is not sent, and that is a success without a status.
func (s *Switch) httpPut(arg string) string {
	words := separate(arg, ' ', 10)
	if len(words) != 2 {
		return "USAGE: {param=val}<url> <file>\n"
	}
	status, err := s.upload(parameters(words[0]), words[1])
	if err != nil {
		s.log.Error("file not sent", "status", status, "error", err)
		return "-ERR http_put Command not found!\n" // mod_event_socket.c, api_exec
	}
	return fmt.Sprintf("+OK %d\n", status)
}

func (s *Switch) upload(url, name string) (status int, err error) {
	file, err := s.own(name)
	if err != nil {
		return 0, err
	}
	in, err := os.Open(file) // #nosec G304 -- below the configured directory.
	if err != nil {
		return 0, fmt.Errorf("send a file: %w", err)
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil || info.Size() == 0 {
		return 0, err
	}
	response, err := s.transfer(http.MethodPut, url, in, info.Size())
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	switch response.StatusCode {
	case http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent:
		return response.StatusCode, nil
	}
	return response.StatusCode, fmt.Errorf("send a file: the answer is %d", response.StatusCode)
}

// renames is what a channel of the endpoint "null" does with an inline dialplan of the application rename (mod_dptools.c, inline_dialplan_hunt,
// rename_function): what cannot be renamed stays, without a word.
func (s *Switch) renames(inline string) string {
	if !s.hasModule("mod_loopback") {
		return "-ERR CHAN_NOT_IMPLEMENTED\n"
	}
	if len(inline) < 4 || !strings.HasPrefix(inline, "m:") || inline[3] != ':' {
		s.log.Error("inline dialplan is not simulated", "dialplan", inline)
		return "-ERR the simulated switch knows inline dialplans with a delimiter only\n"
	}
	for _, part := range separate(inline[4:], inline[2], 128) {
		application, data, _ := strings.Cut(part, ":")
		from, to, ok := strings.Cut(data, " ")
		if application != "rename" || !ok {
			s.log.Error("application is not simulated on a null channel", "application", application)
			return "-ERR the simulated switch knows only rename on a null channel\n"
		}
		source, err := s.own(from)
		if err == nil {
			to, err = s.own(to)
		}
		if err == nil {
			err = os.Rename(source, to)
		}
		if err != nil {
			s.log.Error("file not renamed", "error", err)
		}
	}
	return "+OK " + newUUID() + "\n"
}
