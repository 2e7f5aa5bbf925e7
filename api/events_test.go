package api

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
	"tandem/webhooks"
)

// emit adds an event to a call as the program does.
func (b *bench) emit(call *models.Call, kind string) *models.Event {
	b.t.Helper()
	var event *models.Event
	require.NoError(b.t, b.store.InTx(b.t.Context(), func(tx *models.Store) (err error) {
		event, err = webhooks.Emit(b.t.Context(), tx, call, kind, map[string]any{"payload": 1})
		return err
	}))
	return event
}

func (r response) ids() []string {
	r.t.Helper()
	ids := []string{}
	for _, item := range r.data() {
		ids = append(ids, item.(map[string]any)["id"].(string))
	}
	return ids
}

func TestJournal(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		app, other := modelstest.Application(b.t, b.store, b.customer), modelstest.Application(b.t, b.store, b.customer)
		call, sibling := modelstest.Call(b.t, b.store, app), modelstest.Call(b.t, b.store, other)
		strange := modelstest.Customer(b.t, b.store, 0)
		b.emit(modelstest.Call(b.t, b.store, modelstest.Application(b.t, b.store, strange)), webhooks.KindNotify)

		page := b.get("/v1/events").is(200)
		require.Empty(b.t, page.ids())
		begin := page.str("next_cursor")
		var want []string
		for i := range 6 {
			event := b.emit([]*models.Call{call, sibling}[i%2], []string{webhooks.KindNotify, webhooks.KindDTMF, webhooks.KindLegEnded}[i%3])
			want = append(want, event.ID)
		}
		var got []string
		for cursor := begin; ; {
			page := b.get("/v1/events?limit=2&cursor=" + cursor).is(200)
			got, cursor = append(got, page.ids()...), page.str("next_cursor")
			if page.json()["has_more"] == false {
				begin = cursor
				break
			}
		}
		require.Equal(b.t, want, got)
		first := b.get("/v1/events?limit=1").data()[0].(map[string]any)
		require.Equal(b.t, call.ID, first["call"].(map[string]any)["id"])
		require.Equal(b.t, 1.0, first["sequence"])
		unwanted := b.get("/v1/events?type=call.dtmf").data()[0].(map[string]any)
		require.Nil(b.t, unwanted["sequence"], "kept, not told")

		now := b.get("/v1/events?cursor=now").is(200)
		require.Empty(b.t, now.ids())
		require.Equal(b.t, begin, now.str("next_cursor"))
		late := b.emit(call, webhooks.KindNotify)
		require.Equal(b.t, []string{late.ID}, b.get("/v1/events?cursor="+begin).ids())

		for query, want := range map[string][]string{
			"type=call.notify":                           {want[0], want[3], late.ID},
			"type=call.dtmf,leg.*":                       {want[1], want[2], want[4], want[5]},
			"type=call.*":                                {want[0], want[1], want[3], want[4], late.ID},
			"type=*":                                     append(want[:6:6], late.ID),
			"type=trunk.*":                               {},
			"application_id=" + other.ID:                 {want[1], want[3], want[5]},
			"call_id=" + call.ID + "&type=leg.ended":     {want[2]},
			"call_id=call_none":                          {},
			"created_before=2020-01-31T12:00:00Z":        {},
			"created_after=2020-01-31T12:00:00Z&limit=2": want[:2],
		} {
			require.Equal(b.t, want, b.get("/v1/events?"+query).is(200).ids(), query)
		}
		after := url.QueryEscape(time.Now().Add(time.Hour).Format(time.RFC3339))
		require.Empty(b.t, b.get("/v1/events?created_after="+after).ids())

		key := b.newKey(strange)
		page = b.do(exchange{method: "GET", path: "/v1/events?cursor=" + begin, key: &key}).is(200)
		require.Empty(b.t, page.ids(), "a cursor shows nobody else's events")
		for query, field := range map[string]string{
			"type=call.nothing": "type", "type=": "type", "application_id=a%20b": "application_id", "call_id=%22": "call_id", "cursor=x": "cursor",
			"limit=201": "limit", "created_after=yesterday": "created_after", "created_before=": "created_before", "direction=inbound": "direction",
		} {
			b.get("/v1/events?"+query).refused(codeInvalidRequest, field)
		}
	})
}

// TestJournalOfManyPages pages through more events than a page may hold.
func TestJournalOfManyPages(t *testing.T) {
	t.Parallel()
	b := newBench(t, modelstest.Open(t), Config{})
	call := modelstest.Call(t, b.store, modelstest.Application(t, b.store, b.customer))
	for range maxLimit + 1 {
		b.emit(call, webhooks.KindNotify)
	}
	page := b.get(fmt.Sprintf("/v1/events?limit=%d", maxLimit)).is(200)
	require.Len(t, page.ids(), maxLimit)
	require.Equal(t, true, page.json()["has_more"])
	require.Len(t, b.get("/v1/events?cursor="+page.str("next_cursor")).ids(), 1)
}

// FuzzEventTypes reads lists of kinds that anybody may have written: each is refused by name, or stands for kinds of the catalogue.
func FuzzEventTypes(f *testing.F) {
	for _, value := range []string{"", "*", "call.*", "call.completed,leg.*", "call.completed,", "[", "call.[a-z]*", "leg.ended,leg.ended"} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		kinds, err := eventTypes(&value)
		if err != nil {
			refused := (*Error)(nil)
			require.ErrorAs(t, err, &refused)
			require.Equal(t, "type", refused.Field)
			return
		}
		require.NotEmpty(t, kinds)
		seen := map[string]bool{}
		for _, kind := range kinds {
			_, known := webhooks.Find(kind)
			require.True(t, known, kind)
			require.False(t, seen[kind], kind)
			seen[kind] = true
		}
	})
}
