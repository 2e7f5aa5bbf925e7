package lab_test

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// The typed builders alone: the same customer on a node whose own walls are taken down once the controller has accepted it, so that the
// switch would run a command as a stock FreeSWITCH does. A controller that comes later refuses to steer the node.
func TestFreeSWITCHBuildersAlone(t *testing.T) {
	t.Parallel()
	s := startSystem(t, lab.Options{Edit: without("disable_system")})
	s.outboundTrunk(t, s.customer, "acme", lab.CarrierPassword, "REGED")
	s.inboundTrunk(t, "127.0.0.1")
	// In the file, since every reload of the configuration puts the wall up again.
	require.NoError(t, without("app_disable_expand_variables")(s.node.ConfDir))
	probe := s.node.Probe(t)
	for _, command := range []string{"fsctl api_expansion on", "reloadxml"} {
		reply, err := probe.API(t.Context(), command)
		require.NoError(t, err)
		require.Contains(t, reply, "+OK")
	}
	for _, app := range []string{"set", "log", "speak", "playback"} {
		require.FileExists(t, attack(t, s.node, s.carrier, app), "the node must be open to the attack by %s, or nothing is proved", app)
	}
	testHostile(t, s)

	s.stop(syscall.SIGTERM)
	s.start(t)
	out, err := s.command(t, "doctor").CombinedOutput()
	require.Error(t, err, "doctor must refuse a node without walls")
	require.Contains(t, string(out), "app_disable_expand_variables")
	require.Contains(t, string(out), "api-expansion")
	app := s.newApplication(t, s.customer, "not steered", nil, func(question) any { return says("never") })
	status, answer := s.ask(t, customer{key: app.key}, http.MethodPost, "/v1/calls", object{"application_id": app.id, "from": "+15550100000", "to": "+15551000701"})
	require.Equal(t, http.StatusServiceUnavailable, status, answer)
	require.Equal(t, "no_node_available", answer.part("error").text("code"))
}

// testHostile is a customer who writes a command into everything that can be written. No file appears, and the calls that are
// possible at all go on as if nothing had been written.
func testHostile(t *testing.T, s *system) {
	// A short path, since some fields take few characters.
	traps, err := os.MkdirTemp("", "t") //nolint:usetesting // see above
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(traps) })
	count := 0
	// forms are ways to make a switch run something: expansion, nested and escaped, originate variables, a new ESL command, a shell.
	forms := []string{
		"${system(touch %s)}", "$${system(touch %s)}", "\\${system touch %s}", "${bgapi(system touch %s)}", "${expand(${system(touch %s)})}",
		"%%[system]${system(touch %s)}", "{execute_on_answer='system touch %s'}", "[execute_on_answer=system touch %s]",
		"x\n\napi system touch %s\n\n", "x\r\n\r\nbgapi system touch %s\r\n\r\n", "'; touch %s; '", "`touch %s`", "$(touch %s)", "|touch %s", "@@touch %s",
		"<X-PRE-PROCESS cmd=\"exec\" data=\"touch %s\"/>", "<!--#exec cmd=\"touch %s\"-->",
	}
	next := func(form string) string {
		count++
		return fmt.Sprintf(form, filepath.Join(traps, fmt.Sprintf("trap-%03d", count)))
	}
	all := func() []string {
		list := make([]string, len(forms))
		for i, form := range forms {
			list[i] = next(form)
		}
		return list
	}
	who := s.newCustomer(t, "hostile "+next(forms[0]))

	// The fields of the API. What is refused is refused with 400; what is accepted must do no harm on the node.
	accepted, refusals := map[string]int{}, map[string]string{}
	for _, form := range forms {
		for _, field := range []string{"name", "gateway_name", "proxy", "username", "password", "realm", "from_domain"} {
			trunk := object{"name": "t", "proxy": "127.0.0.1:9", "username": "u", "password": "p", "register": false}
			trunk[field] = next(form)
			trunk["gateway_name"] = cmp.Or(trunk.text("gateway_name"), fmt.Sprintf("hostile-%d", count))
			status, answer := s.ask(t, who, http.MethodPost, "/v1/trunks", trunk)
			switch status {
			case http.StatusCreated:
				accepted[field]++
			case http.StatusBadRequest:
				refusals[field] = answer.part("error").text("message")
			default:
				require.Fail(t, "neither taken nor refused", "%s %q: %d %v", field, trunk[field], status, answer)
			}
		}
		for _, body := range []object{
			{"name": "in", "inbound_ip": next(form)},
			{"number_e164": next(form), "route_mode": "reject"},
			{"number_e164": fmt.Sprintf("+1555710%04d", count), "route_mode": "sip", "sip_uri": "sip:" + next(form) + "@127.0.0.1"},
			{"number_e164": fmt.Sprintf("+1555711%04d", count), "route_mode": "sip", "sip_uri": next(form)},
		} {
			path := "/v1/dids"
			if body["inbound_ip"] != nil {
				path = "/v1/trunks"
			}
			status, answer := s.ask(t, who, http.MethodPost, path, body)
			require.Equal(t, http.StatusBadRequest, status, "%v: %v", body, answer)
		}
	}
	t.Logf("fields that take such text: %v; refused otherwise: %q", accepted, refusals)
	require.Positive(t, accepted["password"], "a password may hold anything that can be written to a file, or nothing is proved")
	require.Zero(t, accepted["gateway_name"])

	// The numbers and the metadata of a call.
	app := s.newApplication(t, s.customer, next(forms[0]), map[string][]byte{"tone.wav": tone(200 * time.Millisecond)}, nil)
	for _, text := range all() {
		for _, field := range []string{"from", "to", "application_id"} {
			request := object{"application_id": app.id, "from": "+15550100000", "to": "+15551000701"}
			request[field] = text
			status, answer := s.ask(t, customer{key: app.key}, http.MethodPost, "/v1/calls", request)
			require.Contains(t, []int{http.StatusBadRequest, http.StatusNotFound}, status, "%s: %v", field, answer)
		}
	}
	metadata := object{}
	for i, text := range all() {
		metadata[fmt.Sprintf("m%d", i)] = text
	}

	// The actions of a call, each form on calls that really run: in what is spoken every form, elsewhere the first few. A refused list ends
	// the call with call.error; what runs must not expand.
	type running struct {
		form, place, call string
		app               *application
	}
	var calls []running
	for i, form := range forms {
		lists := map[string][]object{
			"say":    {{"action": "say", "text": next(form)}},
			"gather": {{"action": "gather", "timeout": 1, "prompt": []object{{"action": "say", "text": next(form)}}}},
		}
		if i < 3 {
			lists["play"] = []object{{"action": "play", "url": app.url + "/files/" + next(form)}}
			lists["set"] = []object{{"action": "set", "variables": object{"x": next(form)}}, {"action": "notify", "payload": next(form)}}
			lists["dial"] = []object{{"action": "answer"}, {"action": "dial", "to": next(form), "caller_id": next(form)}}
			lists["sip"] = []object{{"action": "answer"}, {"action": "dial", "to": "sip:" + next(form) + "@127.0.0.1:9", "timeout": 5}}
			lists["dtmf"] = []object{{"action": "dtmf", "digits": next(form)}}
			lists["voice"] = []object{{"action": "say", "text": "hello", "voice": next(form), "language": next(form)}}
			lists["url"] = []object{{"action": "redirect", "url": next(form)}}
		}
		for place, list := range lists {
			runs := s.newApplication(t, s.customer, fmt.Sprintf("hostile %d %s", i, place), nil, func(q question) any {
				if q.kind() == "result" {
					return []object{{"action": "hangup"}}
				}
				return append(list, object{"action": "hangup"})
			})
			call := s.callFrom(t, runs, "+15551000009", object{"metadata": metadata})
			require.Equal(t, map[string]any(metadata), call["metadata"])
			calls = append(calls, running{form, place, call.text("id"), runs})
		}
	}
	ran, refused := 0, 0
	for _, r := range calls {
		end, events := r.app.ended(soon(t), t, s, r.call)
		require.Equal(t, "completed", end.part("call")["status"], "%s %q: %v", r.place, r.form, kinds(events))
		if slices.Contains(kinds(events), "call.error") {
			refused++
		} else {
			ran++
		}
	}
	t.Logf("of %d hostile lists %d ran and %d were refused", len(calls), ran, refused)
	require.Positive(t, ran, "some of them must reach the switch, or nothing is proved")

	// Callers are hostile too: the name and number they show, and the headers they send.
	called := s.newApplication(t, s.customer, "called", nil, func(question) any { return []object{{"action": "reject"}} })
	s.did(t, called, "+15557000009")
	for _, form := range []string{"%%24%%7Bsystem(touch%%20%s)%%7D", "%%24%%24%%7Bsystem(touch%%20%s)%%7D"} {
		status, err := lab.SendRequest(seconds(t, 20), lab.Request{
			NodeSIP: s.node.SIPAddr, To: "+15557000009", From: next(form),
			Headers: []string{"X-Note: " + next(forms[0]), "P-Asserted-Identity: \"" + next(forms[0]) + "\" <sip:" + next(form) + "@x>", "Subject: " + next(forms[0])},
		})
		require.NoError(t, err)
		require.Equal(t, 603, status)
		status, err = lab.SendRequest(seconds(t, 20), lab.Request{NodeSIP: s.node.SIPAddr, To: next(form), Local: "127.0.0.2"})
		require.NoError(t, err)
		require.Equal(t, http.StatusForbidden, status)
	}

	// The switch reads what Tandem wrote for all of this once more.
	reply, err := s.node.Probe(t).API(t.Context(), "reloadxml")
	require.NoError(t, err)
	require.Contains(t, reply, "+OK")
	found, err := os.ReadDir(traps)
	require.NoError(t, err)
	require.Empty(t, found, "a trap was sprung")
}
