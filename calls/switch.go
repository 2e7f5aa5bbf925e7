package calls

import (
	"context"
	"time"

	"tandem/esl"
)

// Names of the switch's events that a session reads.
const (
	eventProgress        = "CHANNEL_PROGRESS"
	eventProgressMedia   = "CHANNEL_PROGRESS_MEDIA"
	eventAnswer          = "CHANNEL_ANSWER"
	eventPark            = "CHANNEL_PARK"
	eventExecuteComplete = "CHANNEL_EXECUTE_COMPLETE"
	eventHangupComplete  = "CHANNEL_HANGUP_COMPLETE"
	eventBridge          = "CHANNEL_BRIDGE"
	eventUnbridge        = "CHANNEL_UNBRIDGE"
	eventDTMF            = "DTMF"
	eventRecordStop      = "RECORD_STOP"
	eventCustom          = "CUSTOM"
)

// Switch is what this package asks of a media node. *esl.Node is one. Every method may return esl.ErrDown while the node
// is away, and an *esl.CommandError when the switch refuses.
type Switch interface {
	// Up says whether commands reach the switch.
	Up() bool
	// Execute runs an application on a channel; its completion arrives as an event that carries eventUUID.
	Execute(ctx context.Context, channel, eventUUID string, app esl.App) error
	// Originate dials. It returns when the switch has accepted the job, not when anybody answers.
	Originate(ctx context.Context, originate esl.Originate) (*esl.Job, error)
	// Kill ends a channel at once, whatever it is doing.
	Kill(ctx context.Context, channel, cause string) error
	// Park tears a channel out of whatever it runs and leaves it to its controller.
	Park(ctx context.Context, channel string) error
	// HasModule says whether the switch has loaded a module.
	HasModule(ctx context.Context, name string) (bool, error)
	// Break interrupts what a channel plays.
	Break(ctx context.Context, channel string) error
	SetVariable(ctx context.Context, channel, name, value string) error
	// SetRingback says what a channel hears during its next bridge until that is answered.
	SetRingback(ctx context.Context, channel string, ringback esl.Ringback) error
	// SchedHangup ends a channel after a time, under the group of its own name. ScheduleKill does so under a group of any name. Unschedule takes
	// back all of a group.
	SchedHangup(ctx context.Context, channel string, after time.Duration, cause string) error
	ScheduleKill(ctx context.Context, channel, group string, after time.Duration, cause string) error
	Unschedule(ctx context.Context, group string) error
	// Overlay mixes a sound into what the party on a channel hears.
	Overlay(ctx context.Context, channel, path string) error
	RecordStartWith(ctx context.Context, channel, path string, options esl.RecordOptions) error
	RecordStop(ctx context.Context, channel, path string) error
	RecordPause(ctx context.Context, channel, path string) error
	RecordResume(ctx context.Context, channel, path string) error
	RecordMask(ctx context.Context, channel, path string) error
	RecordUnmask(ctx context.Context, channel, path string) error
	// BridgeChannels connects two channels that are parked or busy; what they run ends.
	BridgeChannels(ctx context.Context, channel, other string) error
	// ConferenceKick takes a member out of a room and leaves its channel; the other methods on rooms do what they say.
	ConferenceKick(ctx context.Context, conference, member string) error
	ConferenceMute(ctx context.Context, conference, member string, muted bool) error
	ConferenceRecord(ctx context.Context, conference, path string) error
	ConferenceRecordStop(ctx context.Context, conference, path string) error
	ConferenceMembers(ctx context.Context, conference string) ([]esl.ConferenceMember, error)
	StreamStart(ctx context.Context, channel string, stream esl.AudioStream) error
	StreamStop(ctx context.Context, channel string) error
	Exists(ctx context.Context, channel string) (bool, error)
	// Channels lists the channels of the switch. The list lags behind.
	Channels(ctx context.Context) ([]esl.Channel, error)
	Dump(ctx context.Context, channel string) (*esl.Event, error)
}
