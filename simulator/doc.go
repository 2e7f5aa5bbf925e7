// Package simulator runs an application's real answer_url against a scripted caller, with no call and no charge. The flow is
// run by the product's own calls package, against a stage that stands in for the switch and a database that is thrown away, so
// that what a simulation does is what a call would do: the same requests with the same signatures, the same validation, the
// same results and the same commands for the switch.
package simulator
