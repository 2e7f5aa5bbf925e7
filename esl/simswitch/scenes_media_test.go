package simswitch_test

// mediaScenes record, listen and send calls elsewhere.
var mediaScenes = []conformanceScene{
	{name: "record the session, paused and masked", play: func(k *take) {
		file := k.rig.media() + "/masked.wav"
		k.call()
		k.run("answer", "")
		k.api("uuid_setvar " + k.a + " RECORD_STEREO true")
		k.api("uuid_record " + k.a + " start " + file)
		k.await("the recording's start", named("RECORD_START", k.a))
		k.api("uuid_record " + k.a + " start " + file)
		for _, verb := range []string{"pause", "resume", "mask", "unmask"} {
			k.api("uuid_record " + k.a + " " + verb + " " + file)
			k.api("uuid_record " + k.a + " " + verb + " " + k.rig.media() + "/other.wav")
		}
		k.api("uuid_record " + k.a + " shred " + file)
		k.api("uuid_record " + k.a + " stop " + k.rig.media() + "/other.wav")
		k.run("playback", "silence_stream://400")
		k.api("uuid_record " + k.a + " stop " + file)
		k.await("the recording's end", named("RECORD_STOP", k.a))
		k.api("uuid_record " + k.a + " stop " + file)
		k.kill()
	}},
	{name: "record the session, everything stops", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.api("uuid_record " + k.a + " start " + k.rig.media() + "/one.wav")
		k.awaitCount("RECORD_START", 1)
		k.api("uuid_record " + k.a + " start " + k.rig.media() + "/two.wav")
		k.awaitCount("RECORD_START", 2)
		k.run("playback", "silence_stream://400")
		k.api("uuid_record " + k.a + " stop all")
		k.awaitCount("RECORD_STOP", 2)
		k.api("uuid_record " + k.a + " stop all")
		k.kill()
	}},
	{name: "record the session through a park", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.api("uuid_record " + k.a + " start " + k.rig.media() + "/through.wav")
		k.await("the recording's start", named("RECORD_START", k.a))
		k.api("uuid_transfer " + k.a + " park inline")
		k.parkedAgain(2)
		k.run("playback", "silence_stream://300")
		k.api("uuid_record " + k.a + " stop " + k.rig.media() + "/through.wav")
		k.await("the recording's end", named("RECORD_STOP", k.a))
		k.kill()
	}},
	{name: "listen to a person", play: func(k *take) {
		k.originate("+15550720", ",originate_timeout=10")
		k.job()
		k.await("the park", named("CHANNEL_PARK", k.a))
		k.run("wait_for_silence", "200 30 5 8000")
		k.kill()
	}, loose: []string{"variable_wait_for_silence_listenhits"}},
	{name: "listen to a machine", play: func(k *take) {
		k.originate("+15550722", ",originate_timeout=10")
		k.job()
		k.await("the park", named("CHANNEL_PARK", k.a))
		k.run("wait_for_silence", "200 50 5 3000")
		k.kill()
	}, loose: []string{"variable_wait_for_silence_listenhits", "variable_wait_for_silence_silence_hits"}},
	{name: "listen to nobody", play: func(k *take) {
		k.originate("+15550723", ",originate_timeout=10")
		k.job()
		k.await("the park", named("CHANNEL_PARK", k.a))
		k.run("wait_for_silence", "200 30 5 2000")
		k.kill()
	}},
	{name: "listen, which nothing breaks", play: func(k *take) {
		k.originate("+15550723", ",originate_timeout=10")
		k.job()
		k.await("the park", named("CHANNEL_PARK", k.a))
		id := k.start("wait_for_silence", "200 30 5 2000")
		k.running(id)
		k.api("uuid_break " + k.a + " all")
		k.await("its end", completed(id))
		k.kill()
	}},
	{name: "listen, taken back to the park", play: func(k *take) {
		k.originate("+15550723", ",originate_timeout=10")
		k.job()
		k.await("the park", named("CHANNEL_PARK", k.a))
		id := k.start("wait_for_silence", "200 30 5 20000")
		k.running(id)
		k.api("uuid_transfer " + k.a + " park inline")
		k.await("its end", completed(id))
		k.parkedAgain(2)
		k.kill()
	}},
	{name: "listen for silence at once", play: func(k *take) {
		k.originate("+15550723", ",originate_timeout=10")
		k.job()
		k.await("the park", named("CHANNEL_PARK", k.a))
		k.run("wait_for_silence", "200 10 0 5000")
		k.run("wait_for_silence", "0 10 0 5000")
		k.kill()
	}},
	{name: "a beep", play: func(k *take) {
		k.originate("+15550721", ",originate_timeout=10")
		k.job()
		k.await("the park", named("CHANNEL_PARK", k.a))
		k.run("avmd_start", "")
		k.await("the beep", func(e map[string]string) bool { return e["Event-Subclass"] == "avmd::beep" && e["Unique-ID"] == k.a })
		k.run("avmd_stop", "")
		k.kill()
	}},
	{name: "no beep", play: func(k *take) {
		k.originate("+15550723", ",originate_timeout=10")
		k.job()
		k.await("the park", named("CHANNEL_PARK", k.a))
		k.run("avmd_start", "")
		k.run("playback", "silence_stream://1000")
		k.run("avmd_stop", "")
		k.run("avmd_stop", "")
		k.run("avmd_start", "")
		k.kill()
	}},
	{name: "a beep that a command cannot hear", play: func(k *take) {
		k.originate("+15550702", ",originate_timeout=10")
		k.job()
		k.await("the park", named("CHANNEL_PARK", k.a))
		k.api("avmd " + k.a + " start")
		k.api("avmd " + k.a + " start")
		k.run("playback", "silence_stream://2000")
		k.kill()
		k.api("avmd 00000000-0000-4000-8000-00000000dead start")
	}},
	{name: "a beep on a call that came in", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.api("avmd " + k.a + " start")
		k.api("avmd " + k.a + " stop")
		k.kill()
	}},
	{name: "sent elsewhere before the answer", play: func(k *take) {
		k.call()
		k.start("redirect", "sip:+15550701@127.0.0.1:5999")
		k.ended(k.a)
	}},
	{name: "sent elsewhere by a 302 after the answer", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.run("redirect", "sip:+15550701@127.0.0.1:5999")
		k.kill()
	}},
	{name: "referred", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.start("deflect", "sip:+15550403@127.0.0.1:5999")
		k.ended(k.a)
	}},
	{name: "referred before the answer", play: func(k *take) {
		k.call()
		k.start("deflect", "sip:+15550403@127.0.0.1:5999")
		k.ended(k.a)
	}},
	{name: "digits with their length", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.run("send_dtmf", "12@200")
		k.caller.types(k.t, "7")
		k.await("a digit", func(e map[string]string) bool { return e["Event-Name"] == "DTMF" && e["DTMF-Digit"] == "7" })
		k.api("uuid_send_dtmf " + k.a + " 9w9@100")
		k.api("uuid_send_dtmf " + k.a + " x")
		k.kill()
	}},
	{name: "tones of all lengths", play: func(k *take) {
		k.call()
		k.run("answer", "")
		for _, spec := range []string{"%(100,100,440,480)", "%(200,0,1000);loops=3", "v=-7;%(100,0,440);%(100,0,480)", "L=2;%(100,100,440)", "%(100,50,440)%(50,50,480);loops=2"} {
			k.lasted("tone_stream://" + spec)
		}
		k.kill()
	}},
	{name: "what the node has", play: func(k *take) {
		k.api("module_exists mod_dptools")
		k.api("module_exists mod_conference")
		k.api("module_exists mod_avmd")
		k.api("module_exists mod_audio_stream")
		k.api("module_exists mod_vosk")
		k.api("uuid_audio_stream 00000000-0000-4000-8000-00000000dead stop")
	}},
	{name: "speech input that the node has not", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.run("play_and_detect_speech", "silence_stream://300 detect:vosk default")
		k.kill()
	}},
}

// awaitCount waits for so many events of a kind of the call.
func (k *take) awaitCount(name string, times int) {
	k.t.Helper()
	k.await(name, func(map[string]string) bool {
		seen := 0
		for _, e := range k.cl.eventsLocked(true) {
			if e["Event-Name"] == name && e["Unique-ID"] == k.a {
				seen++
			}
		}
		return seen >= times
	})
}

// lasted plays something and notes how long it was, as the switch counts it.
func (k *take) lasted(file string) {
	k.t.Helper()
	e := k.run("playback", file)
	k.notes = append(k.notes, file+" lasted "+e["variable_playback_ms"]+" ms")
}
