package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
	"tandem/webhooks"
)

// sample returns a path and a body with which a route of the table succeeds, made of fresh objects of the customer.
func (b *bench) sample(route route, owner *models.Customer) (string, any) {
	b.t.Helper()
	ctx := b.t.Context()
	app := modelstest.Application(b.t, b.store, owner)
	path, id := route.path, ""
	switch {
	case path == "/v1/rates":
		path += "?number=%2B31201234567"
	case strings.HasPrefix(path, "/v1/applications/:id"):
		id = app.ID
		key := &models.APIKey{CustomerID: owner.ID, ApplicationID: &app.ID, Name: "sample"}
		_, err := b.store.CreateAPIKey(ctx, key, "")
		require.NoError(b.t, err)
		path = strings.ReplaceAll(path, ":kid", key.ID)
	case strings.HasPrefix(path, "/v1/trunks/:id"):
		trunk := &models.Trunk{CustomerID: owner.ID, Name: "sample", Direction: models.Outbound, GatewayName: models.NewID("gw-"), Proxy: "sip.example", IsActive: true}
		require.NoError(b.t, b.store.CreateTrunk(ctx, trunk))
		id = trunk.ID
	case strings.HasPrefix(path, "/v1/dids/"):
		did := &models.DID{CustomerID: owner.ID, ApplicationID: &app.ID, NumberE164: b.freshNumber()}
		require.NoError(b.t, b.store.CreateDID(ctx, did))
		id = did.ID
		path = strings.ReplaceAll(path, ":number", did.NumberE164)
	case strings.HasPrefix(path, "/v1/calls/:id"):
		status := models.CallDialing
		switch route.id {
		case "startCall":
			status = models.CallQueued
		case "retryCall":
			status = models.CallBusy
		}
		call := &models.Call{CustomerID: owner.ID, ApplicationID: app.ID, Direction: models.Outbound, Status: status, From: "+31201234567", To: "+31207654321"}
		require.NoError(b.t, b.store.CreateCall(ctx, call))
		id = call.ID
	case strings.HasPrefix(path, "/v1/webhook-deliveries/:id"):
		id = b.emit(modelstest.Call(b.t, b.store, app), webhooks.KindNotify).ID
		b.deliverAll(models.ResultDead, models.Attempt{Status: 500})
	case strings.HasPrefix(path, "/v1/conferences/:id"):
		conference, member := b.conference(app, fmt.Sprintf("room-%d", modelstest.Serial()))
		id = conference.ID
		path = strings.ReplaceAll(path, ":call_id", member.CallID)
	case strings.HasPrefix(path, "/v1/queues/:name"):
		entry := b.queued(app, fmt.Sprintf("queue-%d", modelstest.Serial()), 0)
		path = strings.ReplaceAll(strings.ReplaceAll(path, ":name", entry.Queue), ":call_id", entry.CallID)
	}
	path = strings.NewReplacer(":id", id, ":month", b.store.Now().Format(monthForm)).Replace(path)
	body, ok := map[string]any{
		"createApplication": object{"name": "sample", "answer_url": "https://a.example/", "webhook_url": "https://a.example/"},
		"updateApplication": object{"name": "changed"},
		"createKey":         object{"name": "sample"},
		"rotateSecret":      object{},
		"createTrunk":       object{"name": "sample", "inbound_ip": b.freshAddress(), "application_id": app.ID},
		"updateTrunk":       object{"name": "changed"},
		"createDID":         object{"number_e164": b.freshNumber(), "application_id": app.ID},
		"updateDID":         object{"provider": "changed", "application_id": app.ID},
		"createCall":        object{"application_id": app.ID, "from": "+31201234567", "to": "+31207654321"},
		"cancelCall":        object{},
		"testWebhook":       object{},
		"simulate":          object{},
		"testTrunk":         object{},
		"directCall":        object{"actions": []object{{"action": "hangup"}}},
		"startCall":         object{},
		"retryCall":         object{},
		"redeliverEvent":    object{},
		"redeliverEvents":   object{"application_id": app.ID},
		"endConference":     object{},
		"muteMember":        object{},
		"unmuteMember":      object{},
		"kickMember":        object{},
		"hangupMember":      object{},
		"leaveQueue":        object{},
		"hangupQueued":      object{},
		"validateActions":   []object{{"action": "hangup"}},
	}[route.id]
	require.Equal(b.t, route.request != nil, ok, "%s needs a sample of its body here, or none", route.id)
	require.NotContains(b.t, path, ":", "%s needs a sample of its path here", route.id)
	return path, body
}

// node is a node of the bench.
func (b *bench) node() string {
	b.t.Helper()
	node := &models.Node{Name: fmt.Sprintf("node-%d", modelstest.Serial()), ESLAddr: "127.0.0.1:1", IsActive: true}
	require.NoError(b.t, b.store.CreateNode(b.t.Context(), node))
	return node.ID
}

// conference is a live conference with a call of an application in it.
func (b *bench) conference(app *models.Application, name string) (*models.Conference, *models.ConferenceMember) {
	b.t.Helper()
	conference, _, err := b.store.OpenConference(b.t.Context(), app.CustomerID, name, b.node())
	require.NoError(b.t, err)
	return conference, b.member(app, conference)
}

// member is another call of an application in a conference.
func (b *bench) member(app *models.Application, conference *models.Conference) *models.ConferenceMember {
	b.t.Helper()
	member := &models.ConferenceMember{ConferenceID: conference.ID, CustomerID: app.CustomerID, CallID: modelstest.Call(b.t, b.store, app).ID, MemberID: fmt.Sprint(modelstest.Serial())}
	_, err := b.store.JoinConference(b.t.Context(), member)
	require.NoError(b.t, err)
	return member
}

// queued is a call of an application that waits in a queue.
func (b *bench) queued(app *models.Application, queue string, priority int) *models.QueueEntry {
	b.t.Helper()
	entry := &models.QueueEntry{CustomerID: app.CustomerID, Queue: queue, CallID: modelstest.Call(b.t, b.store, app).ID, NodeID: b.node(), Priority: priority}
	_, err := b.store.JoinQueue(b.t.Context(), entry)
	require.NoError(b.t, err)
	return entry
}

func (b *bench) freshNumber() string {
	b.fresh++
	return fmt.Sprintf("+3120%07d", b.fresh)
}

func (b *bench) freshAddress() string {
	b.fresh++
	return fmt.Sprintf("198.51.%d.%d", b.fresh/250, 1+b.fresh%250)
}

// snapshot is everything that the bench's customer can see, as text.
func (b *bench) snapshot() string {
	b.t.Helper()
	var all []string
	all = append(all, b.calls.sent()...)
	for _, path := range []string{"/v1/me", "/v1/ledger", "/v1/statements", "/v1/applications", "/v1/trunks", "/v1/dids", "/v1/calls", "/v1/conferences", "/v1/queues", "/v1/events", "/v1/webhook-deliveries"} {
		got := b.get(path).is(200)
		all = append(all, string(got.body))
		if path != "/v1/applications" {
			continue
		}
		for _, item := range got.data() {
			id := item.(object)["id"].(string)
			var keys struct{ Data []map[string]any }
			require.NoError(b.t, json.Unmarshal(b.get("/v1/applications/"+id+"/api-keys").is(200).body, &keys))
			for _, key := range keys.Data {
				all = append(all, fmt.Sprint(key["id"], key["revoked_at"], key["name"]))
			}
			app, err := b.store.Application(b.t.Context(), b.customer.ID, id)
			require.NoError(b.t, err)
			all = append(all, string(app.WebhookSecret))
		}
	}
	return strings.Join(all, "\n")
}

// TestEveryRouteServesItsOwner walks the table with the samples: each succeeds for the customer whose objects they are.
// Without this, the walk with a stranger's key would prove nothing.
func TestEveryRouteServesItsOwner(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		for _, route := range b.server.routes() {
			path, body := b.sample(route, b.customer)
			b.do(exchange{method: route.method, path: path, body: body}).is(route.status)
		}
	})
}

// TestNoRouteServesAStranger walks the table with another customer's key and this customer's objects: what names one is
// answered as if it did not exist, what lists shows none, and nothing has changed afterwards.
func TestNoRouteServesAStranger(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		stranger := modelstest.Customer(b.t, b.store, 5_000_000)
		key := b.newKey(stranger)
		for _, route := range b.server.routes() {
			if route.public {
				continue
			}
			path, body := b.sample(route, b.customer)
			before, dialled := b.snapshot(), b.calls.count()
			got := b.do(exchange{method: route.method, path: path, body: body, key: &key})
			refers := len(route.params()) > 0 && route.id != "getStatement" // a month is everybody's
			if fields, ok := body.(object); ok && fields["application_id"] != nil {
				refers = true
			}
			switch {
			case refers:
				got.refused(codeNotFound, "")
			case strings.HasPrefix(route.id, "list"):
				require.Empty(b.t, got.is(200).data(), route.id)
			default:
				got.is(route.status)
			}
			require.NotContains(b.t, string(got.body), b.customer.ID, route.id)
			require.Equal(b.t, before, b.snapshot(), "%s changed what is not the caller's", route.id)
			require.Equal(b.t, dialled, b.calls.count(), route.id)
			b.discard(stranger, key)
		}
	})
}

// discard deletes the applications that the walk made for the stranger, so that the next list is empty again.
func (b *bench) discard(stranger *models.Customer, key string) {
	b.t.Helper()
	apps, _, err := b.store.ListApplications(b.t.Context(), stranger.ID, models.Page{})
	require.NoError(b.t, err)
	for _, app := range apps {
		b.do(exchange{method: http.MethodDelete, path: "/v1/applications/" + app.ID, key: &key}).is(204)
	}
}

// TestEveryRouteNeedsAKey walks the table without a key and with wrong ones.
func TestEveryRouteNeedsAKey(t *testing.T) {
	t.Parallel()
	b := newBench(t, modelstest.Open(t), Config{})
	for _, route := range b.server.routes() {
		path, body := b.sample(route, b.customer)
		for _, key := range []string{"", "wrong", b.key + "x", b.key[:len(b.key)-1]} {
			got := b.do(exchange{method: route.method, path: path, body: body, key: &key})
			if route.public {
				got.is(route.status)
				continue
			}
			got.refused(codeUnauthorized, "")
			require.Equal(t, "Bearer", got.header.Get("WWW-Authenticate"))
		}
		none := ""
		for _, value := range []string{"Basic " + b.key, b.key, "Bearer", "Bearer  ", "Bearer " + b.key + " x"} {
			if !route.public {
				b.do(exchange{method: route.method, path: path, body: body, key: &none, header: map[string]string{"Authorization": value}}).
					refused(codeUnauthorized, "")
			}
		}
	}
}
