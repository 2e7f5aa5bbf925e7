package calls

import (
	"strings"
	"time"
	"unicode/utf8"

	"tandem/actions"
	"tandem/models"
)

// maxQuestionError is how much is kept of what was wrong with an answer, in bytes.
const maxQuestionError = 512

// request is what is kept of a request to the application, for the story of the call. It is stored with the call's next change, so
// it costs no transaction; what a controller has not stored when it dies is lost.
func (a *asker) request(id, target string, attempt int, begun time.Time, took time.Duration, reply *actions.Reply, failure *replyError) models.AnswerRequest {
	request := models.AnswerRequest{
		CallID: a.call.ID, CustomerID: a.call.CustomerID, RequestID: id, Kind: a.question.kind, URL: target, Attempt: attempt,
		StartedAt: begun, LatencyMS: float64(took.Microseconds()) / 1000, Status: a.status,
	}
	if failure != nil {
		request.Error = cutText(storable(failure.Err.Error()), maxQuestionError)
		return request
	}
	for _, action := range reply.Actions {
		request.Actions = append(request.Actions, action.Verb())
	}
	return request
}

// storable is a text with something of the other side's in it as every database takes it: PostgreSQL refuses a zero and what is no UTF-8, and with
// them the change of the call that the text is stored with, its end above all.
func storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// cutText shortens a text to so many bytes, between its characters.
func cutText(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit] + "…"
}
