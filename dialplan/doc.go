// Package dialplan writes what a FreeSWITCH node must know of trunks and numbers, and keeps it current: a gateway per
// outbound trunk, the addresses that may call in, and the numbers they may call.
//
// # Who may call in
//
// One access list, "tandem", says who an address belongs to. It is built from the users of the directory's domain "tandem"
// (switch_core.c, switch_load_network_lists): each has a cidr, and the list gives an address, by longest prefix, IPv4 and
// IPv6, the token "<user id>@tandem". The SIP profile applies the list to each INVITE and keeps the token in the channel
// variable acl_token (sofia.c, sofia_handle_sip_i_invite), which nothing in a SIP message can set. A user id tells whose
// address it is: "<customer>.<trunk>.did", "<customer>.<trunk>.any" for a trunk with an application of its own, both with
// ".<n>" behind the trunk for its second address and those behind it, and "provider.<n>.did" for one of the operator's providers.
//
// The list is asked for the token only. Calls from unknown addresses enter the same context and are refused there, for two
// reasons: a profile that refuses by itself leaves nothing to count, and the parameter ";gw=NAME" of a request URI picks the
// gateway's context whatever the list said (sofia.c, sofia_handle_sip_i_invite), so the context has to look at the token anyway.
//
// The context "public" knows only which shards have numbers. It normalises the number and transfers to "did_NNN", the last
// three digits, where a number's one extension looks at number and token together and runs its one application: park for
// the controller, bridge to a SIP address, or a refusal. So no context holds a condition per trunk, none holds all numbers,
// and every decision is FreeSWITCH's own: SIP and reject routes work with no controller alive.
package dialplan
