package simswitch_test

// joinScenes bridge two calls that are parked, and take calls out of what they run.
var joinScenes = []conformanceScene{
	{name: "join two calls, the second hangs up", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.api("uuid_setvar " + k.a + " park_after_bridge true")
		other := k.another("2")
		other.run("answer", "")
		k.api("uuid_setvar " + other.a + " park_after_bridge true")
		k.api("uuid_bridge " + k.a + " " + other.a)
		k.await("the bridge", named("CHANNEL_BRIDGE", k.a))
		other.caller.hangUp(k.t)
		k.ended(other.a)
		k.parkedAgain(2)
		k.run("playback", "silence_stream://100")
		k.kill()
	}},
	{name: "join two calls, the first hangs up", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.api("uuid_setvar " + k.a + " park_after_bridge true")
		other := k.another("2")
		other.run("answer", "")
		k.api("uuid_setvar " + other.a + " park_after_bridge true")
		k.api("uuid_bridge " + k.a + " " + other.a)
		k.await("the bridge", named("CHANNEL_BRIDGE", k.a))
		k.caller.hangUp(k.t)
		k.ended(k.a)
		other.parkedAgain(2)
		other.kill()
	}, loose: []string{"variable_bridge_hangup_cause"}},
	{name: "join two calls, the second is killed", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.api("uuid_setvar " + k.a + " park_after_bridge true")
		other := k.another("2")
		other.run("answer", "")
		k.api("uuid_bridge " + k.a + " " + other.a)
		k.await("the bridge", named("CHANNEL_BRIDGE", k.a))
		other.kill()
		k.parkedAgain(2)
		k.kill()
	}},
	{name: "join two calls that nothing keeps", play: func(k *take) {
		k.call()
		k.run("answer", "")
		other := k.another("2")
		other.run("answer", "")
		k.api("uuid_bridge " + k.a + " " + other.a)
		k.await("the bridge", named("CHANNEL_BRIDGE", k.a))
		other.caller.hangUp(k.t)
		k.ended(other.a)
		k.ended(k.a)
	}},
	{name: "join two calls, take the first back", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.api("uuid_setvar " + k.a + " park_after_bridge true")
		other := k.another("2")
		other.run("answer", "")
		k.api("uuid_setvar " + other.a + " park_after_bridge true")
		k.api("uuid_bridge " + k.a + " " + other.a)
		k.await("the bridge", named("CHANNEL_BRIDGE", k.a))
		k.api("uuid_transfer " + k.a + " park inline")
		k.parkedAgain(2)
		other.parkedAgain(2)
		k.kill()
		other.kill()
	}},
	{name: "join two calls, take the second back", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.api("uuid_setvar " + k.a + " park_after_bridge true")
		other := k.another("2")
		other.run("answer", "")
		k.api("uuid_setvar " + other.a + " park_after_bridge true")
		k.api("uuid_bridge " + k.a + " " + other.a)
		k.await("the bridge", named("CHANNEL_BRIDGE", k.a))
		k.api("uuid_transfer " + other.a + " park inline")
		k.parkedAgain(2)
		other.parkedAgain(2)
		k.kill()
		other.kill()
	}},
	{name: "join two calls while one plays", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.api("uuid_setvar " + k.a + " park_after_bridge true")
		other := k.another("2")
		other.run("answer", "")
		k.api("uuid_setvar " + other.a + " park_after_bridge true")
		id := other.start("playback", "silence_stream://20000")
		k.await("the playback", named("PLAYBACK_START", other.a))
		k.api("uuid_bridge " + k.a + " " + other.a)
		k.await("the playback's end", completed(id))
		k.await("the bridge", named("CHANNEL_BRIDGE", k.a))
		other.caller.hangUp(k.t)
		k.ended(other.a)
		k.parkedAgain(2)
		k.kill()
	}, loose: []string{"Application-Response", "variable_current_application_response"}},
	{name: "join what cannot be joined", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.api("uuid_bridge " + k.a + " 00000000-0000-4000-8000-00000000dead")
		k.api("uuid_bridge 00000000-0000-4000-8000-00000000dead " + k.a)
		k.api("uuid_bridge " + k.a)
		k.api("uuid_transfer 00000000-0000-4000-8000-00000000dead park inline")
		k.api("uuid_transfer " + k.a)
		k.kill()
	}},
	{name: "back to the park from a playback", play: func(k *take) {
		k.call()
		k.run("answer", "")
		id := k.start("playback", "silence_stream://20000")
		k.await("the playback", named("PLAYBACK_START", k.a))
		k.api("uuid_transfer " + k.a + " park inline")
		k.await("its end", completed(id))
		k.parkedAgain(2)
		k.run("playback", "silence_stream://100")
		k.kill()
	}, loose: []string{"Application-Response", "variable_current_application_response"}},
	{name: "back to the park from a gather", play: func(k *take) {
		k.call()
		k.run("answer", "")
		id := k.start("play_and_get_digits", `1 8 3 20000 # silence_stream://20000 silence_stream://1 gathered \d+ 20000`)
		k.await("the prompt", named("PLAYBACK_START", k.a))
		k.api("uuid_transfer " + k.a + " park inline")
		k.await("its end", completed(id))
		k.parkedAgain(2)
		k.kill()
	}},
	{name: "back to the park from a gather that waits", play: func(k *take) {
		k.call()
		k.run("answer", "")
		id := k.start("play_and_get_digits", `1 8 3 20000 # silence_stream://100 silence_stream://1 gathered \d+ 20000`)
		k.await("the prompt's end", named("PLAYBACK_STOP", k.a))
		k.api("uuid_transfer " + k.a + " park inline")
		k.await("its end", completed(id))
		k.parkedAgain(2)
		k.kill()
	}},
	// record_function (mod_dptools.c) takes a channel that is no longer ready for one that failed.
	{name: "no way back to the park from a recording", play: func(k *take) {
		k.call()
		k.run("answer", "")
		id := k.start("record", k.rig.media()+"/parked.wav 20")
		k.await("the recording's start", named("RECORD_START", k.a))
		k.api("uuid_transfer " + k.a + " park inline")
		k.await("its end", completed(id))
		k.ended(k.a)
	}},
	{name: "back to the park from the park", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.api("uuid_transfer " + k.a + " park inline")
		k.parkedAgain(2)
		k.run("playback", "silence_stream://100")
		k.api("uuid_transfer " + k.a + " park inline")
		k.parkedAgain(3)
		k.kill()
	}},
	{name: "back to the park before the answer", play: func(k *take) {
		k.call()
		k.api("uuid_transfer " + k.a + " park inline")
		k.parkedAgain(2)
		k.run("answer", "")
		k.kill()
	}},
	{name: "break a gather that plays", play: func(k *take) {
		k.call()
		k.run("answer", "")
		id := k.start("play_and_get_digits", `1 8 1 1500 # silence_stream://20000 silence_stream://1 gathered \d+ 1000`)
		k.await("the prompt", named("PLAYBACK_START", k.a))
		k.api("uuid_break " + k.a + " all")
		k.await("its end", completed(id))
		k.kill()
	}},
	{name: "break a recording", play: func(k *take) {
		k.call()
		k.run("answer", "")
		id := k.start("record", k.rig.media()+"/broken.wav 20")
		k.await("the recording's start", named("RECORD_START", k.a))
		k.api("uuid_break " + k.a + " all")
		k.await("its end", completed(id))
		k.kill()
	}},
	{name: "break the park", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.api("uuid_break " + k.a + " all")
		k.api("uuid_break " + k.a)
		k.run("playback", "silence_stream://100")
		k.kill()
	}},
	{name: "break a playback, not what waits", play: func(k *take) {
		k.call()
		k.run("answer", "")
		first := k.start("playback", "silence_stream://20000")
		k.await("the playback", named("PLAYBACK_START", k.a))
		second := k.start("playback", "silence_stream://300")
		k.api("uuid_break " + k.a)
		k.await("the first", completed(first))
		k.await("the second", completed(second))
		k.kill()
	}},
}
