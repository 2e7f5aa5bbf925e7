// Package lab starts real FreeSWITCHes for tests: nodes configured by freeswitch-conf, and a carrier that plays the
// telephone company. Everything listens on loopback, on ports of its own, below a directory of its own, so that many test
// processes use it at once. Where no FreeSWITCH is installed the tests that ask for one are skipped.
package lab
