// Package actions is the vocabulary an application's answer_url speaks: it parses and validates a reply, and writes the
// canonical form back for the stored cursor of a call. It is pure: it does no I/O and knows nothing of FreeSWITCH.
//
// Every verb is one file that declares a struct, its table of fields and its results. The table is the only description of
// the verb: parsing, validation, encoding, the JSON Schema and docs/actions.md all walk it, so that a limit cannot differ
// between them. A rule that spans several fields stands twice, side by side: in validate for the parser and in rules for the
// schema; drawn replies hold the two to each other in the tests.
package actions
