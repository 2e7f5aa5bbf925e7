package esl

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Status is a switch's own summary of its load and its limits.
type Status struct {
	// Version is the version in the words of the switch: "1.10.12-release …".
	Version string
	// Ready is false while the switch shuts down, or takes neither calls in nor calls out because somebody has paused both.
	Ready  bool
	Uptime time.Duration
	// Sessions are the legs that live, MaxSessions how many may. SessionsSinceStart counts all that there ever were.
	Sessions, PeakSessions, PeakSessionsFiveMinutes, MaxSessions int
	SessionsSinceStart                                           int64
	// Rate is how many legs began in the last whole second, MaxRate one more than may begin in a second (switch_core_session.c,
	// switch_core_session_request_uuid refuses the last one).
	Rate, MaxRate, PeakRate, PeakRateFiveMinutes int
	// IdleCPU is the idle time of the machine, in percent. The switch takes no session while it is below MinIdleCPU, where that is not 0.
	IdleCPU, MinIdleCPU float64
}

// statusPattern is what status_function of mod_commands.c writes after the line of the uptime.
var statusPattern = regexp.MustCompile(`^FreeSWITCH \(Version ([^\n]*)\) is (ready|not ready)\n` +
	`(\d+) session\(s\) since startup\n` +
	`(\d+) session\(s\) - peak (\d+), last 5min (\d+) ?\n` +
	`(-?\d+) session\(s\) per Sec out of max (\d+), peak (\d+), last 5min (\d+) ?\n` +
	`(\d+) session\(s\) max\n` +
	`min idle cpu (\d+\.\d+)/(-?\d+\.\d+)(?:\n|$)`)

// Status asks the switch for its load and its limits.
func (n *Node) Status(ctx context.Context) (Status, error) {
	reply, err := n.api(ctx, "status", "")
	if err != nil {
		return Status{}, err
	}
	return parseStatus(reply)
}

func parseStatus(text string) (Status, error) {
	first, rest, _ := strings.Cut(text, "\n")
	uptime, err := parseUptime(first)
	if err != nil {
		return Status{}, err
	}
	found := statusPattern.FindStringSubmatch(rest)
	if found == nil {
		return Status{}, fmt.Errorf("esl: status of %d bytes is not in the form of FreeSWITCH 1.10", len(text))
	}
	s := Status{Version: found[1], Ready: found[2] == "ready", Uptime: uptime}
	if s.SessionsSinceStart, err = strconv.ParseInt(found[3], 10, 64); err != nil {
		return Status{}, fmt.Errorf("esl: read status: %w", err)
	}
	for i, field := range []*int{
		&s.Sessions, &s.PeakSessions, &s.PeakSessionsFiveMinutes, &s.Rate, &s.MaxRate, &s.PeakRate, &s.PeakRateFiveMinutes, &s.MaxSessions,
	} {
		number, err := strconv.ParseInt(found[4+i], 10, 32)
		if err != nil {
			return Status{}, fmt.Errorf("esl: read status: %w", err)
		}
		*field = int(number)
	}
	s.Rate = max(s.Rate, 0)
	for i, field := range []*float64{&s.MinIdleCPU, &s.IdleCPU} {
		if *field, err = strconv.ParseFloat(found[12+i], 64); err != nil {
			return Status{}, fmt.Errorf("esl: read status: %w", err)
		}
	}
	return s, nil
}

// uptimeUnits are those of switch_core_measure_time (switch_core.c): a year has 365 days.
var uptimeUnits = map[string]time.Duration{
	"year": 365 * 24 * time.Hour, "day": 24 * time.Hour, "hour": time.Hour, "minute": time.Minute, "second": time.Second,
	"millisecond": time.Millisecond, "microsecond": time.Microsecond,
}

// longestUptime bounds each part of an uptime, so that their sum does not overflow.
const longestUptime = 100 * 365 * 24 * time.Hour

func parseUptime(line string) (time.Duration, error) {
	list, ok := strings.CutPrefix(line, "UP ")
	if !ok {
		return 0, fmt.Errorf("esl: status begins with %q", clip(line))
	}
	var uptime time.Duration
	for part := range strings.SplitSeq(list, ", ") {
		count, name, _ := strings.Cut(part, " ")
		unit := uptimeUnits[strings.TrimSuffix(name, "s")]
		number, err := strconv.ParseUint(count, 10, 32)
		if err != nil || unit == 0 || number > uint64(longestUptime/unit) {
			return 0, fmt.Errorf("esl: status has the uptime %q", clip(line))
		}
		uptime += time.Duration(number) * unit
		if uptime > longestUptime {
			return 0, fmt.Errorf("esl: status has the uptime %q", clip(line))
		}
	}
	return uptime, nil
}

// Tally is how many of each the switch has in its tables.
type Tally struct{ Calls, BridgedCalls, Registrations int }

// Tally asks the switch to count its calls and the phones that have registered. It counts no bridged calls (show_function of mod_commands.c lists them
// all); a call without its other party is one channel of the table of calls, a bridged one is two of the channels.
func (n *Node) Tally(ctx context.Context) (Tally, error) {
	var t Tally
	var channels int
	for table, count := range map[string]*int{"calls": &t.Calls, "channels": &channels, "registrations": &t.Registrations} {
		reply, err := n.api(ctx, "show", table+" count as json")
		if err != nil {
			return Tally{}, err
		}
		var found struct {
			Rows *int `json:"row_count"`
		}
		if err := json.Unmarshal([]byte(reply), &found); err != nil || found.Rows == nil {
			return Tally{}, fmt.Errorf("esl: the switch counts its %s as %q", table, clip(reply))
		}
		*count = *found.Rows
	}
	t.BridgedCalls = max(channels-t.Calls, 0) // the two were counted one after the other
	return t, nil
}

// Clock asks the switch for its time, by which it stamps its events and CDRs: its own clock, which it steps to the machine's only when it is told
// to (switch_time.c, switch_time_sync).
func (n *Node) Clock(ctx context.Context) (time.Time, error) {
	reply, err := n.api(ctx, "strmicroepoch", "") // mod_dptools.c, strmicroepoch_api_function
	if err != nil {
		return time.Time{}, err
	}
	micros, err := strconv.ParseInt(strings.TrimSpace(reply), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("esl: the switch says that it is %q", clip(reply))
	}
	return time.UnixMicro(micros).UTC(), nil
}
