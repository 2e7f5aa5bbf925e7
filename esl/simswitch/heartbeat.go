package simswitch

import (
	"fmt"
	"strconv"
	"sync"
	"time"
)

// rateMeter counts new sessions per second, as status and HEARTBEAT report them.
type rateMeter struct {
	mu      sync.Mutex
	second  int64
	current int
	last    int
	peak    int
}

// count counts a session, unless it would be the limit-th of its second.
func (r *rateMeter) count(now time.Time, limit int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.roll(now)
	if r.current+1 >= limit {
		return false
	}
	r.current++
	r.peak = max(r.peak, r.current)
	return true
}

func (r *rateMeter) roll(now time.Time) {
	if second := now.Unix(); second != r.second {
		r.last = r.current
		if second > r.second+1 {
			r.last = 0
		}
		r.second, r.current = second, 0
	}
}

func (r *rateMeter) read(now time.Time) (last, peak int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.roll(now)
	return r.last, r.peak
}

const (
	defaultMaxSessions       = 5000
	defaultSessionsPerSecond = 2000
)

func (s *Switch) uptime() time.Duration { return s.clock.now().Sub(s.started) }

// printUptime is the "0 years, 0 days, …" of status and HEARTBEAT; status says "minutes" where HEARTBEAT counts properly.
func printUptime(d time.Duration, plural func(n int64, unit string) string) string {
	us := d.Microseconds()
	return plural(us/31536000e6, "year") + ", " + plural(us/86400e6%365, "day") + ", " + plural(us/3600e6%24, "hour") + ", " +
		plural(us/60e6%60, "minute") + ", " + plural(us/1e6%60, "second") + ", " + plural(us/1000%1000, "millisecond") + ", " +
		plural(us%1000, "microsecond")
}

func pluralUnit(n int64, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return strconv.FormatInt(n, 10) + " " + unit + "s"
}

// heartbeat raises HEARTBEAT and schedules the next one (switch_core.c, send_heartbeat).
func (s *Switch) heartbeat() {
	up := s.uptime()
	last, peak := s.rate.read(s.clock.now())
	s.fire(evHeartbeat, "", origin{"switch_core.c", "send_heartbeat"}, func(e *event) {
		e.add("Event-Info", "System Ready")
		e.add("Up-Time", printUptime(up, pluralUnit))
		e.add("FreeSWITCH-Version", Version)
		e.add("Uptime-msec", strconv.FormatInt(up.Milliseconds(), 10))
		e.add("Session-Count", strconv.FormatInt(s.live.Load(), 10))
		e.add("Max-Sessions", itoa(s.cfg.MaxSessions))
		e.add("Session-Per-Sec", itoa(s.cfg.SessionsPerSecond))
		e.add("Session-Per-Sec-Last", itoa(last))
		e.add("Session-Per-Sec-Max", itoa(peak))
		e.add("Session-Per-Sec-FiveMin", itoa(peak))
		e.add("Session-Since-Startup", strconv.FormatUint(s.sessions.Load(), 10))
		e.add("Session-Peak-Max", strconv.FormatInt(s.peak.Load(), 10))
		e.add("Session-Peak-FiveMin", strconv.FormatInt(s.peak.Load(), 10))
		e.add("Idle-CPU", "99.000000")
	})
	s.tasks.after(s.cfg.HeartbeatInterval, "", s.heartbeat)
}

// status is the reply of `api status` (mod_commands.c, status_function).
func (s *Switch) status() string {
	last, peak := s.rate.read(s.clock.now())
	state := "ready"
	s.mu.RLock()
	if s.pausedIn && s.pausedOut { // switch_core.c, switch_core_ready
		state = "not ready"
	}
	s.mu.RUnlock()
	return fmt.Sprintf("UP %s\nFreeSWITCH (Version %s) is %s\n%d session(s) since startup\n%d session(s) - peak %d, last 5min %d \n"+
		"%d session(s) per Sec out of max %d, peak %d, last 5min %d \n%d session(s) max\nmin idle cpu 0.00/99.00\nCurrent Stack Size/Max 240K/8192K\n",
		printUptime(s.uptime(), pluralUnit), humanVersion, state, s.sessions.Load(), s.live.Load(), s.peak.Load(), s.peak.Load(),
		last, s.cfg.SessionsPerSecond, peak, peak, s.cfg.MaxSessions)
}

const humanVersion = "1.10.12-release git a88d069 2024-08-02 21:02:27Z 64bit"
