package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"tandem/models"
	"tandem/webhooks"
)

// example is the customer's side of `tandem dev`: a small application that answers calls, a receiver that checks and
// prints webhooks, and a door to let a simulated call come in. It lives below /dev/ on the API's own address.
type example struct {
	store *models.Store
	// application is whose webhooks come that are of no call, such as those of trunks.
	application string
	callIn      func(ctx context.Context, call incomingCall) (string, error)
	// unregister has the simulated switch's gateway lose its registration for some seconds.
	unregister func(ctx context.Context, gateway string, seconds float64) error
	now        func() time.Time

	mu  sync.Mutex // one line is printed at a time
	out io.Writer
}

// incomingCall is the body of POST /dev/call-in.
type incomingCall struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Digits string `json:"digits"`
	// NoSound has no sound come from the caller. MediaTimeout is after how many seconds without any the switch ends the call, 0 never.
	NoSound      bool    `json:"no_sound"`
	MediaTimeout float64 `json:"media_timeout"`
}

func (e *example) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /dev/answer", e.answer)
	mux.HandleFunc("POST /dev/webhooks", e.webhook)
	mux.HandleFunc("POST /dev/call-in", e.letIn)
	mux.HandleFunc("GET /dev/call-in/{channel}", e.arrived)
	mux.HandleFunc("POST /dev/unregister", e.loseRegistration)
	return mux
}

// exampleBodyLimit bounds what the example reads; webhooks are at most 64 KiB.
const exampleBodyLimit = 128 << 10

// answer is an answer_url: greet, ask for four digits, read them back, hang up.
func (e *example) answer(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Type string `json:"type"`
		Call struct {
			ID string `json:"id"`
		} `json:"call"`
		Result struct {
			Digits  string `json:"digits"`
			Outcome string `json:"outcome"`
		} `json:"result"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, exampleBodyLimit)).Decode(&request); err != nil {
		http.Error(w, "the body is not the JSON of an answer_url request", http.StatusBadRequest)
		return
	}
	type object = map[string]any
	actions := []object{
		{"action": "say", "text": "Welcome to Tandem."},
		{"action": "gather", "num_digits": 4, "timeout": 10, "prompt": []object{{"action": "say", "text": "Please type four digits."}}},
	}
	told, said := request.Type, "say, gather"
	if request.Type == "result" {
		told, said = "gather: "+request.Result.Outcome+" "+request.Result.Digits, "say, hangup"
		reply := "We heard no digits. Goodbye."
		if request.Result.Digits != "" {
			reply = fmt.Sprintf("You typed %s. Goodbye.", spell(request.Result.Digits))
		}
		actions = []object{{"action": "say", "text": reply}, {"action": "hangup"}}
	}
	e.print("answer_url  %-16s %s  we say: %s", strings.TrimSpace(told), request.Call.ID, said)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(actions)
}

// print writes one line with the time.
func (e *example) print(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, _ = fmt.Fprintf(e.out, e.now().Format("15:04:05.000")+"  "+format+"\n", args...)
}

// spell puts a space between digits, so that a speech engine reads them one by one.
func spell(digits string) string {
	spelled := make([]rune, 0, 2*len(digits))
	for i, d := range digits {
		if i > 0 {
			spelled = append(spelled, ' ')
		}
		spelled = append(spelled, d)
	}
	return string(spelled)
}

// webhook receives an event, checks its signature the way a customer would, and prints one line.
func (e *example) webhook(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, exampleBodyLimit))
	if err != nil {
		http.Error(w, "cannot read the body", http.StatusBadRequest)
		return
	}
	var event struct {
		Type     string `json:"type"`
		Sequence int64  `json:"sequence"`
		Call     struct {
			ID            string `json:"id"`
			ApplicationID string `json:"application_id"`
			Status        string `json:"status"`
		} `json:"call"`
		Data map[string]any `json:"data"`
	}
	if err := json.Unmarshal(body, &event); err != nil {
		http.Error(w, "the body is not the JSON of an event", http.StatusBadRequest)
		return
	}
	verdict, status := "signature ok", http.StatusNoContent
	if err := e.verify(r, cmp.Or(event.Call.ApplicationID, e.application), body); err != nil {
		verdict, status = "SIGNATURE BAD: "+err.Error(), http.StatusUnauthorized
	}
	subject, detail := event.Call.ID, ""
	if trunk, ok := event.Data["trunk"].(map[string]any); ok && subject == "" {
		subject = fmt.Sprint(trunk["id"])
	}
	if reason, ok := event.Data["reason"].(string); ok {
		detail = "  reason=" + reason
	}
	e.print("webhook %2d  %-16s %s  %-11s  %s%s", event.Sequence, event.Type, subject, event.Call.Status, verdict, detail)
	w.WriteHeader(status)
}

func (e *example) verify(r *http.Request, applicationID string, body []byte) error {
	application, err := e.store.ApplicationByID(r.Context(), applicationID)
	if err != nil {
		return fmt.Errorf("application %s: %w", applicationID, err)
	}
	return webhooks.Verify(string(application.WebhookSecret), r.Header, body, e.now())
}

// letIn makes the simulated switch receive a call.
func (e *example) letIn(w http.ResponseWriter, r *http.Request) {
	call := incomingCall{From: "+12025550123", To: devDID}
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, exampleBodyLimit))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&call); err != nil && !errors.Is(err, io.EOF) {
		writeExampleJSON(w, http.StatusBadRequest, map[string]string{"error": "the body must be JSON with from, to, digits, no_sound and media_timeout: " + err.Error()})
		return
	}
	channel, err := e.callIn(r.Context(), call)
	if err != nil {
		writeExampleJSON(w, http.StatusBadGateway, map[string]string{"error": err.Error()})
		return
	}
	writeExampleJSON(w, http.StatusAccepted, map[string]string{"channel": channel})
}

func writeExampleJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
