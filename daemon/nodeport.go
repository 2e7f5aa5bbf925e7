package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"tandem/calls"
	"tandem/dialplan"
	"tandem/models"
	"tandem/nodeport"
)

// newExchange makes the exchange of files with nodes whose disk is not shared, nil where none is configured.
func newExchange(cfg Config) (*dialplan.Exchange, error) {
	if cfg.NodeURL == "" {
		return nil, nil //nolint:nilnil // no exchange is a controller without such nodes
	}
	exchange, err := dialplan.NewExchange(cfg.NodeURL)
	if err != nil {
		return nil, fmt.Errorf("node port: %w", err)
	}
	return exchange, nil
}

// remoteNodes is what the calls of such nodes need, nil where there is no exchange.
func remoteNodes(cfg Config, exchange *dialplan.Exchange) *calls.Remote {
	if exchange == nil {
		return nil
	}
	return &calls.Remote{URL: strings.TrimSuffix(cfg.NodeURL, "/"), Dir: cfg.RecordingsDir, Limit: cfg.RecordingLimit, Offer: exchange.Offer, Want: exchange.Want}
}

// startNodePort starts the port that such nodes talk to, where one is configured.
func (c *controller) startNodePort(ctx context.Context, exchange *dialplan.Exchange, manager *calls.Manager) error {
	if exchange == nil {
		return nil
	}
	answers, err := dialplan.NewAnswers(c.store, c.cfg.SIPProfile)
	if err != nil {
		return fmt.Errorf("node port: %w", err)
	}
	server, err := nodeport.New(nodeport.Config{
		Nodes: c.store, Files: exchange, Routes: answers, Recordings: manager, Logger: c.logger.With("part", "nodeport"), Status: nodePortStatus,
	})
	if err != nil {
		return fmt.Errorf("node port: %w", err)
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", c.cfg.NodeAddr)
	if err != nil {
		return fmt.Errorf("listen on %s for nodes: %w", c.cfg.NodeAddr, err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(listener); err != nil {
			c.failed <- err
		}
	}()
	c.parts.add("node port", func(ctx context.Context) error {
		err := server.Shutdown(ctx)
		<-served
		return err
	})
	return nil
}

// nodePortStatus is the one place where what goes wrong with a node's request gets its HTTP status. The switch knows 2xx and the rest; the
// status is in its log, and in ours.
func nodePortStatus(err error) int {
	for _, known := range []struct {
		err    error
		status int
	}{
		{dialplan.ErrNoExchange, http.StatusNotFound},
		{dialplan.ErrTooLarge, http.StatusRequestEntityTooLarge},
		{calls.ErrNoUpload, http.StatusNotFound},
		{calls.ErrRecordingTooLarge, http.StatusRequestEntityTooLarge},
		{calls.ErrNotRecording, http.StatusUnprocessableEntity},
		{io.ErrUnexpectedEOF, http.StatusBadRequest},
		{models.ErrUnreachable, http.StatusServiceUnavailable},
		{models.ErrStorageFull, http.StatusInsufficientStorage},
	} {
		if errors.Is(err, known.err) {
			return known.status
		}
	}
	return 0
}
