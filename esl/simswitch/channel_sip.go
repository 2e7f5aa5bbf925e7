package simswitch

import (
	"strings"
)

// The variables below are what mod_sofia sets on a channel, with the addresses of a loopback carrier.
const (
	// typicalVars is how many variables a channel has at its end, roughly.
	typicalVars  = 160
	profileName  = "external"
	sipPort      = "5080"
	carrierPort  = "5090"
	sipAllow     = "INVITE, ACK, BYE, CANCEL, OPTIONS, MESSAGE, INFO, UPDATE, REGISTER, REFER, NOTIFY"
	sipUserAgent = "FreeSWITCH-mod_sofia/" + Version
)

func (c *channel) append(pairs ...string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			c.vars = append(c.vars, header{sessionHeaderPrefix + pairs[i], pairs[i+1]})
		}
	}
}

// inboundVars fills the variables of a call that came in. Nobody else has the channel yet.
func (c *channel) inboundVars(call *IncomingCall) {
	c.vars = make([]header, 0, typicalVars)
	host := call.SourceIP
	c.append("direction", "inbound", "uuid", c.uuid, "session_id", itoa(int(c.sessionID)),
		"sip_from_user", call.From, "sip_from_uri", call.From+"@"+host, "sip_from_host", host,
		"channel_name", c.name, "sip_call_id", newUUID(), "sip_local_network_addr", "127.0.0.1",
		"sip_network_ip", host, "sip_network_port", carrierPort, "sip_invite_stamp", stamp(c.times.created),
		"sip_received_ip", host, "sip_received_port", carrierPort, "sip_via_protocol", "udp",
		"sip_from_user_stripped", strings.TrimPrefix(call.From, "+"), "sip_from_tag", newUUID()[:13],
		"sofia_profile_name", profileName, "sofia_profile_url", "sip:mod_sofia@127.0.0.1:"+sipPort,
		"recovery_profile_name", profileName, "sip_cid_type", "rpid",
		"sip_full_from", "<sip:"+call.From+"@"+host+">", "sip_full_to", "<sip:"+call.To+"@127.0.0.1:"+sipPort+">",
		"sip_allow", sipAllow, "sip_req_user", call.To, "sip_req_port", sipPort, "sip_req_uri", call.To+"@127.0.0.1:"+sipPort,
		"sip_req_host", "127.0.0.1", "sip_to_user", call.To, "sip_to_port", sipPort, "sip_to_uri", call.To+"@127.0.0.1:"+sipPort,
		"sip_to_host", "127.0.0.1", "sip_contact_user", "mod_sofia", "sip_contact_port", carrierPort,
		"sip_contact_uri", "mod_sofia@"+host+":"+carrierPort, "sip_contact_host", host, "sip_user_agent", sipUserAgent,
		"sip_via_host", host, "sip_via_port", carrierPort, "sip_via_rport", carrierPort, "max_forwards", "70",
		"ep_codec_string", "CORE_PCM_MODULE.PCMU@8000h@20i@64000b", "rtp_use_codec_string", "PCMU,PCMA",
		"audio_media_flow", "sendrecv", "remote_media_ip", host, "remote_media_port", "40232",
		"rtp_use_codec_name", "PCMU", "rtp_use_codec_rate", "8000", "rtp_use_codec_ptime", "20",
		"read_codec", "PCMU", "read_rate", "8000", "write_codec", "PCMU", "write_rate", "8000", "dtmf_type", "rfc2833",
		"endpoint_disposition", "RECEIVED", "call_uuid", c.uuid)
	for name, value := range call.SIPHeaders {
		c.append("sip_h_"+name, value)
	}
}

// outboundVars fills the variables of a leg that this switch dials.
func (c *channel) outboundVars(t *target) {
	c.vars = make([]header, 0, typicalVars)
	c.append("direction", "outbound", "is_outbound", "true", "uuid", c.uuid, "session_id", itoa(int(c.sessionID)))
	if t.gateway != nil {
		c.append("sip_gateway_name", t.gateway.name, "sip_invite_domain", t.gateway.domain(), "sip_profile_name", "gateway")
	} else {
		c.append("sip_profile_name", profileName)
	}
	c.append("sip_local_network_addr", "127.0.0.1", "channel_name", c.name, "sip_destination_url", "sip:"+t.user+"@"+t.host(),
		"max_forwards", "69", "call_uuid", c.callUUID)
}

func (c *channel) outboundMediaVars(t *target) {
	c.append("originate_early_media", "true", "originate_endpoint", "sofia", "rtp_use_codec_string", "PCMU,PCMA",
		"local_media_ip", "127.0.0.1", "local_media_port", "21842", "advertised_media_ip", "127.0.0.1", "audio_media_flow", "sendrecv",
		"sip_req_uri", t.user+"@"+t.host(), "sip_to_host", t.host(), "sofia_profile_name", profileName,
		"recovery_profile_name", profileName, "sofia_profile_url", "sip:mod_sofia@127.0.0.1:"+sipPort)
}

// progressVarsLocked are the variables that the first provisional or final answer of the far end brings.
func (c *channel) progressVarsLocked() {
	if !c.outbound {
		return
	}
	if c.profile.networkAddr == "" {
		c.profile.networkAddr = "127.0.0.1"
	}
	c.profile.calleeName = c.profile.destination
	if _, known := c.hasVariableLocked("sip_network_ip"); known {
		return
	}
	c.append("sip_reply_host", "127.0.0.1", "sip_reply_port", carrierPort, "sip_network_ip", "127.0.0.1",
		"sip_network_port", carrierPort, "sip_user_agent", sipUserAgent, "sip_allow", sipAllow,
		"sip_to_user", c.profile.destination, "sip_to_tag", newUUID()[:13], "sip_from_tag", newUUID()[:13],
		"sip_call_id", newUUID())
}

// mediaVarsLocked are the variables of a channel that has audio.
func (c *channel) mediaVarsLocked(disposition string) {
	c.codec = "PCMU"
	if disposition != "" {
		c.setLocked("endpoint_disposition", disposition)
	}
	if _, known := c.hasVariableLocked("rtp_use_pt"); known {
		return
	}
	if c.outbound {
		c.append("read_codec", "PCMU", "read_rate", "8000", "write_codec", "PCMU", "write_rate", "8000", "dtmf_type", "rfc2833",
			"remote_media_ip", "127.0.0.1", "remote_media_port", "39470")
	} else {
		c.append("local_media_ip", "127.0.0.1", "local_media_port", "32262", "advertised_media_ip", "127.0.0.1")
	}
	c.append("rtp_use_timer_name", "soft", "rtp_use_pt", "0", "rtp_2833_send_payload", "101", "rtp_2833_recv_payload", "101")
}
