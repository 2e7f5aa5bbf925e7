package webhooks

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
)

var update = flag.Bool("update", false, "write the golden event bodies")

func pointer[T any](v T) *T { return &v }

func TestMarshalBodyGolden(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 3, 4, 5, 6, 7, 123_456_000, time.FixedZone("CET", 3600))
	live := models.Call{
		ID: "call_1", CustomerID: "cust_1", ApplicationID: "app_1", Direction: "inbound", Status: models.CallRinging,
		From: "+14155550100", To: "+442071838750", DIDID: pointer("did_1"), CreatedAt: created, UpdatedAt: created,
		RingingAt: &created, PricePerMinuteMicros: 4000, TimeoutSeconds: 60,
	}
	ended := live
	ended.Direction, ended.Status, ended.DIDID, ended.TrunkID = "outbound", models.CallCompleted, nil, pointer("trunk_1")
	ended.Record = true
	ended.Metadata = map[string]string{"order": "5 < 6 & 7"}
	ended.Variables = map[string]string{"lang": "de"}
	ended.AnsweredAt, ended.EndedAt = pointer(created.Add(2*time.Second)), pointer(created.Add(65*time.Second))
	ended.Reason, ended.HangupSource, ended.Cause, ended.Q850, ended.SIPCode = "completed", "actions", "NORMAL_CLEARING", 16, 200
	ended.BilledSeconds, ended.CostMicros = 120, 8000

	for _, tc := range []struct {
		name, kind string
		call       models.Call
		data       map[string]any
	}{
		{"ringing", KindRinging, live, nil},
		{"completed", KindCompleted, ended, map[string]any{"reason": "completed", "talk_seconds": 63.0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := marshalBody(&tc.call, tc.kind, tc.data, 7, "evt_1", created)
			require.NoError(t, err)
			require.NotContains(t, tc.data, "call", "the caller's data is not changed")

			path := filepath.Join("testdata", "events", tc.name+".json")
			if *update {
				var pretty bytes.Buffer
				require.NoError(t, json.Indent(&pretty, got, "", "  "))
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
				require.NoError(t, os.WriteFile(path, append(pretty.Bytes(), '\n'), 0o600))
			}
			golden, err := os.ReadFile(path)
			require.NoError(t, err)
			var want bytes.Buffer
			require.NoError(t, json.Compact(&want, golden))
			require.Equal(t, want.String(), string(got))
		})
	}
}

// TestBodyHasBothShapes reads the completed event as a receiver of either shape of the contract would.
func TestBodyHasBothShapes(t *testing.T) {
	t.Parallel()
	type call struct {
		ID            string `json:"id"`
		ApplicationID string `json:"application_id"`
		Status        string `json:"status"`
		Direction     string `json:"direction"`
		From          string `json:"from"`
		To            string `json:"to"`
	}
	golden, err := os.ReadFile(filepath.Join("testdata", "events", "completed.json"))
	require.NoError(t, err)
	want := call{"call_1", "app_1", "completed", "outbound", "+14155550100", "+442071838750"}

	var a struct {
		Event     string         `json:"event"`
		CreatedAt string         `json:"created_at"`
		Call      call           `json:"call"`
		Variables map[string]any `json:"variables"`
		Data      map[string]any `json:"data"`
	}
	require.NoError(t, json.Unmarshal(golden, &a))
	require.Equal(t, "call.completed", a.Event)
	require.Equal(t, want, a.Call)
	require.NotEmpty(t, a.CreatedAt)
	require.NotNil(t, a.Variables)
	require.NotNil(t, a.Data)

	var b struct {
		ID        string `json:"id"`
		Type      string `json:"type"`
		CreatedAt string `json:"created_at"`
		Sequence  int64  `json:"sequence"`
		Data      struct {
			Call   call   `json:"call"`
			Reason string `json:"reason"`
		} `json:"data"`
	}
	require.NoError(t, json.Unmarshal(golden, &b))
	require.Equal(t, "evt_1", b.ID)
	require.Equal(t, "call.completed", b.Type)
	require.Equal(t, "2026-03-04T04:06:07.123Z", b.CreatedAt)
	require.EqualValues(t, 7, b.Sequence)
	require.Equal(t, want, b.Data.Call)
	require.Equal(t, "completed", b.Data.Reason)
}
