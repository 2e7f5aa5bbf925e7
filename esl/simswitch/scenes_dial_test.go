package simswitch_test

// dialScenes are calls that ring more than one target, or that something interrupts while they ring.
var dialScenes = []conformanceScene{
	{name: "dial two at once, one answers", play: func(k *take) {
		k.call()
		k.run("answer", "")
		id := k.start("bridge", "{originate_timeout=10}sofia/gateway/carrier/+15550180,sofia/gateway/carrier/+15550701")
		loser, winner := k.leg("+15550180"), k.leg("+15550701")
		k.await("the bridge's end", completed(id))
		k.ended(loser)
		k.ended(winner)
		k.kill()
	}},
	{name: "dial two at once, both refuse", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.api("uuid_setvar_multi " + k.a + " hangup_after_bridge=false;continue_on_fail=true")
		id := k.start("bridge", "{originate_timeout=10}sofia/gateway/carrier/+15550486,[leg_delay_start=1]sofia/gateway/carrier/+15550603")
		first, second := k.leg("+15550486"), k.leg("+15550603")
		k.await("the bridge's end", completed(id))
		k.ended(first)
		k.ended(second)
		k.kill()
	}},
	{name: "dial two at once, both refuse, the other way around", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.api("uuid_setvar_multi " + k.a + " hangup_after_bridge=false;continue_on_fail=true")
		id := k.start("bridge", "{originate_timeout=10}[leg_delay_start=1]sofia/gateway/carrier/+15550486,sofia/gateway/carrier/+15550603")
		first, second := k.leg("+15550486"), k.leg("+15550603")
		k.await("the bridge's end", completed(id))
		k.ended(first)
		k.ended(second)
		k.kill()
	}},
	{name: "dial two at once, one is no gateway", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.api("uuid_setvar_multi " + k.a + " hangup_after_bridge=false;continue_on_fail=true")
		id := k.start("bridge", "{originate_timeout=10}sofia/gateway/carrier/+15550603,sofia/gateway/nobody/+15550486")
		first := k.leg("+15550603")
		k.await("the bridge's end", completed(id))
		k.ended(first)
		k.kill()
	}},
	{name: "dial two at once, one refuses, nobody answers", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.api("uuid_setvar_multi " + k.a + " hangup_after_bridge=false;continue_on_fail=true")
		id := k.start("bridge", "{originate_timeout=2}sofia/gateway/carrier/+15550486,sofia/gateway/carrier/+15550180")
		first, second := k.leg("+15550486"), k.leg("+15550180")
		k.await("the bridge's end", completed(id))
		k.ended(first)
		k.ended(second)
		k.kill()
	}, loose: []string{"variable_sip_invite_failure_status", "variable_sip_invite_failure_phrase"}},
	{name: "dial one after the other", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.api("uuid_setvar_multi " + k.a + " hangup_after_bridge=false;continue_on_fail=true")
		id := k.start("bridge", "{originate_timeout=10}sofia/gateway/carrier/+15550486|sofia/gateway/carrier/+15550701")
		first, second := k.leg("+15550486"), k.leg("+15550701")
		k.await("the bridge's end", completed(id))
		k.ended(first)
		k.ended(second)
		k.kill()
	}},
	{name: "dial one after the other, each with its time", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.api("uuid_setvar_multi " + k.a + " hangup_after_bridge=false;continue_on_fail=true")
		id := k.start("bridge", "[leg_timeout=1]sofia/gateway/carrier/+15550180|[leg_timeout=2]sofia/gateway/carrier/+15551180")
		first, second := k.leg("+15550180"), k.leg("+15551180")
		k.await("the bridge's end", completed(id))
		k.ended(first)
		k.ended(second)
		k.kill()
	}},
	{name: "dial one after the other, all refuse", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.api("uuid_setvar_multi " + k.a + " hangup_after_bridge=false;continue_on_fail=true")
		id := k.start("bridge", "sofia/gateway/carrier/+15550404|sofia/gateway/carrier/+15550603|sofia/gateway/nobody/+15550701")
		first, second := k.leg("+15550404"), k.leg("+15550603")
		k.await("the bridge's end", completed(id))
		k.ended(first)
		k.ended(second)
		k.kill()
	}},
	{name: "dial two at once, nobody answers", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.api("uuid_setvar_multi " + k.a + " hangup_after_bridge=false;continue_on_fail=true")
		id := k.start("bridge", "{originate_timeout=2}sofia/gateway/carrier/+15550180,sofia/gateway/carrier/+15551180")
		first, second := k.leg("+15550180"), k.leg("+15551180")
		k.await("the bridge's end", completed(id))
		k.ended(first)
		k.ended(second)
		k.kill()
	}},
	{name: "dial two at once, the caller hangs up", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.start("bridge", "{originate_timeout=20}sofia/gateway/carrier/+15550180,sofia/gateway/carrier/+15551180")
		first, second := k.leg("+15550180"), k.leg("+15551180")
		k.await("the first to ring", named("CHANNEL_PROGRESS", first))
		k.await("the second to ring", named("CHANNEL_PROGRESS", second))
		k.caller.hangUp(k.t)
		k.ended(first)
		k.ended(second)
		k.ended(k.a)
	}},
	{name: "dial, the key is pressed", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.api("uuid_setvar_multi " + k.a + " hangup_after_bridge=false;continue_on_fail=true")
		id := k.start("bridge", "{originate_timeout=10,group_confirm_key=1,group_confirm_file=silence_stream://5000}sofia/gateway/carrier/+15550731")
		b := k.leg("+15550731")
		k.await("the bridge", named("CHANNEL_BRIDGE", k.a))
		k.api("uuid_kill " + b + " NORMAL_CLEARING")
		k.await("the bridge's end", completed(id))
		k.ended(b)
		k.kill()
	}, loose: []string{"Channel-Call-State"}},
	{name: "dial, the key is not pressed", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.api("uuid_setvar_multi " + k.a + " hangup_after_bridge=false;continue_on_fail=true")
		id := k.start("bridge", "{originate_timeout=3,group_confirm_key=1,group_confirm_file=silence_stream://500}sofia/gateway/carrier/+15550723")
		b := k.leg("+15550723")
		k.await("the bridge's end", completed(id))
		k.ended(b)
		k.kill()
	}, loose: []string{"variable_read_result", "Channel-Call-State"}},
	{name: "dial two at once, the second presses the key", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.api("uuid_setvar_multi " + k.a + " hangup_after_bridge=false;continue_on_fail=true")
		id := k.start("bridge", "{originate_timeout=10,group_confirm_key=1,group_confirm_file=silence_stream://500}"+
			"sofia/gateway/carrier/+15550723,sofia/gateway/carrier/+15550731")
		loser, winner := k.leg("+15550723"), k.leg("+15550731")
		k.await("the bridge", named("CHANNEL_BRIDGE", k.a))
		k.ended(loser)
		k.api("uuid_kill " + winner + " NORMAL_CLEARING")
		k.await("the bridge's end", completed(id))
		k.ended(winner)
		k.kill()
	}, loose: []string{"variable_read_result", "Channel-Call-State"}},
	{name: "dial before the answer with ringing of our own", play: func(k *take) {
		k.call()
		k.api("uuid_setvar_multi " + k.a + " ringback=%(200,400,440);instant_ringback=true")
		id := k.start("bridge", "{ignore_early_media=true,originate_timeout=10}sofia/gateway/carrier/+15550701")
		b := k.leg("+15550701")
		k.await("the bridge's end", completed(id))
		k.ended(b)
		k.kill()
	}},
	{name: "dial after the answer with ringing of our own", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.api("uuid_setvar " + k.a + " transfer_ringback %(200,400,440)")
		id := k.start("bridge", "{ignore_early_media=true,originate_timeout=10}sofia/gateway/carrier/+15550701")
		b := k.leg("+15550701")
		k.await("the bridge's end", completed(id))
		k.ended(b)
		k.kill()
	}},
	{name: "dial, early media", play: func(k *take) {
		k.call()
		id := k.start("bridge", "{originate_timeout=20}sofia/gateway/carrier/+15550183")
		b := k.leg("+15550183")
		k.await("the bridge's end", completed(id))
		k.ended(b)
		k.kill()
	}},
	{name: "dial, the leg is killed while it rings", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.api("uuid_setvar_multi " + k.a + " hangup_after_bridge=false;continue_on_fail=true")
		id := k.start("bridge", "{originate_timeout=20}sofia/gateway/carrier/+15550180")
		b := k.leg("+15550180")
		k.await("the ringing", named("CHANNEL_PROGRESS", b))
		k.api("uuid_kill " + b + " NO_ANSWER")
		k.await("the bridge's end", completed(id))
		k.ended(b)
		k.kill()
	}},
	{name: "dial, taken back to the park while it rings", play: func(k *take) {
		k.call()
		k.run("answer", "")
		id := k.start("bridge", "{originate_timeout=20}sofia/gateway/carrier/+15550180")
		b := k.leg("+15550180")
		k.await("the ringing", named("CHANNEL_PROGRESS", b))
		k.api("uuid_transfer " + k.a + " park inline")
		k.await("the bridge's end", completed(id))
		k.ended(b)
		k.parkedAgain(2)
		k.kill()
	}},
	{name: "dial, taken back to the park while bridged", play: func(k *take) {
		k.call()
		k.run("answer", "")
		id := k.start("bridge", "{originate_timeout=20}sofia/gateway/carrier/+15550800")
		b := k.leg("+15550800")
		k.await("the bridge", named("CHANNEL_BRIDGE", k.a))
		k.api("uuid_transfer " + k.a + " park inline")
		k.await("the bridge's end", completed(id))
		k.ended(b)
		k.parkedAgain(2)
		k.kill()
	}},
	{name: "dial, broken while it rings", play: func(k *take) {
		k.call()
		k.run("answer", "")
		id := k.start("bridge", "{originate_timeout=3}sofia/gateway/carrier/+15550180")
		b := k.leg("+15550180")
		k.await("the ringing", named("CHANNEL_PROGRESS", b))
		k.api("uuid_break " + k.a + " all")
		k.await("the bridge's end", completed(id))
		k.ended(b)
		k.kill()
	}},
	{name: "dial, broken while bridged", play: func(k *take) {
		k.call()
		k.run("answer", "")
		id := k.start("bridge", "{originate_timeout=20}sofia/gateway/carrier/+15550701")
		b := k.leg("+15550701")
		k.await("the bridge", named("CHANNEL_BRIDGE", k.a))
		k.api("uuid_break " + k.a + " all")
		k.await("the bridge's end", completed(id))
		k.ended(b)
		k.kill()
	}},
	{name: "dial, the callee types", play: func(k *take) {
		k.call()
		k.run("answer", "")
		k.start("bridge", "{originate_timeout=20}sofia/gateway/carrier/+15550731")
		b := k.leg("+15550731")
		k.await("the digit", func(e map[string]string) bool { return e["Event-Name"] == "DTMF" && e["Unique-ID"] == b })
		k.kill()
		k.ended(b)
	}, loose: []string{"variable_bridge_hangup_cause"}},
}
