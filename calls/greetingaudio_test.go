package calls

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"time"
)

// audioRate is the sample rate of the made audio, that of a telephone line.
const audioRate = 8000

// audio is made sound.
type audio []int16

func samplesIn(d time.Duration) int { return int(d.Milliseconds()) * audioRate / 1000 }

func (a audio) length() time.Duration {
	return time.Duration(len(a)) * time.Second / audioRate
}

// hush is digital silence.
func hush(d time.Duration) audio { return make(audio, samplesIn(d)) }

// tone is a pure tone, as a mailbox beeps.
func tone(d time.Duration, hertz float64) audio {
	a := hush(d)
	for i := range a {
		a[i] = int16(9000 * math.Sin(2*math.Pi*hertz*float64(i)/audioRate))
	}
	return a
}

// babble sounds like somebody who talks without a pause: the harmonics of a voice under three formants, in syllables.
func babble(d time.Duration, seed uint64) audio {
	random := rand.New(rand.NewPCG(seed, 7))
	a := hush(d)
	pitch, syllable := 90+random.Float64()*130, 3.5+random.Float64()*2.5
	loud := 5000 + random.Float64()*7000
	phase, drift := 0.0, random.Float64()*2*math.Pi
	for i := range a {
		at := float64(i) / audioRate
		phase += 2 * math.Pi * pitch * (1 + 0.06*math.Sin(2*math.Pi*0.7*at+drift)) / audioRate
		var sum, most float64
		for harmonic := 1.0; harmonic*pitch < 3400; harmonic++ {
			weight := formant(harmonic * pitch)
			sum += weight * math.Sin(harmonic*phase)
			most += weight
		}
		envelope := 0.12 + 0.88*math.Pow(math.Sin(math.Pi*syllable*at), 2)
		a[i] = int16(loud * 2.5 * envelope * sum / most)
	}
	return a
}

// formant is how strong a frequency is in a vowel.
func formant(hertz float64) float64 {
	weight := 0.02
	for _, peak := range []struct{ at, width, gain float64 }{{650, 130, 1}, {1150, 180, 0.6}, {2500, 300, 0.3}} {
		off := (hertz - peak.at) / peak.width
		weight += peak.gain * math.Exp(-off*off)
	}
	return weight
}

// onLine puts a line's noise of that mean level under a sound.
func onLine(a audio, noise float64, seed uint64) audio {
	random := rand.New(rand.NewPCG(seed, 11))
	out := make(audio, len(a))
	for i, v := range a {
		out[i] = int16(max(-32768, min(32767, float64(v)+random.NormFloat64()*noise*1.25)))
	}
	return out
}

// click is a crack on the line.
func click(d time.Duration) audio {
	a := hush(d)
	for i := range a {
		a[i] = int16(12000 - 24000*(i%2))
	}
	return a
}

// splice puts sounds one after the other.
func splice(parts ...audio) audio {
	var all audio
	for _, part := range parts {
		all = append(all, part...)
	}
	return all
}

// wav is the sound as a file: 8 kHz, 16 bit, mono.
func (a audio) wav() []byte {
	var b bytes.Buffer
	head := []any{[]byte("RIFF"), uint32(36 + 2*len(a)), []byte("WAVEfmt "), uint32(16), uint16(1), uint16(1), uint32(audioRate), uint32(2 * audioRate), uint16(2), uint16(16), []byte("data"), uint32(2 * len(a)), []int16(a)}
	for _, part := range head {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			panic(err) // a buffer takes everything
		}
	}
	return b.Bytes()
}
