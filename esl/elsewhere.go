package esl

// Deflect asks the caller's telephone or carrier to call somebody else: a SIP REFER (RFC 3515) on an answered call. Unless the channel's
// variable sip_refer_continue_after_reply is true, the switch waits for the outcome for ten seconds and hangs up whatever it is (mod_sofia.c,
// SWITCH_MESSAGE_INDICATE_DEFLECT). The status of the reply is then in the variable sip_refer_status_code, and what became of the new call, when
// that is told, in sip_refer_target_status_code (sofia.c, sofia_handle_sip_i_notify).
func Deflect(sipURI string) (App, error) {
	uri, err := cleanSIPURI(sipURI)
	if err != nil {
		return App{}, err
	}
	// Without the brackets the URI's parameters would be the header's.
	return App{name: "deflect", args: "<" + uri + ">"}, nil
}

// RedirectApp answers an INVITE that was not answered yet with 302 and another address, which ends the channel (mod_sofia.c,
// SWITCH_MESSAGE_INDICATE_REDIRECT). On an answered call it does nothing.
func RedirectApp(sipURI string) (App, error) {
	uri, err := cleanSIPURI(sipURI)
	if err != nil {
		return App{}, err
	}
	return App{name: "redirect", args: uri}, nil
}
