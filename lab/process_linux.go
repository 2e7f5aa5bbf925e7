package lab

import "syscall"

// dieWithParent makes the kernel kill the switch when the test process dies, however it dies.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
