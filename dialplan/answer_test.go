package dialplan

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
)

// numbers is a store of DIDs that counts how often it is asked.
type numbers struct {
	mu    sync.Mutex
	dids  []models.DID
	err   error
	asked int
}

func (n *numbers) RouteDID(_ context.Context, number string) (*models.DID, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	if n.err != nil {
		return nil, n.err
	}
	for i := range n.dids {
		if n.dids[i].NumberE164 == number {
			did := n.dids[i]
			return &did, nil
		}
	}
	return nil, fmt.Errorf("DID %q: %w", number, models.ErrNotFound)
}

func (n *numbers) set(dids ...models.DID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dids = dids
}

func (n *numbers) questions() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked
}

// TestAnswersAreTheFiles holds what a node is answered at a hunt to what its files say.
func TestAnswersAreTheFiles(t *testing.T) {
	t.Parallel()
	busy, bridged, wrong := number("did_2", "cust_a", "+15550002568"), number("did_3", "cust_b", "+4930123569"), number("did_4", "cust_a", "+15550004570")
	busy.RouteMode, busy.RejectCode = models.RouteReject, 486
	bridged.RouteMode, bridged.SIPURI = models.RouteSIP, "sip:100;transport=tls@pbx.example"
	wrong.RouteMode = "by pigeon"
	dids := []models.DID{number("did_1", "cust_a", "+15550001567"), busy, bridged, wrong}
	store := &numbers{dids: dids}
	a, err := NewAnswers(store, "")
	require.NoError(t, err)
	const head, tail = "<document type=\"freeswitch/xml\">\n<section name=\"dialplan\">\n", "</section>\n</document>\n"
	for i := range dids {
		rendering, err := Render(Input{DIDs: dids[i : i+1]})
		require.NoError(t, err)
		plus := dids[i].NumberE164
		for _, dialled := range []string{plus, plus[1:], "00" + plus[1:]} {
			document, found, err := a.Hunt(t.Context(), "public", dialled)
			require.NoError(t, err)
			require.True(t, found, dialled)
			require.Equal(t, head+string(rendering.Files[entryPath])+tail, string(document))
		}
		document, found, err := a.Hunt(t.Context(), "did_"+shardOf(plus), plus)
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, head+string(rendering.Files[shardPath(shardOf(plus))])+tail, string(document))
	}

	asked := store.asked
	for _, c := range [][2]string{
		{"trunk", "+15550001567"}, {"default", "+15550001567"}, {"did_567", "+15550001568"}, {"did_5678", "+15550005678"}, {"did_abc", "abc"}, {"", ""},
		{"public", "100"}, {"public", "+155500015670000000"}, {"public", "${system(id)}567"}, {"public", "+1555\n0001567"},
	} {
		_, found, err := a.Hunt(t.Context(), c[0], c[1])
		require.NoError(t, err)
		require.False(t, found, c)
	}
	require.Equal(t, asked, store.asked, "no question for the database")

	_, found, err := a.Hunt(t.Context(), "public", "+15550009567")
	require.NoError(t, err)
	require.False(t, found, "the node's own files know who may call what is no DID")
	document, found, err := a.Hunt(t.Context(), "did_567", "+15550009567")
	require.NoError(t, err)
	require.True(t, found, "its files may still have a DID that is gone")
	require.Equal(t, head+string(renderShard("567", nil))+tail, string(document))
	require.Equal(t, 1, strings.Count(string(document), refuseUnknown))

	store.err = errors.New("database is away")
	_, _, err = a.Hunt(t.Context(), "public", "+15550001567")
	require.ErrorIs(t, err, store.err)
	_, err = NewAnswers(nil, "")
	require.Error(t, err)
	_, err = NewAnswers(store, "a b")
	require.Error(t, err)
}
