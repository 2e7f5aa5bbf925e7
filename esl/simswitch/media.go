package simswitch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

var errUnknownMedia = errors.New("the simulated switch cannot play this")

// endless is the length of a stream that only a break ends.
const endless = time.Duration(-1)

// mediaLength is how long a file or stream plays: a WAV file as its header says, silence_stream, tone_stream, and
// file_string lists of these.
func mediaLength(file string) (time.Duration, error) {
	scheme, rest, found := strings.Cut(file, "://")
	if !found {
		return wavLength(file)
	}
	switch scheme {
	case "silence_stream":
		ms, _, _ := strings.Cut(rest, ",")
		if leadingInt(ms) < 0 {
			return endless, nil
		}
		if leadingInt(ms) == 0 {
			return 0, fmt.Errorf("length of silence %q: %w", rest, errUnknownMedia)
		}
		return time.Duration(leadingInt(ms)) * time.Millisecond, nil
	case "tone_stream":
		return toneLength(rest)
	case "file_string":
		var total time.Duration
		played := false
		for _, part := range separate(rest, '!', 128) {
			length, err := mediaLength(part)
			if err != nil {
				continue
			}
			if length == endless {
				return endless, nil
			}
			played = true
			total += length
		}
		if !played {
			return 0, fmt.Errorf("no file of %q can be opened: %w", rest, os.ErrNotExist)
		}
		return total, nil
	default:
		return 0, fmt.Errorf("stream %q: %w", scheme, errUnknownMedia)
	}
}

// wavLength reads the length of a RIFF WAVE file from its header.
func wavLength(path string) (time.Duration, error) {
	f, err := os.Open(path) // #nosec G304 -- the simulated switch plays what its controller names, as the real one does.
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	var head [12]byte
	if _, err := io.ReadFull(f, head[:]); err != nil {
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	if string(head[:4]) != "RIFF" || string(head[8:]) != "WAVE" {
		return 0, fmt.Errorf("%s is no WAV file: %w", path, errUnknownMedia)
	}
	rate := uint32(0)
	for {
		var chunk [8]byte
		if _, err := io.ReadFull(f, chunk[:]); err != nil {
			return 0, fmt.Errorf("%s has no audio: %w", path, err)
		}
		size := binary.LittleEndian.Uint32(chunk[4:])
		switch string(chunk[:4]) {
		case "fmt ":
			var format [16]byte
			if size < 16 {
				return 0, fmt.Errorf("%s has a short format chunk: %w", path, errUnknownMedia)
			}
			if _, err := io.ReadFull(f, format[:]); err != nil {
				return 0, fmt.Errorf("read %s: %w", path, err)
			}
			rate = binary.LittleEndian.Uint32(format[8:])
			size -= 16
		case "data":
			if rate == 0 {
				return 0, fmt.Errorf("%s has no format before its audio: %w", path, errUnknownMedia)
			}
			at, err := f.Seek(0, io.SeekCurrent)
			if err != nil {
				return 0, fmt.Errorf("read %s: %w", path, err)
			}
			info, err := f.Stat()
			if err != nil {
				return 0, fmt.Errorf("read %s: %w", path, err)
			}
			bytes := min(int64(size), info.Size()-at)
			return time.Duration(bytes * int64(time.Second) / int64(rate)), nil
		}
		if _, err := f.Seek(int64(size)+int64(size&1), io.SeekCurrent); err != nil {
			return 0, fmt.Errorf("read %s: %w", path, err)
		}
	}
}

// recordRate is the sample rate of recordings, 16-bit mono as FreeSWITCH makes them from a PCMU call.
const recordRate = 8000

// speechLevel is the level of what a simulated party says in a recording, of 16-bit samples.
const speechLevel = 6000

// writeSpeech puts what the far end said into the left channel of a recording that writeWAV wrote: a 400 Hz square wave while it spoke.
func writeSpeech(path string, channels int, begun time.Time, length time.Duration, voice []sound) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0) // #nosec G304 -- the simulated switch records where its controller says.
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	for _, s := range voice {
		from, to := max(s.begin.Sub(begun), 0), min(s.end.Sub(begun), length)
		if to <= from || err != nil {
			continue
		}
		first := from.Milliseconds() * recordRate / 1000
		samples := make([]byte, (to-from).Milliseconds()*recordRate/1000*int64(2*channels))
		for i := 0; i < len(samples); i += 2 * channels {
			level := int16(speechLevel)
			if i/(2*channels)/(recordRate/800)%2 == 1 {
				level = -speechLevel
			}
			binary.LittleEndian.PutUint16(samples[i:], uint16(level)) // #nosec G115 -- two's complement is meant.
		}
		_, err = f.WriteAt(samples, 44+first*int64(2*channels))
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// writeWAV writes a playable WAV file of silence with one channel or two. The zero bytes are a hole in the file, so that an hour costs nothing.
func writeWAV(path string, length time.Duration, channels int) (size int64, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return 0, fmt.Errorf("make folder of recording: %w", err)
	}
	samples := length.Milliseconds() * recordRate / 1000
	frame := int64(2 * channels)
	data := samples * frame
	var h [44]byte
	copy(h[0:], "RIFF")
	binary.LittleEndian.PutUint32(h[4:], uint32(36+data)) // #nosec G115 -- below 4 GiB for any call FreeSWITCH could record.
	copy(h[8:], "WAVEfmt ")
	binary.LittleEndian.PutUint32(h[16:], 16)
	binary.LittleEndian.PutUint16(h[20:], 1)
	binary.LittleEndian.PutUint16(h[22:], uint16(channels)) // #nosec G115 -- one or two.
	binary.LittleEndian.PutUint32(h[24:], recordRate)
	binary.LittleEndian.PutUint32(h[28:], uint32(recordRate*frame)) // #nosec G115 -- small.
	binary.LittleEndian.PutUint16(h[32:], uint16(frame))            // #nosec G115 -- small.
	binary.LittleEndian.PutUint16(h[34:], 16)
	copy(h[36:], "data")
	binary.LittleEndian.PutUint32(h[40:], uint32(data)) // #nosec G115 -- as above.
	f, err := os.Create(path)                           // #nosec G304 -- the simulated switch records where its controller says.
	if err != nil {
		return 0, err
	}
	defer func() {
		if closed := f.Close(); err == nil && closed != nil {
			err = closed
		}
	}()
	if _, err := f.Write(h[:]); err != nil {
		return 0, fmt.Errorf("write %s: %w", path, err)
	}
	if err := f.Truncate(44 + data); err != nil {
		return 0, fmt.Errorf("write %s: %w", path, err)
	}
	return 44 + data, nil
}
