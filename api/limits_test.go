package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// TestApplicationLimits: a customer sets and sees the limits of its applications and trunks.
func TestApplicationLimits(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		b := newBench(t, store, Config{})
		shown := func(o map[string]any) object {
			return object{
				"max_calls": o["max_calls"], "max_calls_per_second": o["max_calls_per_second"], "max_calls_per_day": o["max_calls_per_day"],
				"max_spend_per_day_micros": o["max_spend_per_day_micros"], "max_call_seconds": o["max_call_seconds"],
				"allowed_destinations": o["allowed_destinations"], "denied_destinations": o["denied_destinations"],
				"allowed_destination_types": o["allowed_destination_types"],
			}
		}
		none := object{
			"max_calls": nil, "max_calls_per_second": nil, "max_calls_per_day": nil, "max_spend_per_day_micros": nil, "max_call_seconds": nil,
			"allowed_destinations": nil, "denied_destinations": []any{}, "allowed_destination_types": nil,
		}
		made := b.post("/v1/applications", object{"name": "Plain", "answer_url": "https://example.com/answer"}).is(201).json()
		require.Equal(t, none, shown(made))
		path := "/v1/applications/" + made["id"].(string)
		all := object{
			"max_calls": 10.0, "max_calls_per_second": 2.0, "max_calls_per_day": 100.0, "max_spend_per_day_micros": 9e12, "max_call_seconds": 60.0,
			"allowed_destinations": []any{"DE", "+44"}, "denied_destinations": []any{"+4490"},
			"allowed_destination_types": []any{"satellite"},
		}
		set := object{}
		for field, value := range all {
			set[field] = value
		}
		set["max_spend_per_day_micros"] = int64(9e12)
		require.Equal(t, all, shown(b.patch(path, set).is(200).json()))
		require.Equal(t, all, shown(b.get(path).is(200).json()))
		require.Equal(t, all, shown(b.patch(path, object{"name": "Other"}).is(200).json()), "what is not named stays")
		for field, value := range map[string]any{
			"max_calls": 0, "max_calls_per_second": "x", "max_calls_per_day": 0, "max_spend_per_day_micros": 1.5, "max_call_seconds": -1, "allowed_destinations[0]": []string{"USA"},
			"allowed_destination_types[1]": []string{"premium", "expensive"},
		} {
			name, _, _ := strings.Cut(field, "[")
			b.patch(path, object{name: value}).refused(codeInvalidRequest, field)
		}
		require.Equal(t, none, shown(b.patch(path, object{
			"max_calls": nil, "max_calls_per_second": nil, "max_calls_per_day": nil, "max_spend_per_day_micros": nil, "max_call_seconds": nil,
			"allowed_destinations": nil, "denied_destinations": []any{}, "allowed_destination_types": nil,
		}).is(200).json()))

		require.Equal(t, []any{}, b.patch(path, object{"allowed_destination_types": []any{}}).is(200).json()["allowed_destination_types"], "none is not all")

		trunk := b.post("/v1/trunks", object{"name": "Carrier", "proxy": "sip.carrier.example", "max_calls_per_day": 5, "max_spend_per_day_micros": 7, "max_call_seconds": 30}).is(201).json()
		require.Equal(t, []any{5.0, 7.0, 30.0}, []any{trunk["max_calls_per_day"], trunk["max_spend_per_day_micros"], trunk["max_call_seconds"]})
		trunk = b.patch("/v1/trunks/"+trunk["id"].(string), object{"max_spend_per_day_micros": nil}).is(200).json()
		require.Equal(t, []any{5.0, nil, 30.0}, []any{trunk["max_calls_per_day"], trunk["max_spend_per_day_micros"], trunk["max_call_seconds"]})
		path = "/v1/trunks/" + trunk["id"].(string)
		for _, field := range destinationFields {
			require.NotContains(t, trunk, field)
		}
		where := object{"allowed_destinations": []any{"US", "+44"}, "denied_destinations": []any{"+1900"}, "allowed_destination_types": []any{}}
		trunk = b.patch(path, where).is(200).json()
		for field, value := range where {
			require.Equal(t, value, trunk[field], field)
		}
		b.patch(path, object{"allowed_destinations": []any{"US", "sip:*"}}).refused(codeInvalidRequest, "allowed_destinations[1]")
		b.patch(path, object{"denied_destinations": []any{"sip:pbx.example.com"}}).refused(codeInvalidRequest, "denied_destinations[0]")
		b.patch(path, object{"allowed_destination_types": []any{"premium", "premium"}}).refused(codeInvalidRequest, "allowed_destination_types[1]")
		trunk = b.patch(path, object{"allowed_destinations": nil, "denied_destinations": nil, "allowed_destination_types": nil}).is(200).json()
		for field := range where {
			require.NotContains(t, trunk, field)
		}
		for field, value := range where {
			b.post("/v1/trunks", object{"name": "In", "inbound_ip": "192.0.2.10", field: value}).refused(codeInvalidRequest, field)
		}
	})
}
