package simswitch

// packetsPerSecond is how many packets of sound a party sends: one for every 20 ms.
const packetsPerSecond = 50

// soundVarsLocked is what is read of switch_core_media_set_stats (switch_core_media.c, set_stats): how many packets of sound came and
// went, from the moment the channel had media. A party sends packets when it says nothing, too, unless its script has none come.
func (c *channel) soundVarsLocked() {
	begun := c.times.progressMedia
	if begun == 0 {
		begun = c.times.answered
	}
	if begun == 0 {
		return // a channel without media has no statistics
	}
	sent := int(max(0, c.times.hangup-begun) * packetsPerSecond / 1e6)
	received := sent
	if c.incoming != nil && c.incoming.NoSound {
		received = 0
	}
	c.setLocked("rtp_audio_in_media_packet_count", itoa(received))
	c.setLocked("rtp_audio_out_media_packet_count", itoa(sent))
}
