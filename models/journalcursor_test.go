package models

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzPosition reads cursors that anybody may have written: each is refused as such, or is the cursor of a position.
func FuzzPosition(f *testing.F) {
	for _, position := range []int64{0, 1, math.MaxInt64} {
		f.Add(encodePosition(journalCursor, position))
		f.Add(encodePosition(deliveryCursor, position))
	}
	for _, cursor := range []string{"", "x", "%", "am91cm5hbCAtMQ", "am91cm5hbCAwMQ", "am91cm5hbCA5MjIzMzcyMDM2ODU0Nzc1ODA4"} {
		f.Add(cursor)
	}
	f.Fuzz(func(t *testing.T, cursor string) {
		position, err := decodePosition(journalCursor, cursor)
		if err != nil {
			require.ErrorIs(t, err, ErrBadCursor)
			return
		}
		require.GreaterOrEqual(t, position, int64(0))
		again, err := decodePosition(journalCursor, encodePosition(journalCursor, position))
		require.NoError(t, err)
		require.Equal(t, position, again)
		_, err = decodePosition(deliveryCursor, cursor)
		require.ErrorIs(t, err, ErrBadCursor, "of another list")
	})
}
