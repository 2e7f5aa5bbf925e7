package calls

import (
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// TestQuestionsAreKept: every request to the application is stored with the call, those that failed too.
func TestQuestionsAreKept(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		s.answers("/answer", status(503), reply(`[{"action":"pause","seconds":0.1,"result_url":"/next"}]`))
		s.answers("/next", reply(`{"actions": []}`))
		s.create()
		call := s.end()
		requests, err := store.AnswerRequestsOfCall(t.Context(), s.customer.ID, call.ID)
		require.NoError(t, err)
		asks := s.requests()
		require.Len(t, requests, 3)
		for i, want := range []models.AnswerRequest{
			{RequestID: asks[0].RequestID, Kind: "answer", URL: s.app.AnswerURL, Attempt: 1, Status: 503, Error: "only 2xx is an answer", Actions: []string{}},
			{RequestID: asks[0].RequestID, Kind: "answer", URL: s.app.AnswerURL, Attempt: 2, Status: 200, Actions: []string{"pause"}},
			{RequestID: asks[2].RequestID, Kind: "result", URL: s.server.URL + "/next", Attempt: 1, Status: 200, Actions: []string{}},
		} {
			got := requests[i]
			require.Positive(t, got.LatencyMS)
			require.False(t, got.StartedAt.IsZero())
			want.ID, want.CallID, want.CustomerID, want.StartedAt, want.LatencyMS = got.ID, call.ID, s.customer.ID, got.StartedAt, got.LatencyMS
			require.Equal(t, want, got, i)
		}
	})
}

func FuzzCutText(f *testing.F) {
	f.Add("no answer in time: ümlaut", 12)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		if limit < 0 || limit > 1024 || !utf8.ValidString(text) {
			return
		}
		cut := cutText(text, limit)
		require.True(t, utf8.ValidString(cut))
		require.True(t, strings.HasPrefix(text, strings.TrimSuffix(cut, "…")))
		require.LessOrEqual(t, len(cut), limit+len("…"))
	})
}

// TestRequestIsGivenUp: an application that is still thinking when the caller hangs up has done nothing wrong.
func TestRequestIsGivenUp(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		asking, over := make(chan struct{}), make(chan struct{})
		s.answers("/answer", func(http.ResponseWriter, asked) {
			close(asking)
			<-over
		})
		channel := s.callIn()
		<-asking
		s.sw.hangup(channel, "ORIGINATOR_CANCEL", "variable_sip_hangup_disposition", "recv_cancel")
		call := s.end()
		close(over)
		require.Equal(t, ReasonCallerHangup, call.Reason)
		made, err := store.AnswerRequestsOfCall(t.Context(), s.customer.ID, call.ID)
		require.NoError(t, err)
		require.Len(t, made, 1)
		require.Equal(t, models.RequestGivenUp, made[0].Error)
		require.False(t, made[0].Failed())
		require.Empty(t, s.dataOf(call.ID, "call.error"))
	})
}

// TestHostileReplies: whatever an application says is kept as text that any database takes, and the call ends as any other.
func TestHostileReplies(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		for _, hostile := range []string{`[{"action":"say","te\u0000xt":"a"}]`, "[{\"action\":\"say\",\"te\xffxt\":\"a\"}]", `{"acti\u0000ons":[]}`, "[\x00"} {
			s.answers("/answer", reply(hostile))
			s.callIn()
			call := s.end()
			require.Equal(t, ReasonAnswerURLFailed, call.Reason, hostile)
			asked, err := store.AnswerRequestsOfCall(t.Context(), s.customer.ID, call.ID)
			require.NoError(t, err)
			require.Len(t, asked, 1)
			require.NotEmpty(t, asked[0].Error)
			require.True(t, utf8.ValidString(asked[0].Error) && !strings.ContainsRune(asked[0].Error, 0), "%q", asked[0].Error)
		}
	})
}
