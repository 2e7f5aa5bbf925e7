package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// errDeclined: whoever was asked did not say yes.
var errDeclined = errors.New("nothing was done")

// confirm asks whether something dangerous is to be done, on standard error; the format ends with a question mark. Anything but
// yes is no. With --yes nobody is asked; where nobody sits at a terminal, --yes is needed.
func (o *options) confirm(ctx context.Context, cmd *cobra.Command, format string, args ...any) error {
	if o.yes {
		return nil
	}
	question := printable(fmt.Sprintf(format, args...))
	if !interactive(cmd.InOrStdin()) {
		return usage("%s This needs --yes where nobody can be asked", question)
	}
	_, _ = fmt.Fprint(cmd.ErrOrStderr(), question+" [y/N] ")
	return answered(ctx, cmd.InOrStdin())
}

// answered reads the answer to a question. It does not outlive ctx, though its reading does: a terminal cannot be told to stop.
func answered(ctx context.Context, from io.Reader) error {
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(io.LimitReader(from, 1024)).ReadString('\n') // what cannot be read is no yes
		line <- text
	}()
	select {
	case text := <-line:
		switch strings.ToLower(strings.TrimSpace(text)) {
		case "y", "yes":
			return nil
		}
		return errDeclined
	case <-ctx.Done():
		return errDeclined
	}
}
