//go:build !linux

package modelstest

import "syscall"

// dieWithTests cannot make a server die with the test process here; the end of the test stops it.
func dieWithTests() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
