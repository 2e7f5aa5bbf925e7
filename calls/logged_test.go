package calls

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models/modelstest"
)

// TestLogFields: a call is found in the log by its ids, over whichever trunk it went at last (docs/metrics.md).
func TestLogFields(t *testing.T) {
	t.Parallel()
	var logs logbook
	s := newScene(t, modelstest.Open(t), func(c *Config) { c.Logger = slog.New(slog.NewJSONHandler(&logs, nil)) })
	s.answers("/answer", reply(`[{"action":"hangup"}]`))
	trunks := s.trunks(2)
	for _, failing := range []map[string][2]string{nil, {trunks[0].GatewayName: busyCarrier}} {
		s.fails(failing)
		s.create()
		call := s.end()
		var line map[string]any
		require.Eventually(t, func() bool {
			for text := range strings.Lines(logs.String()) {
				if strings.Contains(text, `"call ended"`) && strings.Contains(text, call.ID) {
					return json.Unmarshal([]byte(text), &line) == nil
				}
			}
			return false
		}, patience, time.Millisecond)
		require.Equal(t, []any{call.ID, call.CustomerID, call.ApplicationID, *call.TrunkID, call.ChannelID},
			[]any{line["call_id"], line["customer_id"], line["application_id"], line["trunk_id"], line["fs_uuid"]})
	}
}
