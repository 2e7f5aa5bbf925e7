package webhooks

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tandem/models"
	"tandem/models/modelstest"
)

// TestKindsAreWhole: each constant is in the catalogue, once, and nothing else is; each example is what the catalogue says.
func TestKindsAreWhole(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "kind.go", nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	var constants []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Kind") || spec.Names[0].Name == "Kinds" {
			return true
		}
		name, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		require.NoError(t, err)
		constants = append(constants, name)
		return true
	})
	var names []string
	for i := range Kinds {
		kind := &Kinds[i]
		names = append(names, kind.Name)
		require.NotEmpty(t, kind.When, kind.Name)
		require.NoError(t, CheckData(kind.Name, kind.Example))
		found, ok := Find(kind.Name)
		require.True(t, ok)
		require.Equal(t, kind, found)
		checkDocumented(t, kind.Name, kind.Fields)
	}
	require.Len(t, constants, 28)
	require.ElementsMatch(t, constants, names)
	quiet := slices.DeleteFunc(slices.Clone(names), func(name string) bool { k, _ := Find(name); return k.Default() })
	require.ElementsMatch(t, models.QuietKinds, quiet, "what is quiet is a kind")
	_, ok := Find("call.exploded")
	require.False(t, ok)
}

func checkDocumented(t *testing.T, kind string, fields []Field) {
	t.Helper()
	seen := map[string]bool{}
	for i := range fields {
		field := &fields[i]
		require.NotEmpty(t, field.Doc, "%s %s", kind, field.Name)
		require.False(t, seen[field.Name], "%s %s", kind, field.Name)
		require.NotEqual(t, "call", field.Name, kind)
		seen[field.Name] = true
		checkDocumented(t, kind, field.Fields)
	}
}

func TestCheckDataRefuses(t *testing.T) {
	t.Parallel()
	trunk := Kinds[slices.IndexFunc(Kinds, func(k Kind) bool { return k.Name == KindTrunkRegistered })].Example
	nested := maps.Clone(trunk)
	nested["trunk"] = map[string]any{"id": "trunk_1", "name": "n"}
	for _, test := range []struct {
		kind string
		data map[string]any
		want string
	}{
		{"call.exploded", nil, "not in the catalogue"},
		{KindRinging, map[string]any{"call": CallObject(&models.Call{})}, ""},
		{KindRinging, map[string]any{"call": 1}, "data.call is integer, not an object"},
		{KindRinging, map[string]any{"x": 1}, "data.x is not in the catalogue"},
		{KindTrunkRegistered, map[string]any{"call": nil}, "data."},
		{KindTrunkRegistered, nested, "data.trunk.gateway_name is missing"},
		{KindNotify, map[string]any{}, "data.payload is missing"},
		{KindNotify, map[string]any{"payload": nil}, ""},
		{KindNotify, map[string]any{"payload": []any{1}}, ""},
		{KindNotify, map[string]any{"payload": func() {}}, "unsupported type"},
		{KindDTMF, map[string]any{"digit": 5, "duration_ms": 100}, "data.digit is integer, not string"},
		{KindDTMF, map[string]any{"digit": "5", "duration_ms": 100.5}, "data.duration_ms is number, not integer"},
		{KindDTMF, map[string]any{"digit": "5", "duration_ms": nil}, "data.duration_ms is null, not integer"},
		{KindRecordingAvailable, map[string]any{"recording_id": "rec_1", "format": "wav", "channels": 1, "seconds": 3}, ""},
		{KindRecordingAvailable, map[string]any{"recording_id": "rec_1", "format": "ogg", "channels": 1, "seconds": 3}, "data.format is ogg, not one of [wav mp3]"},
		{KindRecordingStarted, map[string]any{"recording_id": "rec_1", "format": "wav", "channels": 3}, "data.channels is 3"},
		{KindActionCompleted, map[string]any{"index": 0, "action": "say", "result": []any{}}, "data.result is array, not object"},
	} {
		err := CheckData(test.kind, test.data)
		if test.want == "" {
			require.NoError(t, err, "%s %v", test.kind, test.data)
			continue
		}
		require.ErrorContains(t, err, test.want, "%s %v", test.kind, test.data)
	}
}

// TestCheckDataModel spoils examples: without a field that is always there, with one more, with one of another type.
func TestCheckDataModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		kind := rapid.SampledFrom(Kinds).Draw(rt, "kind")
		data := maps.Clone(kind.Example)
		require.NoError(rt, CheckData(kind.Name, data))
		if len(kind.Fields) == 0 || rapid.Bool().Draw(rt, "one more") {
			data["zz_"+rapid.StringMatching("[a-z]{1,8}").Draw(rt, "name")] = 1
			require.Error(rt, CheckData(kind.Name, data))
			return
		}
		field := rapid.SampledFrom(kind.Fields).Draw(rt, "field")
		if rapid.Bool().Draw(rt, "less") {
			delete(data, field.Name)
			require.Equal(rt, field.Present == "", CheckData(kind.Name, data) != nil)
			return
		}
		data[field.Name] = []any{}
		require.Equal(rt, field.Type != TypeAny, CheckData(kind.Name, data) != nil)
	})
}

func TestParseKinds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ kinds, want []string }{
		{nil, nil}, {[]string{}, []string{}}, {[]string{"*"}, []string{"*"}},
		{[]string{"call.*", "leg.ended", "call.*", "webhook.test"}, []string{"call.*", "leg.ended", "webhook.test"}},
		{Choices(), Choices()},
	} {
		got, err := ParseKinds(test.kinds)
		require.NoError(t, err)
		require.Equal(t, test.want, got)
	}
	for _, bad := range []string{"", "call", "call.", "Call.*", "call.exploded", "**", "call.*.*", "c*", " *", "call.created\n", strings.Repeat("x", 1000)} {
		_, err := ParseKinds([]string{"call.*", bad})
		var refused *KindsError
		require.ErrorAs(t, err, &refused, bad)
		require.Equal(t, []any{1, bad}, []any{refused.Index, refused.Kind})
		require.Equal(t, Choices(), refused.Allowed)
		require.Less(t, len(err.Error()), 1200)
		require.ErrorContains(t, err, "allowed are *, call.*, leg.*, recording.*, queue.*, conference.*, trunk.*, balance.*, webhook.*, call.created,")
	}
	_, err := ParseKinds(make([]string, maxKinds+1))
	var refused *KindsError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, -1, refused.Index)
	require.LessOrEqual(t, len(Choices()), maxKinds)
}

// FuzzParseKinds: whatever is taken is a choice, and tells the application of something.
func FuzzParseKinds(f *testing.F) {
	for _, seed := range []string{"", "*", "call.*", "call.created,leg.*", "call.*,call.*", "webhook.test", "x", "call.*x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		kinds, err := ParseKinds(strings.Split(text, ","))
		if err != nil {
			var refused *KindsError
			require.ErrorAs(t, err, &refused)
			return
		}
		for _, chosen := range kinds {
			require.Contains(t, Choices(), chosen)
			require.True(t, slices.ContainsFunc(Kinds, func(k Kind) bool { return models.Wanted([]string{chosen}, k.Name) }), chosen)
		}
	})
}

// TestEveryKindIsDelivered emits each kind with its example and holds what arrives to the catalogue, the signature included.
func TestEveryKindIsDelivered(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		r := newRig(t, s, clock)
		rec := newReceiver(t, nil)
		app := r.application(rec.URL)
		r.choose(app, "*")
		hook, err := standardwebhooks.NewWebhookRaw([]byte(app.WebhookSecret))
		require.NoError(t, err)
		r.worker()
		for i := range Kinds {
			kind := &Kinds[i]
			call, trunk := modelstest.Call(t, s, app), modelstest.OutboundTrunk(t, s, r.customer)
			require.NoError(t, s.InTx(t.Context(), func(tx *models.Store) error {
				switch {
				case kind.OfCall():
					_, err = Emit(t.Context(), tx, call, kind.Name, kind.Example)
				case kind.Name == KindTest:
					_, err = EmitTest(t.Context(), tx, app)
				case kind.Name == KindBalanceLow:
					low := *r.customer
					low.LowBalanceMicros = new(int64)
					err = EmitBalance(t.Context(), tx, &low, models.BalanceLow)
				case kind.Name == KindBalanceExhausted:
					err = EmitBalance(t.Context(), tx, r.customer, models.BalanceExhausted)
				default:
					_, err = EmitTrunk(t.Context(), tx, trunk, kind.Name, kind.Example)
				}
				return err
			}))
			req := r.arrived(rec)
			require.Equal(t, models.ResultDelivered, r.next().Result)
			require.NoError(t, hook.VerifyIgnoringTimestamp([]byte(req.body), req.header))
			var got body
			require.NoError(t, json.Unmarshal([]byte(req.body), &got))
			sequence := int64(1)
			if kind.Name == KindBalanceExhausted {
				sequence = 2 // of the same subject as the kind before it
			}
			require.Equal(t, []any{kind.Name, kind.Name, req.id(), sequence}, []any{got.Type, got.Event, got.ID, *got.Sequence})
			require.NotNil(t, got.Variables)
			require.Equal(t, kind.OfCall(), got.Call != nil)
			require.Equal(t, kind.OfCall(), got.Data["call"] != nil)
			require.NoError(t, CheckData(kind.Name, got.Data))
		}
	})
}

// choose has an application want these kinds from now on.
func (r *rig) choose(app *models.Application, kinds ...string) {
	r.t.Helper()
	parsed, err := ParseKinds(kinds)
	require.NoError(r.t, err)
	require.NoError(r.t, r.store.InTx(r.t.Context(), func(tx *models.Store) error {
		row, err := tx.EditApplication(r.t.Context(), app.CustomerID, app.ID)
		if err != nil {
			return err
		}
		row.EventKinds = parsed
		return tx.UpdateApplication(r.t.Context(), row)
	}))
}

// TestChosenKinds: the sequence counts what is told, without a gap for what is not wanted, and a test comes whatever is wanted.
func TestChosenKinds(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		r := newRig(t, s, clock)
		failing := true
		rec := newReceiver(t, func(w http.ResponseWriter, req request) {
			if _, seq := sequence(t, req.body); seq == 2 && failing {
				failing = false
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		app := r.application(rec.URL)
		w := r.worker()
		call := modelstest.Call(t, s, app)
		emit := func(kinds ...string) {
			t.Helper()
			for _, kind := range kinds {
				_, err := Emit(t.Context(), s, call, kind, nil)
				require.NoError(t, err)
			}
		}
		expect := func(kind string, seq int64) {
			t.Helper()
			a := r.next()
			require.Equal(t, []any{models.ResultDelivered, kind, seq}, []any{a.Result, a.Type, a.Sequence})
		}
		emit(KindCreated)
		expect(KindCreated, 1)
		emit(KindDTMF, KindRinging, KindActionCompleted, KindAnswered)
		require.Equal(t, models.ResultRetry, r.next().Result, "the second waits for its retry, and those behind it")
		r.choose(app, "leg.*", "call.completed")
		emit(KindNotify, KindLegEnded, KindCompleted)
		r.advance(DefaultSchedule()[0], w)
		expect(KindRinging, 2)
		expect(KindAnswered, 3)
		expect(KindLegEnded, 4)
		expect(KindCompleted, 5)

		r.choose(app, []string{}...) // nothing, which is not the default
		require.NoError(t, s.InTx(t.Context(), func(tx *models.Store) error {
			if _, err := Emit(t.Context(), tx, call, KindNotify, nil); err != nil {
				return err
			}
			_, err := EmitTest(t.Context(), tx, app)
			return err
		}))
		a := r.next()
		require.Equal(t, []any{models.ResultDelivered, KindTest, int64(1), app.ID}, []any{a.Result, a.Type, a.Sequence, a.SubjectID})
		r.choose(app, "*")
		emit(KindNotify)
		expect(KindNotify, 6)
		events, err := s.CallEvents(t.Context(), call.CustomerID, call.ID)
		require.NoError(t, err)
		require.Len(t, events, 10, "the journal has all")
		var told []string
		for i, event := range events {
			require.Equal(t, int64(i+1), event.Sequence)
			var body struct{ Sequence json.RawMessage }
			require.NoError(t, json.Unmarshal(event.Body, &body))
			told = append(told, string(body.Sequence))
		}
		require.Equal(t, []string{"1", "null", "2", "null", "3", "null", "4", "5", "null", "6"}, told)
		require.Len(t, rec.seen(), 8)
	})
}

// TestEmitTrunkTellsEachApplication: those of the trunk's customer that have a webhook_url and want to know.
func TestEmitTrunkTellsEachApplication(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		r := newRig(t, s, clock)
		rec := newReceiver(t, nil)
		first, second, deaf := r.application(rec.URL), r.application(rec.URL), r.application(rec.URL)
		r.application("")
		modelstest.Application(t, s, modelstest.Customer(t, s, 0))
		r.choose(deaf, "call.*")
		deleted := r.application(rec.URL)
		require.NoError(t, s.DeleteApplication(t.Context(), deleted.CustomerID, deleted.ID))
		trunk := modelstest.OutboundTrunk(t, s, r.customer)
		data := map[string]any{"node_id": "node_1", "state": "REGED", "status": "UP"}
		for range 2 {
			events, err := EmitTrunk(t.Context(), s, trunk, KindTrunkRegistered, data)
			require.NoError(t, err)
			require.Len(t, events, 3, "the journal has what is not wanted as well")
		}
		require.NotContains(t, data, "trunk", "the caller's data is not changed")
		r.worker()
		got := map[string][]int64{}
		for range 4 {
			a := r.next()
			require.Equal(t, []any{models.ResultDelivered, trunk.ID}, []any{a.Result, a.SubjectID})
			got[a.ApplicationID] = append(got[a.ApplicationID], a.Sequence)
		}
		require.Equal(t, map[string][]int64{first.ID: {1, 2}, second.ID: {1, 2}}, got)
		require.NotContains(t, rec.seen()[0].body, string(trunk.Password))
		_, err := EmitTest(t.Context(), s, deleted)
		require.ErrorIs(t, err, models.ErrNotFound)
	})
}
