// Package calls is the life of a call: it finds the application of an inbound leg, places outbound calls, asks the
// application's answer_url what to do, does it on the switch, and ends every call with exactly one terminal event.
//
// One goroutine, a session, owns one call. The switch's events and the API's commands reach it through a mailbox that
// never blocks the sender. Every change of state is one row of the table in state.go and commits together with the
// event that tells of it. docs/call-states.md draws the table.
//
// What this package does not do yet: take over the calls of a controller that died. The calls it finds live in the
// database without a session of its own are ended, never silently adopted (see recover.go).
package calls
