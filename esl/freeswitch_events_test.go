package esl

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// plainEvents are the default events without those that only gathering, rooms and machine detection need.
func plainEvents() []string {
	return slices.DeleteFunc(DefaultEvents(), func(name string) bool {
		return slices.Contains([]string{"DTMF", "RECORD_STOP", "conference::maintenance", "avmd::beep"}, name)
	})
}

// parksEverybody is a dialplan that leaves every caller to its controller.
func parksEverybody(confDir string) error {
	text := `<context name="public"><extension name="all"><condition><action application="park"/></condition></extension></context>` + "\n"
	return os.WriteFile(filepath.Join(confDir, "tandem", "dialplan", "all.xml"), []byte(text), 0o600)
}

// A call that is answered, hears something and is hung up costs the same events with and without the kinds that only other calls raise.
func TestFreeSWITCHPlainCallPaysForNoOtherKinds(t *testing.T) {
	t.Parallel()
	l := startLive(t, lab.Options{Edit: parksEverybody})
	plain := newJournal()
	n, err := NewNode(Config{Addr: l.node.ESLAddr, Password: l.node.Password, Handler: plain, Events: plainEvents()})
	require.NoError(t, err)
	require.NoError(t, n.Start(t.Context()))
	t.Cleanup(n.Stop)
	require.NoError(t, n.WaitUp(deadline(t, 20*time.Second)))

	leg, err := l.carrier.Call(t.Context(), lab.Caller{From: "+15551111111", To: "+15550000003", NodeSIP: l.node.SIPAddr})
	require.NoError(t, err)
	parked, err := l.heard.await(deadline(t, 20*time.Second), func(e *Event) bool { return e.Name() == "CHANNEL_PARK" })
	require.NoError(t, err)
	channel := parked.ChannelID()
	l.run(channel, Answer(), nil)
	app, err := Tone("%(300,0,440)", 1)
	l.run(channel, app, err)
	require.NoError(t, l.Kill(t.Context(), channel, "NORMAL_CLEARING"))
	_, err = leg.Ended(deadline(t, 20*time.Second))
	require.NoError(t, err)

	cost := func(j *journal) (names []string, size int) {
		_, err := j.await(deadline(t, 20*time.Second), func(e *Event) bool { return e.Name() == "CHANNEL_HANGUP_COMPLETE" })
		require.NoError(t, err)
		j.mu.Lock()
		defer j.mu.Unlock()
		for _, e := range j.events {
			if e.ChannelID() == channel {
				names, size = append(names, e.Name()), size+int(e.size())
			}
		}
		return names, size
	}
	names, size := cost(l.heard)
	without, sizeWithout := cost(plain)
	t.Logf("%d events of %d bytes, %d of %d without the other kinds: %v", len(names), size, len(without), sizeWithout, names)
	require.Equal(t, without, names)
	require.Equal(t, []string{"CHANNEL_PARK", "CHANNEL_ANSWER", "CHANNEL_EXECUTE_COMPLETE", "CHANNEL_EXECUTE_COMPLETE", "CHANNEL_HANGUP_COMPLETE"}, names)
	require.InDelta(t, sizeWithout, size, 100)
}
