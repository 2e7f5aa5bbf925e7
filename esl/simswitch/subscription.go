package simswitch

import (
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
)

// format is how a listener wants its events written.
type format uint8

const (
	formatPlain format = iota
	formatJSON
)

func (f format) String() string {
	if f == formatJSON {
		return "json"
	}
	return "plain"
}

// subscription is what a listener wants to hear. It is never changed, only replaced, so that whoever raises an event
// reads it without a lock.
type subscription struct {
	enabled bool
	format  format
	events  [maxEvents]bool
	all     bool
	custom  map[string]bool
	filters []filter
}

func (s *subscription) clone() *subscription {
	c := *s
	c.custom = make(map[string]bool, len(s.custom))
	for name := range s.custom {
		c.custom[name] = true
	}
	c.filters = append([]filter(nil), s.filters...)
	return &c
}

// filter is one line of `filter`: several of them are alternatives, and an event that has none of the headers is dropped
// (mod_event_socket.c, event_handler).
type filter struct {
	name, value string
	negative    bool
	pattern     *regexp.Regexp
	compare     string
}

func newFilter(name, value string) filter {
	f := filter{name: name, value: value}
	compare := value
	for compare != "" && strings.IndexByte("+- ", compare[0]) >= 0 {
		switch compare[0] {
		case '+':
			f.negative = false
		case '-':
			f.negative = true
		}
		compare = compare[1:]
	}
	f.compare = compare
	if strings.HasPrefix(value, "/") {
		f.pattern = compileSlashed(compare)
	}
	return f
}

// compileSlashed reads /expression/flags, as switch_regex_perform does; nil never matches.
func compileSlashed(s string) *regexp.Regexp {
	if !strings.HasPrefix(s, "/") {
		return nil
	}
	end := strings.LastIndexByte(s, '/')
	if end == 0 {
		return nil
	}
	expression, flags := s[1:end], s[end+1:]
	if strings.Contains(flags, "i") {
		expression = "(?i)" + expression
	}
	re, err := regexp.Compile(expression)
	if err != nil {
		return nil
	}
	return re
}

func (f *filter) matches(value string) bool {
	if strings.HasPrefix(f.value, "/") {
		return f.pattern != nil && f.pattern.MatchString(value)
	}
	return strings.EqualFold(value, f.compare)
}

// wants tells whether the listener asked for this kind of event, before the filters.
func (s *subscription) wants(id eventID, subclass string) bool {
	if !s.enabled {
		return false
	}
	if s.all {
		return true
	}
	return s.events[id] && (id != evCustom || subclass == "" || s.custom[subclass])
}

// passes applies the filters to a finished event.
func (s *subscription) passes(e *event) bool {
	if len(s.filters) == 0 {
		return true
	}
	send := false
	for i := range s.filters {
		f := &s.filters[i]
		value, ok := e.get(f.name)
		if !ok || (send && !f.negative) {
			continue
		}
		if f.matches(value) {
			if f.negative {
				return false
			}
			send = true
		}
	}
	return send
}

// bus hands events to listeners.
type bus struct {
	mu        sync.Mutex
	listeners atomic.Pointer[[]*listener]
	scratch   sync.Pool
	headers   sync.Pool
}

func newBus() *bus {
	b := &bus{
		scratch: sync.Pool{New: func() any { buf := make([]byte, 0, 16<<10); return &buf }},
		headers: sync.Pool{New: func() any { h := make([]header, 0, 160); return &h }},
	}
	b.listeners.Store(&[]*listener{})
	return b
}

func (b *bus) add(l *listener) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := append(append([]*listener(nil), *b.listeners.Load()...), l)
	b.listeners.Store(&next)
}

func (b *bus) remove(l *listener) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var next []*listener
	for _, other := range *b.listeners.Load() {
		if other != l {
			next = append(next, other)
		}
	}
	b.listeners.Store(&next)
}

func (b *bus) wanted(id eventID, subclass string) bool {
	for _, l := range *b.listeners.Load() {
		if l.subscription.Load().wants(id, subclass) {
			return true
		}
	}
	return false
}

// fire raises an event: build adds its own headers after the ones all events have. An event nobody asked for is only
// counted, so that Event-Sequence has the gaps it has on a real switch.
func (s *Switch) fire(id eventID, subclass string, from origin, build func(*event)) {
	if !s.bus.wanted(id, subclass) {
		s.sequence.Add(1)
		return
	}
	headers := s.bus.headers.Get().(*[]header)
	e := &event{id: id, subclass: subclass, headers: (*headers)[:0]}
	s.begin(e, from)
	if build != nil {
		build(e)
	}
	var encoded [2]*[]byte
	for _, l := range *s.bus.listeners.Load() {
		sub := l.subscription.Load()
		if !sub.wants(id, subclass) || !sub.passes(e) {
			continue
		}
		if encoded[sub.format] == nil {
			buf := s.bus.scratch.Get().(*[]byte)
			if sub.format == formatJSON {
				*buf = e.appendJSON((*buf)[:0])
			} else {
				*buf = e.appendPlain((*buf)[:0])
			}
			encoded[sub.format] = buf
		}
		l.sendEvent(sub.format, *encoded[sub.format])
	}
	for _, buf := range encoded {
		if buf != nil {
			s.bus.scratch.Put(buf)
		}
	}
	clear(e.headers)
	*headers = e.headers[:0]
	s.bus.headers.Put(headers)
}
