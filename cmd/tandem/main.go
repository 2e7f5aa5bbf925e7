// Command tandem is self-hosted programmable voice: a control plane that drives FreeSWITCH over the Event Socket.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tandem:", err)
		os.Exit(exitCode(err))
	}
}
