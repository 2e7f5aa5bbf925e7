package calls

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"time"

	"tandem/esl"
	"tandem/models"
)

// CDRLimit is the largest CDR that is read, in bytes. An ordinary one has 10 to 20 KB; what makes one grow is headers that the
// other side sent and the log of the applications that ran.
const CDRLimit = 2 << 20

// ErrBadCDR refuses a CDR that is not what a switch writes; the error that wraps it says why.
var ErrBadCDR = errors.New("bad CDR")

// The bounds of what is taken from a CDR.
const (
	cdrSecondsLimit = 1 << 30
	cdrTimeLimit    = 1 << 53 // microseconds: far beyond any clock, and well inside what the database holds
	cdrPacketsLimit = 1 << 40
)

var (
	cdrChannel     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	cdrCause       = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,63}$`)
	cdrDisposition = regexp.MustCompile(`^[a-z_]{0,32}$`)
	// cdrCallID is RFC 3261's callid (section 25.1), of a length that can be shown.
	cdrCallID = regexp.MustCompile("^[A-Za-z0-9.!%*_+`'~()<>:\\\\\"/\\[\\]?{}@-]{1,255}$")
	cdrCodec  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,32}$`)
)

// cdrDocument is the part of a CDR that is read (switch_ivr.c, switch_ivr_generate_json_cdr). Channel_data is what the switch
// says of itself; variables can be set by customers and, as far as they are headers, by the other side.
type cdrDocument struct {
	ChannelData struct {
		Direction string `json:"direction"`
	} `json:"channel_data"`
	Variables json.RawMessage `json:"variables"`
}

// cdrVariables are those of the channel's variables that are read. Names count as they are written: "BillSec" is not "billsec".
type cdrVariables map[string]string

// readVariables reads a flat object, as an event is one.
func readVariables(object []byte) (cdrVariables, error) {
	flat, err := esl.ParseEvent(string(object))
	if err != nil {
		return nil, fmt.Errorf("%w: variables: %w", ErrBadCDR, err)
	}
	v := cdrVariables{
		"hangup_cause": "", "hangup_cause_q850": "", "sip_hangup_disposition": "", "sip_term_status": "", "sip_invite_failure_status": "",
		"proto_specific_hangup_cause": "", "billsec": "", "record_ms": "", "start_uepoch": "", "answer_uepoch": "", "end_uepoch": "",
		"sip_call_id": "", "sip_network_ip": "", "sip_network_port": "", "read_codec": "",
		"rtp_audio_in_media_packet_count": "", "rtp_audio_out_media_packet_count": "",
	}
	flat.Headers(func(name, value string) bool {
		if _, wanted := v[name]; wanted {
			v[name] = value
		}
		return true
	})
	return v, nil
}

// Get and Variable make the variables read like an event, as far as readFacts goes.
func (v cdrVariables) Get(header string) string {
	switch header {
	case "Hangup-Cause":
		return v["hangup_cause"]
	case "Caller-Channel-Answered-Time":
		return v["answer_uepoch"]
	default:
		return ""
	}
}

func (v cdrVariables) Variable(name string) string { return v[name] }

// ParseCDR reads what mod_json_cdr wrote of a channel, which the address of its request (uuid=) or the name of its file says:
// the variable uuid can be set by anybody who sets variables. What the switch sets itself when a channel ends (the cause, the
// seconds, the times: switch_channel.c, switch_channel_set_timestamps) replaces what stood in these variables before. NodeID is
// left to the caller. Every error is an ErrBadCDR.
func ParseCDR(channel string, body []byte) (models.CDR, error) {
	if !cdrChannel.MatchString(channel) {
		return models.CDR{}, fmt.Errorf("%w: %.80q names no channel", ErrBadCDR, channel)
	}
	if len(body) > CDRLimit {
		return models.CDR{}, fmt.Errorf("%w: %d bytes, at most %d are read", ErrBadCDR, len(body), CDRLimit)
	}
	var document cdrDocument
	decoder := json.NewDecoder(bytes.NewReader(body))
	if err := decoder.Decode(&document); err != nil {
		return models.CDR{}, fmt.Errorf("%w: %w", ErrBadCDR, err)
	}
	if _, err := decoder.Token(); err == nil || len(bytes.TrimSpace(body[decoder.InputOffset():])) > 0 {
		return models.CDR{}, fmt.Errorf("%w: more than one JSON value", ErrBadCDR)
	}
	v, err := readVariables(document.Variables)
	if err != nil {
		return models.CDR{}, err
	}
	facts := readFacts(v)
	cdr := models.CDR{
		ChannelID: channel, Direction: document.ChannelData.Direction, Cause: facts.cause, Q850: facts.q850, SIPCode: facts.sip,
		Disposition: facts.disposition, BilledSeconds: facts.billed, RecordedMS: int64(max(0, facts.recordedMS)),
	}
	if cdr.StartedAt, err = v.moment("start_uepoch"); err != nil {
		return models.CDR{}, err
	}
	if cdr.EndedAt, err = v.moment("end_uepoch"); err != nil {
		return models.CDR{}, err
	}
	if answered := v.Variable("answer_uepoch"); answered != "" && answered != "0" {
		at, err := v.moment("answer_uepoch")
		if err != nil {
			return models.CDR{}, err
		}
		cdr.AnsweredAt = &at
	}
	if err := checkCDR(&cdr); err != nil {
		return models.CDR{}, err
	}
	v.signalling(&cdr)
	return cdr, nil
}

// signalling reads what helps people who look for a fault: which SIP dialogue it was, and whether sound came. It is left out where it is not as
// the switch writes it, and refuses no CDR: nobody is billed by it.
func (v cdrVariables) signalling(cdr *models.CDR) {
	if id := v.Variable("sip_call_id"); cdrCallID.MatchString(id) {
		cdr.SIPCallID = id
	}
	addr, err := netip.ParseAddr(v.Variable("sip_network_ip"))
	port, portErr := strconv.ParseUint(v.Variable("sip_network_port"), 10, 16)
	if err == nil && portErr == nil && addr.Zone() == "" {
		cdr.Peer = netip.AddrPortFrom(addr, uint16(port)).String()
	}
	if codec := v.Variable("read_codec"); cdrCodec.MatchString(codec) {
		cdr.Codec = codec
	}
	cdr.PacketsIn, cdr.PacketsOut = v.count("rtp_audio_in_media_packet_count"), v.count("rtp_audio_out_media_packet_count")
}

// count reads a number of packets, nil where there is none.
func (v cdrVariables) count(name string) *int64 {
	n, err := strconv.ParseInt(v.Variable(name), 10, 64)
	if err != nil || n < 0 || n > cdrPacketsLimit {
		return nil
	}
	return &n
}

// moment reads a time in microseconds since the Unix epoch, which must be there.
func (v cdrVariables) moment(name string) (time.Time, error) {
	n, err := strconv.ParseInt(v.Variable(name), 10, 64)
	if err != nil || n <= 0 || n > cdrTimeLimit {
		return time.Time{}, fmt.Errorf("%w: %s is %.40q, not a time in microseconds", ErrBadCDR, name, v.Variable(name))
	}
	return time.UnixMicro(n).UTC(), nil
}

// checkCDR refuses what no switch writes.
func checkCDR(cdr *models.CDR) error {
	switch {
	case cdr.Direction != models.Inbound && cdr.Direction != models.Outbound:
		return fmt.Errorf("%w: the direction is %.40q", ErrBadCDR, cdr.Direction)
	case !cdrCause.MatchString(cdr.Cause):
		return fmt.Errorf("%w: hangup_cause is %.40q", ErrBadCDR, cdr.Cause)
	case !cdrDisposition.MatchString(cdr.Disposition):
		return fmt.Errorf("%w: sip_hangup_disposition is %.40q", ErrBadCDR, cdr.Disposition)
	case cdr.Q850 < 0 || cdr.Q850 > 1000:
		return fmt.Errorf("%w: hangup_cause_q850 is %d", ErrBadCDR, cdr.Q850)
	case cdr.SIPCode < 0 || cdr.SIPCode > 999:
		return fmt.Errorf("%w: the SIP status is %d", ErrBadCDR, cdr.SIPCode)
	case cdr.BilledSeconds > cdrSecondsLimit || cdr.RecordedMS > cdrSecondsLimit*1000:
		return fmt.Errorf("%w: %d seconds billed, %d ms recorded", ErrBadCDR, cdr.BilledSeconds, cdr.RecordedMS)
	case cdr.AnsweredAt == nil && cdr.BilledSeconds > 0:
		return fmt.Errorf("%w: %d seconds are billed, and nobody answered", ErrBadCDR, cdr.BilledSeconds)
	}
	return nil
}

// factsOf is what a CDR says about the end of its leg, as the switch's hangup event would have.
func factsOf(cdr *models.CDR) hangupFacts {
	facts := hangupFacts{
		cause: cdr.Cause, q850: cdr.Q850, sip: cdr.SIPCode, disposition: cdr.Disposition, billed: cdr.BilledSeconds, recordedMS: int(cdr.RecordedMS),
		endedAt: cdr.EndedAt,
	}
	if cdr.AnsweredAt != nil {
		facts.answeredAt = *cdr.AnsweredAt
	}
	return facts
}
