package calls

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
	"tandem/models"
)

// cdrFileOf is where a node with a disk of its own writes a channel's CDR.
func (l *live) cdrFileOf(channel string) string {
	return filepath.Join(l.node.ConfDir, "tandem", "cdr", channel+".cdr.json")
}

// reported waits for a channel's CDR.
func (l *live) reported(t *testing.T, channel string) *models.CDR {
	t.Helper()
	var cdr *models.CDR
	require.Eventually(t, func() bool {
		var err error
		cdr, err = l.store.CDR(t.Context(), l.node.ID, channel)
		return err == nil
	}, patience, 20*time.Millisecond, "no CDR of channel %s", channel)
	return cdr
}

// TestCDRsOnADiskOfItsOwn: the files that there are of channels of ours come and go, also at a second try; others stay.
func TestCDRsOnADiskOfItsOwn(t *testing.T) {
	t.Parallel()
	l, p := remoteLive(t, false, 0)
	require.NoError(t, os.MkdirAll(filepath.Dir(l.cdrFileOf("x")), 0o750))
	l.answers("/answer", reply(`[{"action":"hangup"}]`))
	p.mu.Lock()
	p.refused = 1
	p.mu.Unlock()
	var channels []string
	for range 3 {
		l.create(func(r *CreateRequest) { r.To = "+15550000702" })
		call := l.end()
		channels = append(channels, call.ChannelID)
	}
	body := captured(t, "bridged-caller")
	for channel, content := range map[string][]byte{channels[0]: body, channels[1]: []byte(`{"no": "CDR"`), "a-stranger": body} {
		require.NoError(t, os.WriteFile(l.cdrFileOf(channel), append(content, '\n'), 0o600))
	}
	require.Equal(t, 3, l.reported(t, channels[0]).BilledSeconds)
	require.Eventually(t, func() bool {
		_, err := os.Stat(l.cdrFileOf(channels[0]))
		return os.IsNotExist(err)
	}, patience, 10*time.Millisecond)
	for _, left := range []string{channels[1], "a-stranger"} {
		require.FileExists(t, l.cdrFileOf(left))
	}
	for _, none := range channels[1:] {
		_, err := l.store.CDR(t.Context(), l.node.ID, none)
		require.ErrorIs(t, err, models.ErrNotFound)
	}
}

// TestFreeSWITCHCDRsComeBack: a node that posts no CDR and whose disk is not shared ends calls by its CDRs all the same, those too that ended while no
// controller was there.
func TestFreeSWITCHCDRsComeBack(t *testing.T) {
	t.Parallel()
	lab.Require(t)
	l, _ := remoteLive(t, true, 0)
	l.answers("/answer", reply(`[{"action":"pause","seconds":1},{"action":"hangup"}]`))
	l.create(func(r *CreateRequest) { r.To = "+15550000702" })
	call := l.end()
	cdr := l.reported(t, call.ChannelID)
	require.Equal(t, call.BilledSeconds, cdr.BilledSeconds)
	require.Positive(t, cdr.BilledSeconds)
	gone := func(channel string) {
		t.Helper()
		require.Eventually(t, func() bool {
			_, err := os.Stat(l.cdrFileOf(channel))
			return os.IsNotExist(err)
		}, patience, 10*time.Millisecond, "the file was stored, and is still there")
	}
	gone(call.ChannelID)

	// A party leaves while nobody listens, and the call ends.
	l.answers("/answer", reply(`[{"action":"dial","to":"+15550000701"},{"action":"pause","seconds":1}]`))
	created := l.create(func(r *CreateRequest) { r.To = "+15550000702" })
	var leg string
	require.Eventually(t, func() bool {
		legs, err := l.store.LegsOfCall(t.Context(), l.customer.ID, created.ID)
		if err != nil || len(legs) == 0 || legs[0].AnsweredAt == nil || legs[0].JoinedAt == nil {
			return false
		}
		leg = legs[0].ChannelID
		return true
	}, patience, 10*time.Millisecond)
	l.die()
	stored, err := l.store.CallByID(t.Context(), created.ID)
	require.NoError(t, err)
	for _, channel := range []string{leg, stored.ChannelID} {
		require.Eventually(t, func() bool {
			_, err := os.Stat(l.cdrFileOf(channel))
			return err == nil
		}, patience, 20*time.Millisecond, "the switch writes it down")
	}
	began := time.Now()
	l.succeed(t)
	ended := l.end()
	t.Logf("the end is told %s after the next controller began", time.Since(began).Round(time.Millisecond))
	require.Less(t, time.Since(began), l.manager.cfg.CDRWait)
	require.NotEqual(t, ReasonNodeLost, ended.Reason)
	cdr = l.reported(t, ended.ChannelID)
	require.Equal(t, cdr.BilledSeconds, ended.BilledSeconds)
	legs := l.legs(t, ended.ID)
	require.Len(t, legs, 1)
	require.Equal(t, []string{ReasonCalleeHangup, "NORMAL_CLEARING"}, []string{legs[0].Reason, legs[0].Cause})
	gone(leg)
	gone(ended.ChannelID)
}
