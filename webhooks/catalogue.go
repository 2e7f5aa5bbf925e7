package webhooks

import "slices"

// Fields that several kinds have.
var (
	legIDIfLeg = Field{Name: "leg_id", Type: TypeString, Present: "it is of a leg, not of the call's own channel", Doc: "The leg."}
	answeredBy = []any{"human", "machine", "unknown"}

	legFields = []Field{
		{Name: "leg_id", Type: TypeString, Doc: "The leg: `GET /v1/calls/:id/legs` lists it."},
		{Name: "kind", Type: TypeString, Values: []any{"dial", "transfer", "queue"}, Doc: "What the leg is for."},
		{Name: "to", Type: TypeString, Doc: "The number or SIP URI; for `queue`, the call that was joined."},
		{Name: "trunk_id", Type: TypeString, Present: "it goes over a trunk", Doc: "The trunk."},
		{Name: "answered_by", Type: TypeString, Present: "machine detection has heard something", Values: answeredBy, Doc: "What answered."},
	}
	recordingID = Field{Name: "recording_id", Type: TypeString, Doc: "The recording."}
	format      = Field{Name: "format", Type: TypeString, Values: []any{"wav", "mp3"}, Doc: "The format of the file."}
	channels    = Field{Name: "channels", Type: TypeInteger, Values: []any{1, 2}, Doc: "1 for mixed sound, 2 where each side has its own."}

	queueFields = []Field{
		{Name: "queue", Type: TypeString, Doc: "The name of the queue."},
		{Name: "queue_entry_id", Type: TypeString, Doc: "This stay in the queue."},
	}
	conferenceFields = []Field{
		{Name: "conference_id", Type: TypeString, Doc: "The conference."},
		{Name: "conference", Type: TypeString, Doc: "Its name."},
		{Name: "members", Type: TypeInteger, Doc: "How many there are now."},
	}
	trunkFields = []Field{
		{Name: "trunk", Type: TypeObject, Doc: "The trunk.", Fields: []Field{
			{Name: "id", Type: TypeString, Doc: "Its id."},
			{Name: "name", Type: TypeString, Doc: "Its name."},
			{Name: "gateway_name", Type: TypeString, Doc: "Its gateway's name."},
		}},
		{Name: "node_id", Type: TypeString, Doc: "The node whose registration it is: each node registers on its own."},
		{Name: "state", Type: TypeString, Doc: "The state of the registration, in FreeSWITCH's words: `REGED`, `FAILED`, `FAIL_WAIT`, …"},
		{Name: "status", Type: TypeString, Doc: "`UP` or `DOWN`, by OPTIONS pings; may be empty."},
	}

	balanceFields = []Field{
		{Name: "customer_id", Type: TypeString, Doc: "The customer whose account it is."},
		{Name: "currency", Type: TypeString, Doc: "ISO 4217 code of the amounts."},
		{Name: "balance_micros", Type: TypeInteger, Doc: "The balance in millionths of the currency unit; negative where credit is used."},
		{Name: "credit_limit_micros", Type: TypeInteger, Doc: "How far below zero the balance may be."},
		{Name: "held_micros", Type: TypeInteger, Doc: "What live calls hold."},
		{Name: "available_micros", Type: TypeInteger, Doc: "What new calls can hold: balance and credit, less held."},
	}

	endingFields = []Field{
		{Name: "reason", Type: TypeString, Doc: "Why it ended: [the list](call-states.md)."},
		{Name: "hangup_source", Type: TypeString, Values: []any{"caller", "callee", "api", "actions", "platform", "carrier"}, Doc: "Who ended it."},
		{Name: "cause", Type: TypeString, Doc: "FreeSWITCH's name of the cause; may be empty."},
		{Name: "q850", Type: TypeInteger, Doc: "Its ITU-T Q.850 value, 0 where there is none."},
		{Name: "sip_code", Type: TypeInteger, Doc: "The final SIP status, 0 where there was none."},
		{Name: "duration_seconds", Type: TypeNumber, Doc: "From the call's first moment to its end."},
		{Name: "ring_seconds", Type: TypeNumber, Present: "it rang", Doc: "From the first ringing to the answer or the end."},
		{Name: "billed_seconds", Type: TypeInteger, Doc: "What is charged, by the switch's count."},
		{Name: "cost_micros", Type: TypeInteger, Doc: "The charge in millionths of the account's currency unit."},
	}
)

// with returns fields with more behind them.
func with(fields []Field, more ...Field) []Field { return slices.Concat(fields, more) }

// Kinds is the catalogue: every kind of event that there is, what it tells and when. Events are held to it (CheckData), and so
// is the documentation.
var Kinds = slices.Concat(callKinds, actionKinds, placeKinds, otherKinds)

// callKinds tell of the state of a call.
var callKinds = []Kind{
	{Name: KindCreated, When: "`POST /v1/calls` made a call.", Example: map[string]any{}},
	{Name: KindDialing, When: "A queued call is being dialled.", Example: map[string]any{}},
	{Name: KindRinging, When: "The other side rings. The first event of an inbound call.", Example: map[string]any{}},
	{
		Name: KindRerouted, When: "A trunk could not take the call, which is now dialled over the next one.",
		Fields: []Field{
			{Name: "attempt", Type: TypeInteger, Doc: "Which attempt failed, from 1."},
			{Name: "leg_id", Type: TypeString, Doc: "It as a leg: `GET /v1/calls/:id/legs` lists it, with the kind `attempt`."},
			{Name: "trunk_id", Type: TypeString, Doc: "The trunk that failed."},
			{Name: "next_trunk_id", Type: TypeString, Doc: "The trunk that is tried now."},
			{Name: "reason", Type: TypeString, Doc: "Why it failed: [the list](call-states.md)."},
			{Name: "cause", Type: TypeString, Doc: "FreeSWITCH's name of the cause; may be empty."},
			{Name: "q850", Type: TypeInteger, Doc: "Its ITU-T Q.850 value, 0 where there is none."},
			{Name: "sip_code", Type: TypeInteger, Doc: "The final SIP status, 0 where there was none."},
		},
		Example: map[string]any{
			"attempt": 1, "leg_id": "leg_01m3x", "trunk_id": "trunk_01m3w", "next_trunk_id": "trunk_01m3z", "reason": "carrier_error",
			"cause": "NORMAL_TEMPORARY_FAILURE", "q850": 41, "sip_code": 503,
		},
	},
	{Name: KindAnswered, When: "The call is answered.", Example: map[string]any{}},
	{
		Name: KindCompleted, When: "An answered call has ended. Its last event.",
		Fields: with(endingFields,
			Field{Name: "talk_seconds", Type: TypeNumber, Doc: "From the answer to the end."},
			Field{Name: "answered_by", Type: TypeString, Present: "machine detection has heard something", Values: answeredBy, Doc: "What answered."},
		),
		Example: map[string]any{
			"reason": "callee_hangup", "hangup_source": "callee", "cause": "NORMAL_CLEARING", "q850": 16, "sip_code": 200, "duration_seconds": 34.21,
			"ring_seconds": 3.2, "talk_seconds": 29.871, "billed_seconds": 30, "cost_micros": 10000, "answered_by": "human",
		},
	},
	{
		Name: KindFailed, When: "A call has ended that was never answered. Its last event.", Fields: endingFields,
		Example: map[string]any{
			"reason": "busy", "hangup_source": "callee", "cause": "USER_BUSY", "q850": 17, "sip_code": 486, "duration_seconds": 4.02, "ring_seconds": 1.5,
			"billed_seconds": 0, "cost_micros": 0,
		},
	},
}

// actionKinds tell of what a call's actions do.
var actionKinds = []Kind{
	{
		Name: KindError, When: "A URL gave no actions, or an action could not be done. The call goes on as `next` says, or with the next action.",
		Fields: []Field{
			{Name: "code", Type: TypeString, Doc: "What kind of failure: `answer_url_failed`, `invalid_actions`, `action_failed`, `not_supported_by_node`, `destination_not_allowed`, `customer_limit`, `application_limit`, `spend_limit`, …"},
			{Name: "message", Type: TypeString, Doc: "What went wrong, for a person to read."},
			{Name: "url", Type: TypeString, Present: "a URL failed", Doc: "The URL."},
			{Name: "status", Type: TypeInteger, Present: "it answered", Doc: "The HTTP status."},
			{Name: "attempts", Type: TypeInteger, Present: "a URL failed", Doc: "How often it was asked."},
			{Name: "index", Type: TypeInteger, Present: "it is of one action", Doc: "The action's place in its list, from 0."},
			{Name: "action", Type: TypeString, Present: "the action is known", Doc: "The action's name."},
			{Name: "id", Type: TypeString, Present: "the action has one", Doc: "The action's `id`."},
			{Name: "field", Type: TypeString, Present: "it is of one field", Doc: "The field."},
			{Name: "path", Type: TypeString, Present: "it is of one place in a reply", Doc: "The way to that place."},
			{Name: "next", Type: TypeString, Present: "a URL failed", Values: []any{"fallback_url", "fallback_actions", "end"}, Doc: "What follows."},
		},
		Example: map[string]any{
			"code": "invalid_actions", "message": "must not be empty, was \" \"", "url": "https://example.com/answer", "status": 200, "attempts": 1,
			"index": 2, "action": "say", "field": "text", "path": "actions[2].say.text", "next": "fallback_url",
		},
	},
	{
		Name: KindNotify, When: "A `notify` action.",
		Fields: []Field{
			{Name: "payload", Type: TypeAny, Doc: "What the action has in `payload`."},
			{Name: "id", Type: TypeString, Present: "the action has one", Doc: "The action's `id`."},
		},
		Example: map[string]any{"payload": map[string]any{"step": "menu", "choice": 2}, "id": "told"},
	},
	{
		Name: KindMachineDetected, When: "Machine detection has come to a result.",
		Fields: []Field{
			{Name: "answered_by", Type: TypeString, Values: answeredBy, Doc: "What answered."},
			{Name: "beep", Type: TypeBoolean, Doc: "Whether a beep was heard."},
			{Name: "after_ms", Type: TypeInteger, Doc: "How long it took, from the answer."},
			legIDIfLeg,
		},
		Example: map[string]any{"answered_by": "machine", "beep": true, "after_ms": 6240, "leg_id": "leg_01m3x"},
	},
	{
		Name: KindDTMF, When: "A key was pressed; none while a `sensitive` gather runs.",
		Fields: []Field{
			{Name: "digit", Type: TypeString, Doc: "The key: one of `0`–`9`, `*`, `#`, `A`–`D`."},
			{Name: "duration_ms", Type: TypeInteger, Doc: "How long it was pressed."},
			legIDIfLeg,
		},
		Example: map[string]any{"digit": "5", "duration_ms": 100, "leg_id": "leg_01m3x"},
	},
	{
		Name: KindActionCompleted, When: "An action is done.",
		Fields: []Field{
			{Name: "index", Type: TypeInteger, Doc: "Its place in its list, from 0."},
			{Name: "action", Type: TypeString, Doc: "Its name."},
			{Name: "id", Type: TypeString, Present: "it has one", Doc: "Its `id`."},
			{Name: "result", Type: TypeObject, Present: "it has one", Doc: "Its [result](actions.md), as its `result_url` is told; what was entered in a `sensitive` gather is left out."},
		},
		Example: map[string]any{"index": 1, "action": "gather", "id": "menu", "result": map[string]any{"digits": "2", "outcome": "digits"}},
	},
	{
		Name: KindTransferred, When: "A `transfer` was made, or could not be.",
		Fields: []Field{
			{Name: "mode", Type: TypeString, Values: []any{"blind", "refer", "attended"}, Doc: "How it was transferred."},
			{Name: "to", Type: TypeString, Doc: "The number or SIP URI."},
			{Name: "transfer_status", Type: TypeString, Doc: "How it went: the `transfer_status` of the [result](actions.md)."},
			{Name: "sip_code", Type: TypeInteger, Present: "the other side answered with one", Doc: "The final SIP status."},
			{Name: "leg_id", Type: TypeString, Present: "the transfer had a leg", Doc: "The leg."},
		},
		Example: map[string]any{"mode": "blind", "to": "+12025550188", "transfer_status": "completed", "sip_code": 200, "leg_id": "leg_01m3x"},
	},
}

// placeKinds tell of the legs, recordings, queues and conferences of a call.
var placeKinds = []Kind{
	{
		Name: KindLegRinging, When: "A leg rings.", Fields: legFields,
		Example: map[string]any{"leg_id": "leg_01m3x", "kind": "dial", "to": "+12025550188", "trunk_id": "trunk_01m3w"},
	},
	{
		Name: KindLegAnswered, When: "A leg is answered.", Fields: legFields,
		Example: map[string]any{"leg_id": "leg_01m3x", "kind": "dial", "to": "+12025550188", "trunk_id": "trunk_01m3w", "answered_by": "human"},
	},
	{
		Name: KindLegEnded, When: "A leg has ended.",
		Fields: with(legFields,
			Field{Name: "dial_status", Type: TypeString, Doc: "How it went: the `dial_status` of the [result](actions.md)."},
			Field{Name: "reason", Type: TypeString, Doc: "Why it ended."},
			Field{Name: "cause", Type: TypeString, Doc: "FreeSWITCH's name of the cause; may be empty."},
			Field{Name: "q850", Type: TypeInteger, Doc: "Its ITU-T Q.850 value, 0 where there is none."},
			Field{Name: "sip_code", Type: TypeInteger, Doc: "The final SIP status, 0 where there was none."},
			Field{Name: "seconds", Type: TypeNumber, Doc: "How long it was answered."},
		),
		Example: map[string]any{
			"leg_id": "leg_01m3x", "kind": "dial", "to": "+12025550188", "trunk_id": "trunk_01m3w", "dial_status": "answered",
			"reason": "callee_hangup", "cause": "NORMAL_CLEARING", "q850": 16, "sip_code": 200, "seconds": 17.5,
		},
	},
	{
		Name: KindRecordingStarted, When: "A recording runs.", Fields: []Field{recordingID, format, channels},
		Example: map[string]any{"recording_id": "rec_01m3y", "format": "wav", "channels": 2},
	},
	{
		Name: KindRecordingAvailable, When: "A recording has ended and its file is there. Where its node has to send the file, this may follow the call's last event.",
		Fields:  []Field{recordingID, format, channels, {Name: "seconds", Type: TypeNumber, Doc: "Its length."}},
		Example: map[string]any{"recording_id": "rec_01m3y", "format": "wav", "channels": 2, "seconds": 12.34},
	},
	{
		Name: KindRecordingFailed, When: "A recording could not be made.",
		Fields: []Field{
			{Name: "recording_id", Type: TypeString, Present: "it had begun", Doc: "The recording."},
			{Name: "message", Type: TypeString, Doc: "What went wrong, for a person to read."},
		},
		Example: map[string]any{"recording_id": "rec_01m3y", "message": "the recording could not be started"},
	},
	{
		Name: KindQueueJoined, When: "The call waits in a queue.",
		Fields: with(queueFields,
			Field{Name: "position", Type: TypeInteger, Doc: "Its place, from 1."},
			Field{Name: "priority", Type: TypeInteger, Doc: "Its priority; higher is served first."},
		),
		Example: map[string]any{"queue": "support", "queue_entry_id": "qe_01m3z", "position": 3, "priority": 0},
	},
	{
		Name: KindQueueLeft, When: "The call waits no more.",
		Fields: with(queueFields,
			Field{
				Name: "outcome", Type: TypeString, Values: []any{"bridged", "hangup", "left", "timeout"},
				Doc: "`bridged`: it talked to another call; `hangup`: it ended; `left`: it was taken out; `timeout`: `max_wait` is over.",
			},
			Field{Name: "wait_seconds", Type: TypeNumber, Doc: "How long it waited."},
			Field{Name: "peer_call_id", Type: TypeString, Present: "it was bridged", Doc: "The call that took it."},
		),
		Example: map[string]any{"queue": "support", "queue_entry_id": "qe_01m3z", "outcome": "bridged", "wait_seconds": 41.2, "peer_call_id": "call_01m3q"},
	},
	{
		Name: KindConferenceJoined, When: "The call is in a conference.",
		Fields:  with(conferenceFields, Field{Name: "muted", Type: TypeBoolean, Doc: "Whether the others do not hear it."}),
		Example: map[string]any{"conference_id": "conf_01m40", "conference": "standup", "members": 4, "muted": false},
	},
	{
		Name: KindConferenceLeft, When: "The call is in the conference no more.",
		Fields: with(conferenceFields,
			Field{Name: "outcome", Type: TypeString, Doc: "Why: `hangup` when the call ended, otherwise the `outcome` of the [result](actions.md)."},
			Field{Name: "seconds", Type: TypeNumber, Doc: "How long it was in it."},
		),
		Example: map[string]any{"conference_id": "conf_01m40", "conference": "standup", "members": 3, "outcome": "kicked", "seconds": 612.4},
	},
}

// otherKinds tell of what is no call.
var otherKinds = []Kind{
	{
		Name: KindTrunkRegistered, When: "A node has registered with the trunk's carrier; one whose registration came and went three times in ten minutes, for five minutes now.", Fields: trunkFields,
		Example: map[string]any{
			"trunk":   map[string]any{"id": "trunk_01m3w", "name": "Carrier A", "gateway_name": "carrier-a"},
			"node_id": "node_01m3a", "state": "REGED", "status": "UP",
		},
	},
	{
		Name: KindTrunkUnregistered, When: "A node's registration has failed or ended, a minute ago. Renewing one is no end.", Fields: trunkFields,
		Example: map[string]any{
			"trunk":   map[string]any{"id": "trunk_01m3w", "name": "Carrier A", "gateway_name": "carrier-a"},
			"node_id": "node_01m3a", "state": "FAIL_WAIT", "status": "DOWN",
		},
	},
	{
		Name: KindBalanceLow, CallToo: true,
		When: "Balance and credit have come down to the account's threshold, `low_balance`, or below: once, until a payment lifts them above it or the threshold changes. And, with the call and `seconds_left`, to the application of a live call for which the balance does not pay any longer: it will end, with the `reason` `insufficient_balance`, unless money comes before.",
		Fields: with(balanceFields,
			Field{Name: "low_balance_micros", Type: TypeInteger, Present: "where the threshold was crossed", Doc: "The threshold."},
			Field{Name: "seconds_left", Type: TypeInteger, Present: "where a call will end", Doc: "After how many seconds the switch ends the call."},
		),
		Example: map[string]any{
			"customer_id": "cust_01m3t", "currency": "EUR", "balance_micros": 4_990_000, "credit_limit_micros": 0, "held_micros": 600_000,
			"available_micros": 4_390_000, "low_balance_micros": 5_000_000,
		},
	},
	{
		Name: KindBalanceExhausted, When: "Nothing is left to hold a call: after a charge, or when a call is refused with `insufficient_balance`. Once, until a payment or more credit leaves something.",
		Fields: balanceFields,
		Example: map[string]any{
			"customer_id": "cust_01m3t", "currency": "EUR", "balance_micros": 10_000, "credit_limit_micros": 0, "held_micros": 0, "available_micros": 10_000,
		},
	},
	{
		Name: KindTest, When: "`POST /v1/applications/:id/test-webhook`. It is sent whatever kinds the application wants.",
		Fields: []Field{
			{Name: "application_id", Type: TypeString, Doc: "The application."},
			{Name: "message", Type: TypeString, Doc: "For a person to read."},
		},
		Example: map[string]any{"application_id": "app_01m3v", "message": testMessage},
	},
}
