package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Blocks of ports lie below the range from which the kernel takes ports for outgoing connections, so that no client can sit
// on a port between the moment it is chosen and the moment FreeSWITCH binds it.
const (
	firstPort = 10240
	blockSize = 256
	blocks    = 84
	// rtpOffset leaves room in front of the media ports for the Event Socket and the SIP profiles.
	rtpOffset = 16
)

// block is a range of ports that no other process using this package has, for as long as its lock is held.
type block struct {
	base int
	lock *os.File
}

// reserve takes a free block. The lock is an flock, which dies with the process, so that a killed test leaks nothing.
func reserve(ctx context.Context) (*block, error) {
	folder := filepath.Join(os.TempDir(), "tandem-lab-ports")
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return nil, fmt.Errorf("reserve ports: %w", err)
	}
	for _, n := range rand.Perm(blocks) {
		base := firstPort + n*blockSize
		lock, err := os.OpenFile(filepath.Join(folder, strconv.Itoa(base)), os.O_CREATE|os.O_RDWR, 0o666)
		if err != nil {
			return nil, fmt.Errorf("reserve ports: %w", err)
		}
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil && free(ctx, base) {
			return &block{base: base, lock: lock}, nil
		}
		_ = lock.Close()
	}
	return nil, errors.New("reserve ports: every block is taken")
}

func (b *block) release() { _ = b.lock.Close() }

func (b *block) esl() int      { return b.base }
func (b *block) sip() int      { return b.base + 1 }
func (b *block) rtpStart() int { return b.base + rtpOffset }
func (b *block) rtpEnd() int   { return b.base + blockSize - 1 }

// free reports whether the fixed ports of a block can be bound, over TCP and UDP.
func free(ctx context.Context, base int) bool {
	var config net.ListenConfig
	for port := base; port < base+rtpOffset; port++ {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		stream, err := config.Listen(ctx, "tcp", addr)
		if err != nil {
			return false
		}
		_ = stream.Close()
		packets, err := config.ListenPacket(ctx, "udp", addr)
		if err != nil {
			return false
		}
		_ = packets.Close()
	}
	return true
}
