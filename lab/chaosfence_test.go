package lab_test

import (
	"bytes"
	"strconv"
	"strings"
	"sync"
)

// fenceJudge listens on the link to all that controllers tell the switch, and notes each command that comes from one after a later one has
// commanded. A controller writes the token of its lease into the switch when it takes it, and waits a moment before it commands: what the one
// before it has under way may come until then.
type fenceJudge struct {
	mu       sync.Mutex
	tokens   map[int]int64  // the token that each connection has written
	rests    map[int][]byte // the begun lines
	highest  int64
	steering int64 // the token of the last one that has commanded
	commands int
	problems problems
	taken    func() // told when a controller takes the node
}

// whenTaken has a function called whenever a controller takes the node.
func (j *fenceJudge) whenTaken(taken func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.taken = taken
}

// hear takes in what a connection has sent.
func (j *fenceJudge) hear(conn int, sent []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.tokens == nil {
		j.tokens, j.rests = map[int]int64{}, map[int][]byte{}
	}
	lines := bytes.Split(append(j.rests[conn], sent...), []byte("\n"))
	j.rests[conn] = bytes.Clone(lines[len(lines)-1])
	for _, line := range lines[:len(lines)-1] {
		j.line(conn, string(line))
	}
}

func (j *fenceJudge) line(conn int, line string) {
	if text, ok := strings.CutPrefix(line, "api global_setvar tandem_controller="); ok {
		token, _ := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		if token < j.highest {
			j.problems.add("an older controller wrote its token over a newer one", "%d over %d", token, j.highest)
		}
		j.tokens[conn] = token
		if token > j.highest && j.taken != nil {
			j.taken()
		}
		j.highest = max(j.highest, token)
		return
	}
	if !changes(line) {
		return
	}
	j.commands++
	token := j.tokens[conn]
	switch {
	case token == 0:
		j.problems.add("a controller steered the node before it had taken it", "%.120s", line)
	case token < j.steering:
		j.problems.add("two controllers steered the node", "%.120s (token %d, after a command with %d)", line, token, j.steering)
	}
	j.steering = max(j.steering, token)
}

// changes tells whether a line begins a command that does something to a call.
func changes(line string) bool {
	if strings.HasPrefix(line, "sendmsg ") {
		return true
	}
	command, ok := strings.CutPrefix(line, "bgapi ")
	if !ok {
		if command, ok = strings.CutPrefix(line, "api "); !ok {
			return false
		}
	}
	name, _, _ := strings.Cut(strings.TrimSpace(command), " ")
	switch name {
	case "uuid_exists", "uuid_dump", "uuid_getvar":
		return false
	case "originate", "conference", "hupall":
		return true
	default:
		return strings.HasPrefix(name, "uuid_") || name == "sched_hangup" || name == "sched_transfer"
	}
}

// tell adds what it has found.
func (j *fenceJudge) tell(p *problems) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.commands == 0 || j.highest == 0 {
		p.add("no commands", "nobody took the node, or nobody told it anything")
	}
	p.said = append(p.said, j.problems.said...)
}
