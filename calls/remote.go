package calls

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"tandem/esl"
	"tandem/models"
)

// Remote is what it takes to work with nodes whose disk is not shared (models.DeliveryXMLCurl): their recordings come by HTTP, and the sound files
// that they play go there the same way.
type Remote struct {
	// URL is where these nodes reach the port that [Manager.Receive] is behind, without a path of its own.
	URL string
	// Dir takes their recordings, and below "media" the sound files on their way to them.
	Dir string
	// Limit is the size of the largest recording, in bytes. Default 1 GiB.
	Limit int64
	// Offer lets a node fetch a file from a URL until done is called.
	Offer func(nodeID, name string, content []byte) (url string, done func())
	// Want lets a node leave a file of at most limit bytes at a URL until done is called; without it no CDRs come from the nodes' disks.
	Want func(nodeID, name string, limit int64) (url string, arrived <-chan []byte, done func())
}

// errands fetches what remote nodes have and we have not, recordings and CDRs, until ctx ends.
func (m *Manager) errands(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { m.uploads(ctx) })
	both.Go(func() { m.cdrs(ctx) })
	both.Wait()
}

// courier is what the switch of such a node does with its own files; *esl.Node is one.
type courier interface {
	FetchFile(ctx context.Context, url string) (path string, err error)
	SendFile(ctx context.Context, url, path string) error
	FileExists(ctx context.Context, path string) (bool, error)
	MoveFiles(ctx context.Context, moves []esl.Move) error
}

var _ courier = (*esl.Node)(nil)

// errNotReached: a remote node, and no way to its disk.
var errNotReached = errors.New("the node's disk is not shared, and there is no port for nodes (node_addr, node_url)")

// courier returns the way to the files of a remote node.
func (n *node) courier() (courier, error) {
	c, ok := n.sw.(courier)
	if !ok || n.m.cfg.Remote == nil {
		return nil, errNotReached
	}
	return c, nil
}

// makeFolder makes a folder that the switch writes into, where the disk is ours to do so.
func (n *node) makeFolder(dir string) error {
	if n.row.Remote() {
		return nil
	}
	return os.MkdirAll(dir, 0o777) //nolint:gosec // the switch runs as another user and writes here
}

// mediaDir is where fetched sound files of a node are kept: its own folder, or one of ours that it fetches them from.
func (c *Config) mediaDir(row models.Node) string {
	if !row.Remote() {
		return c.MediaDir(row)
	}
	if c.Remote == nil {
		return filepath.Join(os.TempDir(), "tandem-media", row.ID) // nothing is played from there: see node.place
	}
	return filepath.Join(c.Remote.Dir, "media", row.ID)
}

// place brings a sound file to where the node's switch can play it, and returns its path there.
func (n *node) place(ctx context.Context, file string) (string, error) {
	if !n.row.Remote() {
		return file, nil
	}
	c, err := n.courier()
	if err != nil {
		return "", err
	}
	n.mu.Lock()
	placed := n.placed[file] // a file is named by what it holds
	n.mu.Unlock()
	if placed != "" {
		there, err := c.FileExists(ctx, placed)
		if err != nil {
			return "", fmt.Errorf("bring the file to the node: %w", err)
		}
		if there {
			return placed, nil
		}
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("bring the file to the node: %w", err)
	}
	url, done := n.m.cfg.Remote.Offer(n.row.ID, filepath.Base(file), content)
	defer done()
	if placed, err = c.FetchFile(ctx, url); err != nil {
		return "", fmt.Errorf("bring the file to the node: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.placed) >= placedMost {
		clear(n.placed)
	}
	n.placed[file] = placed
	return placed, nil
}

// placedMost is how many files of a remote node are remembered; the node itself keeps no more (http_cache.conf.xml, max-urls).
const placedMost = 4000
