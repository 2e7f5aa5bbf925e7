package daemon

import (
	"os"
	"syscall"
)

// lockFile takes an exclusive lock that the kernel drops when the process ends, however it ends.
func lockFile(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
