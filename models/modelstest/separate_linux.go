package modelstest

import "syscall"

// dieWithTests makes the kernel stop a server at once when the test process dies, however it dies.
func dieWithTests() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGQUIT}
}
