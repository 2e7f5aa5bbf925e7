package calls

import "tandem/actions"

// join does what follows when a party and the call hear each other.
func (d *dialing) join(l *leg) error {
	if d.joined == nil || d.told {
		return nil
	}
	d.told = true
	d.remember(d.begins) // stored with what tells of it
	return d.joined(l)
}

// record records the connection, each side on a channel of its own. A recording that cannot begin is told as failed.
func (d *dialing) record(*leg) error {
	tape, err := d.s.newTape(actions.FormatWAV, stereo)
	if err != nil {
		d.s.log.Error("connection not recorded", "error", err)
		return d.s.tell("recording.failed", map[string]any{"message": "the recording could not be started"})
	}
	d.tape = tape
	d.remember(d.begins)
	ran, err := d.s.runTape(tape)
	if !ran {
		d.tape = nil
	}
	return err
}

// stopRecord ends the recording of the connection. The end of the call does, too.
func (d *dialing) stopRecord() error {
	if d.tape == nil {
		return nil
	}
	return d.s.stopTape(d.tape)
}
