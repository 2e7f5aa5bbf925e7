package calls

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

func TestGreetingIsJudged(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		heard   audio
		spoken  time.Duration
		verdict string
	}{
		"nothing":                      {nil, 0, answeredUnknown},
		"silence":                      {hush(5 * sec), 0, answeredUnknown},
		"a noisy line":                 {onLine(hush(5*sec), 150, 1), 0, answeredUnknown},
		"a click":                      {splice(hush(sec), click(40*ms), hush(3*sec)), 0, answeredUnknown},
		"three clicks":                 {splice(click(40*ms), hush(1200*ms), click(60*ms), hush(1200*ms), click(20*ms), hush(2*sec)), 0, answeredUnknown},
		"hello":                        {splice(hush(500*ms), babble(600*ms, 1), hush(1500*ms)), 600 * ms, answeredHuman},
		"hello at once":                {splice(babble(400*ms, 2), hush(1500*ms)), 400 * ms, answeredHuman},
		"hello on a noisy line":        {onLine(splice(hush(500*ms), babble(600*ms, 3), hush(1500*ms)), 120, 2), 600 * ms, answeredHuman},
		"hello after a click":          {splice(click(40*ms), hush(1100*ms), babble(600*ms, 4), hush(1500*ms)), 600 * ms, answeredHuman},
		"two words":                    {splice(babble(500*ms, 5), hush(600*ms), babble(500*ms, 6), hush(1500*ms)), 1600 * ms, answeredHuman},
		"hello, and once more later":   {splice(babble(500*ms, 7), hush(1200*ms), babble(3*sec, 8), hush(1500*ms)), 500 * ms, answeredHuman},
		"just under the bound":         {splice(hush(200*ms), babble(1960*ms, 9), hush(1500*ms)), 1960 * ms, answeredHuman},
		"the bound":                    {splice(hush(200*ms), babble(2*sec, 10), hush(1500*ms)), 2 * sec, answeredMachine},
		"a machine":                    {splice(hush(300*ms), babble(7*sec, 11), hush(1500*ms)), 7 * sec, answeredMachine},
		"a machine with pauses":        {splice(babble(900*ms, 12), hush(900*ms), babble(900*ms, 13), hush(1500*ms)), 2700 * ms, answeredMachine},
		"a machine that is cut off":    {splice(hush(300*ms), babble(4*sec, 14)), 4 * sec, answeredMachine},
		"a machine on a noisy line":    {onLine(splice(babble(3*sec, 15), hush(1500*ms)), 120, 3), 3 * sec, answeredMachine},
		"a tone, as a fax or ringing":  {splice(tone(3*sec, 1100), hush(2*sec)), 3 * sec, answeredMachine},
		"a word and a machine's pause": {splice(babble(700*ms, 16), hush(1100*ms), babble(5*sec, 17)), 700 * ms, answeredHuman}, // the rule's known error
	} {
		spoken := sound{rate: audioRate, samples: tt.heard}.greeting()
		require.InDelta(t, tt.spoken, spoken, float64(60*ms), "%s: %s, not %s", name, spoken, tt.spoken)
		if tt.spoken != 2*sec && tt.spoken != 1960*ms {
			require.Equal(t, tt.verdict, judgeGreeting(spoken), name)
		}
	}
	require.Equal(t, answeredHuman, judgeGreeting(machineGreeting-1))
	require.Equal(t, answeredMachine, judgeGreeting(machineGreeting))
	require.Equal(t, answeredUnknown, judgeGreeting(0))
}

func TestGreetingAtOtherRates(t *testing.T) {
	t.Parallel()
	narrow := splice(hush(500*ms), babble(800*ms, 1), hush(1500*ms))
	var wide audio
	for _, v := range narrow {
		wide = append(wide, v, v)
	}
	require.InDelta(t, 800*ms, sound{rate: 2 * audioRate, samples: wide}.greeting(), float64(60*ms))
	require.Zero(t, sound{rate: 10, samples: narrow}.greeting(), "no frame fits")
}

func TestGreetingLength(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "greeting.wav")
	_, err := greetingLength(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("noise"), 0o600))
	_, err = greetingLength(path)
	require.ErrorIs(t, err, errNotPCM)
	require.NoError(t, os.WriteFile(path, splice(hush(sec), babble(1500*ms, 1), hush(sec)).wav(), 0o600))
	spoken, err := greetingLength(path)
	require.NoError(t, err)
	require.InDelta(t, 1500*ms, spoken, float64(60*ms))
}

// brokenWAV are files that are none, and what is made of a whole one.
func brokenWAV() map[string][]byte {
	whole := babble(100*ms, 1).wav()
	changed := func(at int, with ...byte) []byte {
		b := bytes.Clone(whole)
		copy(b[at:], with)
		return b
	}
	return map[string][]byte{
		"empty":                nil,
		"a header's beginning": whole[:11],
		"RIFF alone":           whole[:12],
		"no format":            append(bytes.Clone(whole[:12]), whole[36:]...),
		"half a format":        whole[:30],
		"no data":              whole[:36],
		"another container":    changed(0, []byte("RIFX")...),
		"another content":      changed(8, []byte("AVI ")...),
		"a short format chunk": changed(16, 8),
		"an unknown format":    changed(20, 0x99),
		"data misspelled":      changed(36, []byte("dada")...),
		"endless chunk":        changed(36, 'j', 'u', 'n', 'k', 0xff, 0xff, 0xff, 0xff),
	}
}

func TestBrokenWAV(t *testing.T) {
	t.Parallel()
	for name, file := range brokenWAV() {
		_, err := readPCM(bytes.NewReader(file))
		require.ErrorIs(t, err, errNotPCM, name)
		_, err = readWAV(bytes.NewReader(file))
		require.ErrorIs(t, err, errNotWAV, name)
	}
	whole := babble(100*ms, 1).wav()
	for name, change := range map[string]struct {
		at   int
		with []byte
	}{
		"8 bit": {34, []byte{8}}, "no channel": {22, []byte{0}}, "nine channels": {22, []byte{9}}, "a rate of 1": {24, []byte{1, 0}}, "a-law": {20, []byte{6}},
	} {
		file := bytes.Clone(whole)
		copy(file[change.at:], change.with)
		_, err := readPCM(bytes.NewReader(file))
		require.ErrorIs(t, err, errNotPCM, name)
	}
}

func TestWAV(t *testing.T) {
	t.Parallel()
	sound := babble(1500*ms, 1)
	whole := sound.wav()
	extra := bytes.Join([][]byte{whole[:36], []byte("LIST\x03\x00\x00\x00abc\x00"), whole[36:]}, nil)
	unfinished := bytes.Clone(whole)
	copy(unfinished[40:], []byte{0xff, 0xff, 0xff, 0xff})
	for name, tt := range map[string]struct {
		file    []byte
		seconds float64
	}{
		"whole":             {whole, 1.5},
		"with an odd chunk": {extra, 1.5},
		"never finished":    {unfinished, 1.5},
		"cut off":           {whole[:44+8000], 0.5},
		"no samples":        {whole[:44], 0},
	} {
		info, err := readWAV(bytes.NewReader(tt.file))
		require.NoError(t, err, name)
		require.InDelta(t, tt.seconds, info.seconds, 0.001, name)
		pcm, err := readPCM(bytes.NewReader(tt.file))
		require.NoError(t, err, name)
		require.Equal(t, audioRate, pcm.rate, name)
		require.Len(t, pcm.samples, int(tt.seconds*audioRate), name)
		require.Equal(t, []int16(sound[:len(pcm.samples)]), append([]int16{}, pcm.samples...), name)
	}
	// The first of two channels counts.
	two := bytes.Clone(whole)
	two[22], two[32] = 2, 4
	pcm, err := readPCM(bytes.NewReader(two))
	require.NoError(t, err)
	require.Len(t, pcm.samples, len(sound)/2)
	require.Equal(t, sound[2], pcm.samples[1])
}

func TestSoundKind(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		file   string
		mp3    bool
		suffix string
		err    error
	}{
		"wav":                    {string(babble(50*ms, 1).wav()), false, ".wav", nil},
		"tagged mp3":             {"ID3\x04\x00", true, ".mp3", nil},
		"bare mp3":               {"\xff\xfb\x90\x64", true, ".mp3", nil},
		"mp3 of version 2":       {"\xff\xf3\x90\x64", true, ".mp3", nil},
		"mp3, which cannot be":   {"\xff\xfb\x90\x64", false, "", errNoMP3},
		"layer II":               {"\xff\xfd\x90\x64", true, "", errNotSound},
		"a page":                 {"<html><body>", true, "", errNotSound},
		"two bytes":              {"\xff\xfb", true, "", errNotSound},
		"nothing":                {"", true, "", errNotSound},
		"a broken wav is no mp3": {"RIFF\x00\x00\x00\x00WAVE", true, "", errNotSound},
	} {
		suffix, err := soundKind(bytes.NewReader([]byte(tt.file)), tt.mp3)
		require.ErrorIs(t, err, tt.err, name)
		require.Equal(t, tt.suffix, suffix, name)
	}
}

func FuzzWAV(f *testing.F) {
	for _, file := range brokenWAV() {
		f.Add(file)
	}
	f.Add(babble(100*ms, 1).wav())
	f.Add(silentWAV())
	f.Fuzz(func(t *testing.T, file []byte) {
		info, err := readWAV(bytes.NewReader(file))
		if err == nil && (info.seconds < 0 || info.seconds > float64(len(file))) {
			t.Fatalf("%d bytes last %f s", len(file), info.seconds)
		}
		pcm, err := readPCM(bytes.NewReader(file))
		if err != nil {
			return
		}
		if pcm.rate < 4000 || len(pcm.samples) > len(file)/2 {
			t.Fatalf("%d samples at %d Hz in %d bytes", len(pcm.samples), pcm.rate, len(file))
		}
		if spoken := pcm.greeting(); spoken < 0 || spoken > time.Duration(len(pcm.samples))*time.Second/4000+greetingFrame {
			t.Fatalf("%d samples hold a greeting of %s", len(pcm.samples), spoken)
		}
	})
}
