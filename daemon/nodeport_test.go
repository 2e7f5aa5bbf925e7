package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/calls"
	"tandem/dialplan"
	"tandem/esl/simswitch"
	"tandem/models"
	"tandem/models/modelstest"
)

// freeAddr is an address that nobody listens on.
func freeAddr(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := listener.Addr().String()
	require.NoError(t, listener.Close())
	return addr
}

// TestControllerOfARemoteNode wires it all: a node with a disk of its own gets its configuration through the port for nodes, and the controller
// that holds it carries out what is ordered.
func TestControllerOfARemoteNode(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	nodeAddr, confDir := freeAddr(t), t.TempDir()
	for _, folder := range []string{"gateways", "dialplan", "directory"} {
		require.NoError(t, os.MkdirAll(filepath.Join(confDir, "tandem", folder), 0o750))
	}
	sim, err := simswitch.New(simswitch.Config{
		Password: "secret", ConfDir: confDir, NodeCredentials: "remote:0123456789abcdef", Variables: map[string]string{"app_disable_expand_variables": "true"},
		Modules: append(simswitch.DefaultModules(), "mod_http_cache", "mod_loopback"),
	})
	require.NoError(t, err)
	require.NoError(t, sim.Start())
	t.Cleanup(func() { require.NoError(t, sim.Close()) })
	customer := modelstest.Customer(t, store, 0)
	trunk := modelstest.OutboundTrunk(t, store, customer)
	node := &models.Node{Name: "remote", ESLAddr: sim.Addr(), Password: "secret", ConfDir: confDir, Delivery: models.DeliveryXMLCurl, IsActive: true}
	require.NoError(t, store.CreateNode(t.Context(), node))
	require.NoError(t, store.SetCDRToken(t.Context(), node.ID, "0123456789abcdef"))
	cfg, err := loaded(t, map[string]string{"node_addr": nodeAddr, "node_url": "http://" + nodeAddr, "recordings_dir": filepath.Join(t.TempDir(), "recordings")})
	require.NoError(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c, err := startController(t.Context(), cfg, slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})), store, listener, "first", nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.stop()) })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, c.nodes.ready(ctx, "remote"))
	gateway := filepath.Join(confDir, "tandem", "gateways", trunk.GatewayName+".xml")
	require.FileExists(t, gateway)

	order := func(kind string) *models.NodeOrder {
		t.Helper()
		asked := &models.NodeOrder{NodeID: node.ID, Kind: kind}
		require.NoError(t, store.AskNode(ctx, asked))
		var done *models.NodeOrder
		require.Eventually(t, func() bool {
			done, err = store.NodeOrder(ctx, asked.ID)
			return err == nil && done.DoneAt != nil
		}, 30*time.Second, 20*time.Millisecond)
		require.Empty(t, done.Error)
		return done
	}
	require.NoError(t, os.WriteFile(gateway, []byte("spoilt by hand"), 0o600))
	var plan dialplan.Plan
	require.NoError(t, json.Unmarshal(order(models.OrderDiff).Result, &plan))
	require.Len(t, plan.Changes, 1)
	require.Equal(t, []any{"change", "gateway", trunk.GatewayName}, []any{plan.Changes[0].Op, plan.Changes[0].Kind, plan.Changes[0].Name})
	var report dialplan.Report
	require.NoError(t, json.Unmarshal(order(models.OrderApply).Result, &report))
	require.Equal(t, []string{"tandem/gateways/" + trunk.GatewayName + ".xml"}, report.Written)
	content, err := os.ReadFile(gateway)
	require.NoError(t, err)
	require.NotContains(t, string(content), "spoilt")
	require.NoError(t, json.Unmarshal(order(models.OrderDiff).Result, &plan))

	// Nobody else gets anything from the port.
	for _, path := range []string{"/internal/xml", "/internal/files/x/y.xml", "/v1/me"} {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+nodeAddr+path, http.NoBody)
		require.NoError(t, err)
		response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Contains(t, []int{http.StatusUnauthorized, http.StatusNotFound, http.StatusMethodNotAllowed}, response.StatusCode, path)
	}
}

func TestNodePortStatus(t *testing.T) {
	t.Parallel()
	for err, status := range map[error]int{
		dialplan.ErrNoExchange: 404, dialplan.ErrTooLarge: 413, calls.ErrNoUpload: 404, calls.ErrRecordingTooLarge: 413, calls.ErrNotRecording: 422,
		io.ErrUnexpectedEOF: 400, models.ErrUnreachable: 503, models.ErrStorageFull: 507, errors.New("unforeseen"): 0,
	} {
		require.Equal(t, status, nodePortStatus(fmt.Errorf("wrapped: %w", err)), err)
	}
}
