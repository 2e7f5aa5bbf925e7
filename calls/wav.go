package calls

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// errNotWAV refuses what is no sound file that the switch can play.
var errNotWAV = errors.New("is not a WAV file")

// wavInfo is what the header of a WAV file says.
type wavInfo struct {
	seconds float64
	// whole says that the header tells the length that the file has.
	whole bool
}

// WAV formats that libsndfile, and with it FreeSWITCH, plays (RFC 2361 and mmreg.h).
var wavFormats = map[uint16]bool{1: true, 3: true, 6: true, 7: true, 0x11: true, 0x31: true, 0xfffe: true}

// trailerMost is how much may follow the sound of a finished file: a list of tags. More is sound that its header does not know of.
const trailerMost = 4096

// readWAV checks that a file is a RIFF WAVE with a format and data, and returns its length.
func readWAV(f io.ReadSeeker) (wavInfo, error) {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return wavInfo{}, fmt.Errorf("read the file: %w", err)
	}
	var head [12]byte
	if err := readAt(f, 0, head[:]); err != nil || string(head[:4]) != "RIFF" || string(head[8:]) != "WAVE" {
		return wavInfo{}, errNotWAV
	}
	var rate uint32
	for at := int64(12); at+8 <= end; {
		var chunk [8]byte
		if err := readAt(f, at, chunk[:]); err != nil {
			return wavInfo{}, errNotWAV
		}
		size := int64(binary.LittleEndian.Uint32(chunk[4:]))
		switch string(chunk[:4]) {
		case "fmt ":
			var format [16]byte
			if err := readAt(f, at+8, format[:]); err != nil || size < 16 || !wavFormats[binary.LittleEndian.Uint16(format[:])] {
				return wavInfo{}, errNotWAV
			}
			rate = binary.LittleEndian.Uint32(format[8:])
		case "data":
			if rate == 0 {
				return wavInfo{}, errNotWAV
			}
			// A recorder that was stopped hard leaves a size it never corrected.
			left := end - at - 8
			return wavInfo{seconds: float64(min(size, left)) / float64(rate), whole: size <= left && left-size < trailerMost}, nil
		}
		at += 8 + size + size&1
	}
	return wavInfo{}, errNotWAV
}

func readAt(f io.ReadSeeker, at int64, into []byte) error {
	if _, err := f.Seek(at, io.SeekStart); err != nil {
		return err
	}
	_, err := io.ReadFull(f, into)
	return err
}
