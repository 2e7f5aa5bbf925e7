package lab_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

func TestFreeSWITCHSpeaks(t *testing.T) {
	t.Parallel()
	carrier := lab.StartCarrier(t)
	node := lab.StartNode(t, lab.Options{})
	probe := node.Probe(t)
	require.NoError(t, probe.Subscribe(t.Context(), "CHANNEL_EXECUTE_COMPLETE", "RECORD_STOP"))
	channel := callOut(t, node, carrier, "+15550000010")
	file := filepath.Join(node.ConfDir, "tandem", "recordings", "speech.wav")
	reply, err := probe.API(t.Context(), "uuid_record "+channel+" start "+file)
	require.NoError(t, err)
	require.Contains(t, reply, "+OK")
	require.NoError(t, probe.Execute(t.Context(), channel, "speak", "flite|slt|This is the voice of the switch."))
	done, err := probe.Await(seconds(t, 20), "CHANNEL_EXECUTE_COMPLETE")
	require.NoError(t, err)
	require.Equal(t, "speak", done.Event("Application"))
	_, err = probe.API(t.Context(), "uuid_record "+channel+" stop "+file)
	require.NoError(t, err)
	_, err = probe.Await(seconds(t, 10), "RECORD_STOP")
	require.NoError(t, err)

	length, loudness := listen(t, file)
	require.Greater(t, length, 1.0, "seconds of speech")
	require.Greater(t, loudness, 200.0, "root mean square of 16-bit samples")
}

// listen reads a 16-bit PCM WAV file and returns its length in seconds and the root mean square of its samples.
func listen(t *testing.T, file string) (length, loudness float64) {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Greater(t, len(data), 44, "a WAV file has a header and sound")
	require.Equal(t, "RIFF", string(data[:4]))
	require.Equal(t, "WAVE", string(data[8:12]))
	var rate, channels, bits int
	for at := 12; at+8 <= len(data); {
		kind, size := string(data[at:at+4]), int(binary.LittleEndian.Uint32(data[at+4:]))
		chunk := data[at+8 : min(at+8+size, len(data))]
		switch kind {
		case "fmt ":
			require.Equal(t, uint16(1), binary.LittleEndian.Uint16(chunk), "PCM")
			channels = int(binary.LittleEndian.Uint16(chunk[2:]))
			rate = int(binary.LittleEndian.Uint32(chunk[4:]))
			bits = int(binary.LittleEndian.Uint16(chunk[14:]))
		case "data":
			require.Equal(t, 16, bits)
			samples := len(chunk) / 2
			var sum float64
			for i := range samples {
				v := float64(int16(binary.LittleEndian.Uint16(chunk[2*i:])))
				sum += v * v
			}
			return float64(samples) / float64(rate*channels), math.Sqrt(sum / float64(max(samples, 1)))
		}
		at += 8 + size + size%2
	}
	t.Fatal("no sound in the file")
	return 0, 0
}

// tone is a WAV file of a 440 Hz tone.
func tone(length time.Duration) []byte { return wav(hum(length, 440)) }
