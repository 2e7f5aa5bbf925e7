// Package actions is the vocabulary an application's answer_url speaks: it parses and validates a reply, and writes the
// canonical form back for the stored cursor of a call. It is pure: it does no I/O and knows nothing of FreeSWITCH.
//
// Every verb is one file that declares a struct and its table of fields. The table is the only description of the verb:
// parsing, validation and encoding all walk it, so a limit cannot differ between them.
package actions
