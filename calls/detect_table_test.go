package calls

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
	"tandem/models"
	"tandem/models/modelstest"
)

// phrases are spoken by the switch, for greetings that are made of speech: voice and text.
var phrases = []string{
	"slt|Hello?", "rms|Hello?", "awb|Yes?", "kal|Hello?", "slt|Miller.", "rms|Good morning.", "awb|Hello, Anna speaking.", "slt|Who is there?",
	"slt|You have reached the office of Miller and sons.", "rms|Nobody is here to take your call.", "awb|Please leave a message after the tone.",
	"kal|The person you have called is not available.", "slt|Hi, this is Peter, and I cannot come to the phone right now.", "rms|Leave your name and your number.",
}

// greetingCase is a made greeting and who it is by.
type greetingCase struct {
	name, by  string
	heard     audio
	beeps     bool
	hard      bool // it is measured, and nothing is expected of it
	number    string
	verdict   string
	beep      bool
	after     time.Duration
	completed bool
}

// humans are greetings as people say them: a word or two, and then they listen.
func humans(said map[string]audio) []*greetingCase {
	var list []*greetingCase
	add := func(name string, parts ...audio) {
		list = append(list, &greetingCase{name: name, by: answeredHuman, heard: splice(parts...)})
	}
	for i, phrase := range phrases[:8] {
		add(phrase, hush(time.Duration(200+150*i)*ms), said[phrase])
	}
	for i, phrase := range phrases[:6] {
		noise := []float64{30, 60, 90, 120}[i%4]
		add(fmt.Sprintf("%s on a line with noise of %.0f", phrase, noise), onLine(splice(hush(400*ms), said[phrase], hush(4*sec)), noise, uint64(i)))
	}
	for i, length := range []time.Duration{300 * ms, 500 * ms, 800 * ms, 1100 * ms, 1400 * ms, 1600 * ms} {
		add(fmt.Sprintf("babble of %s", length), hush(time.Duration(150+400*i)*ms), babble(length, uint64(20+i)))
	}
	add("Hello? … Hello?", hush(500*ms), said[phrases[0]], hush(1300*ms), said[phrases[0]])
	add("Hello? Yes?", hush(300*ms), said[phrases[1]], hush(400*ms), said[phrases[2]])
	add("a click, then Hello?", hush(100*ms), click(40*ms), hush(700*ms), said[phrases[3]])
	add("after three seconds", hush(3*sec), said[phrases[0]])
	return list
}

// machines are greetings as mailboxes play them: they talk on, with pauses shorter than a second.
func machines(said map[string]audio) []*greetingCase {
	var list []*greetingCase
	add := func(name string, beeps bool, parts ...audio) {
		if beeps {
			parts = append(parts, hush(400*ms), tone(600*ms, 950+10*float64(len(list))))
		}
		list = append(list, &greetingCase{name: name, by: answeredMachine, heard: splice(parts...), beeps: beeps})
	}
	long := phrases[8:]
	for i, phrase := range long {
		pause := time.Duration(200+120*i) * ms
		add(fmt.Sprintf("%s and another, pause %s", phrase, pause), i%2 == 0, hush(time.Duration(100+200*i)*ms), said[phrase], hush(pause), said[long[(i+1)%len(long)]])
	}
	for i, phrase := range long {
		noise := []float64{30, 60, 90}[i%3]
		add(fmt.Sprintf("three phrases on a line with noise of %.0f, from %s", noise, phrase), false,
			onLine(splice(hush(300*ms), said[phrase], hush(700*ms), said[long[(i+2)%len(long)]], hush(500*ms), said[long[(i+3)%len(long)]], hush(4*sec)), noise, uint64(i)))
	}
	for i, length := range []time.Duration{3 * sec, 4 * sec, 6 * sec, 8 * sec, 12 * sec} {
		add(fmt.Sprintf("babble of %s", length), i%2 == 1, hush(300*ms), babble(length, uint64(40+i)))
	}
	for i := range 5 {
		pause := time.Duration(300+150*i) * ms
		add(fmt.Sprintf("babble in three parts, pauses of %s", pause), i%2 == 0,
			hush(500*ms), babble(1200*ms, uint64(60+i)), hush(pause), babble(1500*ms, uint64(70+i)), hush(pause), babble(900*ms, uint64(80+i)))
	}
	return list
}

// hardCases are what the rule is known to err at.
func hardCases(said map[string]audio) []*greetingCase {
	return []*greetingCase{
		{name: "a person with a business's greeting", by: answeredHuman, heard: splice(hush(300*ms), said[phrases[8]])},
		{name: "a person who talks to somebody else", by: answeredHuman, heard: splice(hush(300*ms), babble(1500*ms, 90), hush(500*ms), said[phrases[0]])},
		{name: "a person in a loud street", by: answeredHuman, heard: onLine(splice(hush(300*ms), said[phrases[0]], hush(6*sec)), 600, 91)},
		{name: "a machine that pauses after its name", by: answeredMachine, heard: splice(hush(300*ms), said[phrases[4]], hush(1200*ms), said[phrases[9]], said[phrases[10]])},
		{name: "a machine of one short phrase", by: answeredMachine, heard: splice(hush(300*ms), babble(1700*ms, 92), hush(500*ms), tone(500*ms, 1000))},
		{name: "a machine that is silent for six seconds", by: answeredMachine, heard: splice(hush(6*sec), said[phrases[8]])},
	}
}

// speak has the switch speak the phrases, and returns them as they went over a line.
func (l *live) speak(t *testing.T) map[string]audio {
	t.Helper()
	l.answers("/answer", func(w http.ResponseWriter, q asked) {
		metadata, _ := q.Call["metadata"].(map[string]any)
		voice, text, _ := strings.Cut(metadata["phrase"].(string), "|")
		reply(`[{"action":"record_call"},{"action":"say","voice":"`+voice+`","text":"`+text+`"}]`)(w, q)
	})
	byCall := map[string]string{}
	for _, phrase := range phrases {
		call := l.create(func(r *CreateRequest) { r.To, r.Metadata = "+15550000723", map[string]string{"phrase": phrase} })
		byCall[call.ID] = phrase
	}
	said := map[string]audio{}
	for range phrases {
		call := l.end()
		raw, err := os.ReadFile(l.recorded(t, call.ID).Path)
		require.NoError(t, err)
		phrase := byCall[call.ID]
		said[phrase] = heardRight(t, raw)
		t.Logf("%s lasts %s", phrase, said[phrase].length().Round(ms))
		require.Greater(t, said[phrase].length(), 100*ms)
	}
	return said
}

// heardRight is the second channel of a recording, from its first sound to its last.
func heardRight(t *testing.T, raw []byte) audio {
	t.Helper()
	at := bytes.Index(raw, []byte("data"))
	require.Positive(t, at)
	// Read from the second channel on, the first is the right one.
	raw = slices.Concat(raw[:at+8], raw[at+10:])
	pcm, err := readPCM(bytes.NewReader(raw))
	require.NoError(t, err)
	first, last := len(pcm.samples), 0
	const frame = audioRate / 50
	for i := 0; i+frame <= len(pcm.samples); i += frame {
		if level(pcm.samples[i:i+frame]) >= greetingLevel {
			first, last = min(first, i), i+frame
		}
	}
	require.Less(t, first, last, "something was said")
	return pcm.samples[first:last]
}

// TestFreeSWITCHMachineDetectionTable measures machine detection on made audio, through a real switch, a few calls at a time. The
// table in docs/actions.md is its log.
func TestFreeSWITCHMachineDetectionTable(t *testing.T) {
	t.Parallel()
	lab.Require(t)
	l := newReal(t, modelstest.Open(t))
	_, err := l.store.Credit(t.Context(), l.customer.ID, "many", models.LedgerTopup, 1_000_000_000, "")
	require.NoError(t, err)
	said := l.speak(t)
	cases := slices.Concat(humans(said), machines(said))
	for _, c := range hardCases(said) {
		c.hard = true
		cases = append(cases, c)
	}
	byNumber := map[string]*greetingCase{}
	for i, c := range cases {
		c.number = l.carrier.Says(t, i, c.heard.wav())
		byNumber[c.number] = c
	}
	l.answers("/answer", func(w http.ResponseWriter, q asked) {
		mode := "detect"
		if c := byNumber[q.Call["to"].(string)]; c.beeps {
			mode = "message_end"
		}
		reply(`[{"action":"machine_detection","async":false,"timeout":30,"mode":"`+mode+`"}]`)(w, q)
	})
	const together = 10
	room := make(chan struct{}, together)
	var placing sync.WaitGroup
	placing.Go(func() {
		for _, c := range cases {
			room <- struct{}{}
			l.create(func(r *CreateRequest) { r.To = c.number })
		}
	})
	for range cases {
		call := l.end()
		<-room
		c := byNumber[call.To]
		data := l.data(call.ID, "call.machine_detected")
		c.verdict, c.beep, c.completed = call.AnsweredBy, data["beep"].(bool), call.Status == StatusCompleted
		c.after = time.Duration(data["after_ms"].(float64) * float64(ms))
	}
	placing.Wait()
	report(t, cases)
}

// report logs the table and holds it to what is promised.
func report(t *testing.T, cases []*greetingCase) {
	t.Helper()
	verdicts := []string{answeredHuman, answeredMachine, answeredUnknown}
	for _, by := range verdicts[:2] {
		count, beeps, beepsFound := map[string]int{}, 0, 0
		total := 0
		var times []time.Duration
		for _, c := range cases {
			if c.hard || c.by != by {
				continue
			}
			require.True(t, c.completed, c.name)
			total++
			count[c.verdict]++
			if c.beeps {
				beeps++
				if c.beep {
					beepsFound++
				}
			} else {
				times = append(times, c.after)
			}
			if c.verdict != by || c.beeps != c.beep {
				t.Logf("WRONG: %s by a %s: %s, beep %t", c.name, c.by, c.verdict, c.beep)
			}
		}
		slices.Sort(times)
		t.Logf("%-8s %d: judged human %d, machine %d, unknown %d; verdict after p50 %s, max %s; beeps %d of %d", by, total, count[answeredHuman],
			count[answeredMachine], count[answeredUnknown], times[len(times)/2], times[len(times)-1], beepsFound, beeps)
		require.GreaterOrEqual(t, total, 20)
		require.GreaterOrEqual(t, 10*count[by], 9*total, "at least nine of ten are right")
		require.GreaterOrEqual(t, 10*beepsFound, 9*beeps, "at least nine of ten beeps are found")
	}
	for _, c := range cases {
		if c.hard {
			t.Logf("hard: %s: %s after %s", c.name, c.verdict, c.after)
		}
	}
}
