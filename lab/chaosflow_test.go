package lab_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"strings"
)

// typed is what every caller who calls in types when it is asked to.
const typed = "12"

// Prices of a minute.
const (
	outboundPrice = 0.6
	inboundPrice  = 0.3
)

// flowOf is what the application wants of a call: rounds of actions, each of which ends with a question for the next. It depends on
// nothing but the call, so that a question that comes again gets the same answer.
func (p chaosPlan) flowOf(call, direction string) [][]object {
	seed, pace := p.seed, p.pace
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(call))
	rng := rand.New(rand.NewPCG(seed, sum.Sum64()))
	seconds := func(most float64) float64 { return max(0.2, float64(int(10*pace*most*(0.3+0.7*rng.Float64())))/10) }
	f := &flowMaker{}
	if rng.IntN(4) == 0 {
		f.add(object{"action": "record_call"})
	}
	f.add(object{"action": "say", "text": "Welcome."})
	f.notify()
	gather := object{"action": "gather", "num_digits": 2, "timeout": max(8, 20*pace), "prompt": []object{{"action": "say", "text": "Two digits."}}}
	if direction == "outbound" {
		gather["timeout"] = max(1, seconds(10))
	}
	f.ask(gather)
	f.notify()
	rounds := 1 + rng.IntN(3)
	for range rounds {
		for range 1 + rng.IntN(3) {
			switch rng.IntN(5) {
			case 0:
				f.add(object{"action": "record", "max_seconds": max(1, int(seconds(20))), "silence_seconds": 0, "finish_on_key": "", "beep": false})
			case 1:
				f.add(object{"action": "play", "tone": "ringback_us", "max_seconds": max(1, seconds(10))})
			case 2:
				f.add(object{"action": "set", "variables": object{"step": strconv.Itoa(f.index)}})
			case 3:
				f.add(object{"action": "say", "text": strings.Repeat("On we go. ", 1+int(12*pace*rng.Float64()))})
			default:
				f.add(object{"action": "pause", "seconds": seconds(20)})
			}
			f.notify()
		}
		choices := 3
		if p.groups {
			choices = 6
		}
		switch rng.IntN(choices) {
		case 3:
			f.ask(object{"action": "conference", "name": fmt.Sprintf("room-%d", rng.IntN(8)), "max_seconds": max(1, seconds(20))})
		case 4:
			f.ask(object{"action": "enqueue", "name": fmt.Sprintf("queue-%d", rng.IntN(3)), "max_wait": max(1, seconds(20))})
		case 5:
			f.ask(object{"action": "dequeue", "name": fmt.Sprintf("queue-%d", rng.IntN(3)), "timeout": max(1, seconds(10)), "max_seconds": max(1, seconds(10))})
		case 0:
			f.ask(object{"action": "dial", "to": []string{"+15550810701", "+15550810486", "+15550810711"}[rng.IntN(3)], "timeout": 10, "max_seconds": max(1, seconds(15))})
		case 1:
			f.redirect()
		default:
			f.ask(object{"action": "pause", "seconds": seconds(30)})
		}
		f.notify()
	}
	f.add(object{"action": "pause", "seconds": seconds(30)})
	f.notify()
	f.add(object{"action": "hangup"})
	return append(f.rounds, f.list)
}

// dialSeconds is how long a party that was dialled stays at most.
func dialSeconds(pace float64) float64 { return max(2, 15*pace) }

// flowMaker gives every action a name that tells its place in the flow.
type flowMaker struct {
	rounds [][]object
	list   []object
	index  int
}

func (f *flowMaker) add(action object) {
	action["id"] = fmt.Sprintf("a%03d", f.index)
	f.index++
	f.list = append(f.list, action)
}

// notify tells the customer's server how far the call is: once, since it comes from an action that must not run again.
func (f *flowMaker) notify() {
	f.add(object{"action": "notify", "payload": object{"step": fmt.Sprintf("a%03d", f.index)}})
}

func (f *flowMaker) next() string { return fmt.Sprintf("/answer/%d", len(f.rounds)+1) }

func (f *flowMaker) ask(action object) {
	action["result_url"] = f.next()
	f.add(action)
	f.rounds, f.list = append(f.rounds, f.list), nil
}

func (f *flowMaker) redirect() {
	f.add(object{"action": "redirect", "url": f.next()})
	f.rounds, f.list = append(f.rounds, f.list), nil
}

func roundOf(path string) int {
	round, _ := strconv.Atoi(path)
	return round
}

// fallbackList is what the applications have stored for the time when nobody answers: it keeps the call for a while.
func fallbackList(pace float64) []object {
	return []object{
		{"action": "say", "text": "Our server is away.", "id": "z000"},
		{"action": "pause", "seconds": max(0.2, 20*pace), "id": "z001"},
		{"action": "notify", "payload": object{"step": "z002"}, "id": "z002"},
		{"action": "hangup", "id": "z003"},
	}
}

// commandList is what live control wants of a call instead of the rest of its list.
func commandList(token string, pace float64) []object {
	return []object{
		{"action": "notify", "payload": object{"step": "y000", "token": token}, "id": "y000"},
		{"action": "pause", "seconds": max(0.2, 5*pace), "id": "y001"},
		{"action": "notify", "payload": object{"step": "y002"}, "id": "y002"},
		{"action": "hangup", "id": "y003"},
	}
}
