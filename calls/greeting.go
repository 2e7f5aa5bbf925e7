package calls

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"tandem/actions"
)

// How a greeting is judged, the way that answering machine detection commonly does: a human says a word or two and waits, a
// machine talks on. docs/actions.md states the rule and what it was measured to be worth.
const (
	// machineGreeting is the length from which a greeting is a machine's.
	machineGreeting = 2 * time.Second
	// greetingPause is the silence that ends a greeting. Shorter pauses belong to it.
	greetingPause = time.Second
	// greetingEnough is how long a party may greet before it is judged: nobody need hear a machine out to know it.
	greetingEnough = 6 * time.Second
	// greetingLevel is the mean level of a frame, of 16-bit samples, from which it is not silence.
	greetingLevel = 300
	// greetingFrame is the length of a frame.
	greetingFrame = 20 * time.Millisecond
	// greetingClick is the length of sound below which it is a click on the line, not speech.
	greetingClick = 60 * time.Millisecond
)

// Who answered, as machine detection tells.
const (
	answeredHuman   = "human"
	answeredMachine = "machine"
	answeredUnknown = "unknown"
)

// hearingTime is how long a detection listens at most. Only who wants to leave a message hears a machine out.
func hearingTime(a *actions.MachineDetection) time.Duration {
	if a.Mode == actions.ModeMessageEnd {
		return a.Timeout
	}
	return min(a.Timeout, greetingEnough)
}

// judgeGreeting says who speaks in a recording of the first seconds of a call.
func judgeGreeting(spoken time.Duration) string {
	switch {
	case spoken == 0:
		return answeredUnknown
	case spoken < machineGreeting:
		return answeredHuman
	default:
		return answeredMachine
	}
}

// greetingLength is how long the first greeting in a WAV file is, from its first sound to the last before the first long pause. It
// is 0 when there is nothing but silence and clicks.
func greetingLength(path string) (time.Duration, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("read the greeting: %w", err)
	}
	defer func() {
		_ = f.Close()
	}()
	pcm, err := readPCM(f)
	if err != nil {
		return 0, fmt.Errorf("read the greeting: %w", err)
	}
	return pcm.greeting(), nil
}

// sound is the samples of one channel.
type sound struct {
	rate    int
	samples []int16
}

// greeting measures the first greeting.
func (s sound) greeting() time.Duration {
	size := s.rate * int(greetingFrame/time.Millisecond) / 1000
	if size == 0 {
		return 0
	}
	const clicks, pause = int(greetingClick / greetingFrame), int(greetingPause / greetingFrame)
	first, last, loud := -1, -1, 0
	for frame := 0; (frame+1)*size <= len(s.samples); frame++ {
		if level(s.samples[frame*size:(frame+1)*size]) >= greetingLevel {
			if first < 0 {
				first = frame
			}
			last = frame
			loud++
			continue
		}
		if last < 0 || frame-last < pause {
			continue
		}
		if loud > clicks {
			break
		}
		first, last, loud = -1, -1, 0 // a click
	}
	if loud <= clicks {
		return 0
	}
	return time.Duration(last-first+1) * greetingFrame
}

// level is the mean of the absolute values of samples.
func level(samples []int16) int {
	sum := 0
	for _, v := range samples {
		sum += max(int(v), -int(v))
	}
	return sum / len(samples)
}

// maxGreeting bounds what is read of a file, in seconds.
const maxGreeting = 120

// errNotPCM refuses what is not 16-bit PCM, which is what the switch records.
var errNotPCM = errors.New("is not a WAV file of 16-bit PCM")

// readPCM reads the first channel of a WAV file of 16-bit PCM (RFC 2361, format 1).
func readPCM(r io.Reader) (sound, error) {
	var head [12]byte
	if _, err := io.ReadFull(r, head[:]); err != nil || string(head[:4]) != "RIFF" || string(head[8:]) != "WAVE" {
		return sound{}, errNotPCM
	}
	channels, rate := 0, 0
	for {
		var chunk [8]byte
		if _, err := io.ReadFull(r, chunk[:]); err != nil {
			return sound{}, errNotPCM
		}
		size := int64(binary.LittleEndian.Uint32(chunk[4:]))
		switch string(chunk[:4]) {
		case "fmt ":
			var format [16]byte
			if _, err := io.ReadFull(r, format[:]); err != nil || size < 16 {
				return sound{}, errNotPCM
			}
			channels, rate = int(binary.LittleEndian.Uint16(format[2:])), int(binary.LittleEndian.Uint32(format[4:]))
			if binary.LittleEndian.Uint16(format[:]) != 1 || binary.LittleEndian.Uint16(format[14:]) != 16 || channels < 1 || channels > 8 || rate < 4000 || rate > 192_000 {
				return sound{}, errNotPCM
			}
			size -= 16
		case "data":
			if channels == 0 {
				return sound{}, errNotPCM
			}
			// A recording that is being written has no size yet: what is there counts.
			data, err := io.ReadAll(io.LimitReader(r, int64(maxGreeting*rate*channels*2)))
			if err != nil {
				return sound{}, err
			}
			s := sound{rate: rate, samples: make([]int16, 0, len(data)/2/channels)}
			for at := 0; at+2*channels <= len(data); at += 2 * channels {
				s.samples = append(s.samples, int16(binary.LittleEndian.Uint16(data[at:])))
			}
			return s, nil
		}
		if _, err := io.CopyN(io.Discard, r, size+size&1); err != nil {
			return sound{}, errNotPCM
		}
	}
}
