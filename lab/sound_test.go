package lab_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// soundRate is that of the recordings: telephone sound.
const soundRate = 8000

// A tone is looked for in windows of so many samples, one every soundStep: 10 ms every 5 ms. The longest gap that is let pass is three packets of
// sound.
const (
	soundWindow = soundRate / 100
	soundStep   = soundWindow / 2
	longestGap  = 60 * time.Millisecond
)

// span is a part of a recording, from its beginning.
type span struct{ from, to time.Duration }

func (s span) length() time.Duration { return s.to - s.from }

func (s span) String() string { return fmt.Sprintf("%s at %s", s.length(), s.from) }

// samplesOf reads a WAV file of one channel of 16-bit telephone sound. The header of one that was cut off may promise more than there is.
func samplesOf(t *testing.T, file string) []int16 {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	for at := 12; at+8 <= len(data); {
		kind, size := string(data[at:at+4]), int(binary.LittleEndian.Uint32(data[at+4:]))
		chunk := data[at+8 : min(at+8+size, len(data))]
		switch kind {
		case "fmt ":
			require.Equal(t, []uint16{1, 1, 16}, []uint16{
				binary.LittleEndian.Uint16(chunk), binary.LittleEndian.Uint16(chunk[2:]), binary.LittleEndian.Uint16(chunk[14:]),
			}, "PCM of one channel")
			require.EqualValues(t, soundRate, binary.LittleEndian.Uint32(chunk[4:]))
		case "data":
			samples := make([]int16, len(chunk)/2)
			for i := range samples {
				samples[i] = int16(binary.LittleEndian.Uint16(chunk[2*i:]))
			}
			return samples
		}
		at += 8 + size + size%2
	}
	require.Fail(t, "no sound in the file", file)
	return nil
}

// heard are the parts of a recording in which a tone sounds, by Goertzel's algorithm: where a window has at least half of the tone's amplitude.
// Breaks of at most join are none.
func heard(samples []int16, hertz, amplitude float64, join time.Duration) []span {
	coefficient := 2 * math.Cos(2*math.Pi*hertz/soundRate)
	at := func(sample int) time.Duration { return time.Duration(sample) * time.Second / soundRate }
	var spans []span
	for begin := 0; begin+soundWindow <= len(samples); begin += soundStep {
		var last, before float64
		for _, sample := range samples[begin : begin+soundWindow] {
			last, before = float64(sample)+coefficient*last-before, last
		}
		power := last*last + before*before - coefficient*last*before
		if 2*math.Sqrt(max(power, 0))/soundWindow < amplitude/2 {
			continue
		}
		// The window is of the tone as far as its middle, at least.
		from, to := at(begin+soundWindow/4), at(begin+soundWindow-soundWindow/4)
		if n := len(spans); n > 0 && from-spans[n-1].to <= join {
			spans[n-1].to = to
			continue
		}
		spans = append(spans, span{from, to})
	}
	return spans
}

// sound is how a tone is heard in a recording: from its first to its last moment, and where it is not in between, for longer than longestGap.
type sound struct {
	span
	gaps []span
	// longest is the longest break, also of those that pass.
	longest time.Duration
}

// listenFor looks for a tone in a recording.
func listenFor(t *testing.T, samples []int16, hertz, amplitude float64) sound {
	t.Helper()
	spans := heard(samples, hertz, amplitude, 0)
	require.NotEmpty(t, spans, "a tone of %g Hz in %s", hertz, time.Duration(len(samples))*time.Second/soundRate)
	found := sound{span: span{spans[0].from, spans[len(spans)-1].to}}
	for i := 1; i < len(spans); i++ {
		gap := span{spans[i-1].to, spans[i].from}
		found.longest = max(found.longest, gap.length())
		if gap.length() > longestGap {
			found.gaps = append(found.gaps, gap)
		}
	}
	return found
}

// toneAmplitude is that of the tones that these tests play.
const toneAmplitude = 8000

// hum is a tone.
func hum(length time.Duration, hertz float64) []int16 {
	samples := make([]int16, int(length.Seconds()*soundRate))
	for i := range samples {
		samples[i] = int16(toneAmplitude * math.Sin(2*math.Pi*hertz*float64(i)/soundRate))
	}
	return samples
}

// wav is a file of samples.
func wav(samples []int16) []byte {
	file := make([]byte, 44, 44+2*len(samples))
	copy(file, "RIFF")
	binary.LittleEndian.PutUint32(file[4:], uint32(36+2*len(samples)))
	copy(file[8:], "WAVEfmt ")
	for at, value := range map[int]uint32{16: 16, 24: soundRate, 28: 2 * soundRate, 40: uint32(2 * len(samples))} {
		binary.LittleEndian.PutUint32(file[at:], value)
	}
	for at, value := range map[int]uint16{20: 1, 22: 1, 32: 2, 34: 16} {
		binary.LittleEndian.PutUint16(file[at:], value)
	}
	copy(file[36:], "data")
	for _, sample := range samples {
		file = binary.LittleEndian.AppendUint16(file, uint16(sample))
	}
	return file
}

// silence is a part of a recording in which nothing sounds.
func silence(samples []int16, from, length time.Duration) {
	first := int(from.Seconds() * soundRate)
	clear(samples[first : first+int(length.Seconds()*soundRate)])
}

// The tests of calls that are not to be interrupted would find an interruption.
func TestGapsAreHeard(t *testing.T) {
	t.Parallel()
	const hertz = 440
	whole := hum(10*time.Second, hertz)
	require.Empty(t, listenFor(t, whole, hertz, toneAmplitude).gaps)
	require.InDelta(t, 10, listenFor(t, whole, hertz, toneAmplitude).length().Seconds(), 0.01)
	for _, missing := range []time.Duration{70 * time.Millisecond, 80 * time.Millisecond, 100 * time.Millisecond, 400 * time.Millisecond, 2 * time.Second} {
		for _, at := range []time.Duration{3 * time.Second, 3011 * time.Millisecond, 7127 * time.Millisecond} {
			cut := hum(10*time.Second, hertz)
			silence(cut, at, missing)
			gaps := listenFor(t, cut, hertz, toneAmplitude).gaps
			require.Len(t, gaps, 1, "%s", missing)
			require.InDelta(t, at.Seconds(), gaps[0].from.Seconds(), 0.01)
			require.InDelta(t, missing.Seconds(), gaps[0].length().Seconds(), 0.011)
		}
	}
	cut := hum(10*time.Second, hertz)
	silence(cut, 5*time.Second, 20*time.Millisecond)
	found := listenFor(t, cut, hertz, toneAmplitude)
	require.Empty(t, found.gaps, "one packet")
	require.InDelta(t, 0.02, found.longest.Seconds(), 0.011)

	// Another sound that is mixed in hides nothing, and is found where it is.
	other := hum(2*time.Second, 1300)
	for i, sample := range other {
		cut[i+4*soundRate] += sample
	}
	silence(cut, 5*time.Second, 100*time.Millisecond)
	require.Len(t, listenFor(t, cut, hertz, toneAmplitude).gaps, 1)
	spans := heard(cut, 1300, toneAmplitude, time.Second)
	require.Len(t, spans, 1)
	require.InDelta(t, 4, spans[0].from.Seconds(), 0.02)
	require.InDelta(t, 2, spans[0].length().Seconds(), 0.02)

	file := t.TempDir() + "/sound.wav"
	require.NoError(t, os.WriteFile(file, wav(cut), 0o600))
	require.Equal(t, cut, samplesOf(t, file))
}
