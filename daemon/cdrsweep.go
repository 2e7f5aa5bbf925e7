package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tandem/calls"
	"tandem/models"
)

const (
	// sweepEvery is how often the CDR folders of the nodes are looked into.
	sweepEvery = time.Second
	// sweepBatch is how many CDRs are stored with one commit.
	sweepBatch = 200
	// sweepPatience is how long a file that ends in the middle is taken to be still written.
	sweepPatience = 30 * time.Second
	// cdrSuffix ends the names of the files that mod_json_cdr writes: UUID.cdr.json.
	cdrSuffix = ".cdr.json"
	// refusedCDRs is the folder, below theirs, for files that are no CDRs.
	refusedCDRs = "refused"
)

// cdrFolder is where a node writes the CDRs that nobody took, see freeswitch-conf/autoload_configs/json_cdr.conf.xml.
func cdrFolder(confDir string) string { return filepath.Join(confDir, "tandem", "cdr") }

// cdrSweeper collects the CDRs that the nodes of this controller could not post. A file is deleted when what it says is durable,
// and not before: a sweep that dies in between is done again.
type cdrSweeper struct {
	store  *models.Store
	nodes  func() []models.Node
	logger *slog.Logger
	cancel context.CancelFunc
	done   chan struct{}
}

// startCDRSweeper sweeps the folders of the nodes that nodes returns, now and then every second until stop.
func startCDRSweeper(ctx context.Context, store *models.Store, nodes func() []models.Node, logger *slog.Logger) *cdrSweeper {
	w := &cdrSweeper{store: store, nodes: nodes, logger: logger, done: make(chan struct{})}
	ctx, w.cancel = context.WithCancel(ctx)
	go func() {
		defer close(w.done)
		ticker := time.NewTicker(sweepEvery)
		defer ticker.Stop()
		failing := map[string]bool{} // told once, not every second
		for {
			for _, node := range w.nodes() {
				_, err := w.sweep(ctx, node)
				if err != nil && ctx.Err() == nil && !failing[node.ID] {
					w.logger.Error("cannot collect the CDRs of a node", "node", node.Name, "error", err)
				}
				failing[node.ID] = err != nil
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return w
}

func (w *cdrSweeper) stop(context.Context) error {
	w.cancel()
	<-w.done
	return nil
}

// sweep collects everything that is in a node's folder now, and returns how many CDRs that were.
func (w *cdrSweeper) sweep(ctx context.Context, node models.Node) (int, error) {
	root, err := os.OpenRoot(cdrFolder(node.ConfDir))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("open the CDR folder: %w", err)
	}
	defer func() { _ = root.Close() }()
	folder, err := root.Open(".")
	if err != nil {
		return 0, fmt.Errorf("open the CDR folder: %w", err)
	}
	defer func() { _ = folder.Close() }()
	for total := 0; ; {
		entries, err := folder.ReadDir(sweepBatch)
		if err != nil && !errors.Is(err, io.EOF) {
			return total, fmt.Errorf("list the CDR folder: %w", err)
		}
		if len(entries) == 0 || ctx.Err() != nil {
			return total, ctx.Err()
		}
		collected, err := w.collect(ctx, root, node, entries)
		total += collected
		if err != nil {
			return total, err
		}
	}
}

// collect stores the CDRs among some files of a folder and deletes these files.
func (w *cdrSweeper) collect(ctx context.Context, root *os.Root, node models.Node, entries []os.DirEntry) (int, error) {
	var cdrs []models.CDR
	var names []string
	for _, entry := range entries {
		channel, ok := strings.CutSuffix(entry.Name(), cdrSuffix)
		if !ok || !entry.Type().IsRegular() {
			continue
		}
		cdr, unfinished, err := readCDR(root, entry.Name(), channel)
		switch {
		case errors.Is(err, fs.ErrNotExist), unfinished:
		case errors.Is(err, calls.ErrBadCDR):
			w.logger.Error("file is no CDR and is set aside", "node", node.Name, "file", entry.Name(), "error", err)
			if err := setAside(root, entry.Name()); err != nil {
				return 0, err
			}
		case err != nil:
			return 0, err
		default:
			cdr.NodeID = node.ID
			cdrs, names = append(cdrs, cdr), append(names, entry.Name())
		}
	}
	if len(cdrs) == 0 {
		return 0, nil
	}
	if err := w.store.SaveCDRs(ctx, cdrs); err != nil {
		return 0, err
	}
	for _, name := range names {
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return len(cdrs), fmt.Errorf("delete a CDR that is stored: %w", err)
		}
	}
	w.logger.Info("collected CDRs that a node could not post", "node", node.Name, "count", len(cdrs))
	return len(cdrs), nil
}

// readCDR reads a file. Unfinished says that it ends in the middle and is young: the switch writes it under its own name at once.
func readCDR(root *os.Root, name, channel string) (cdr models.CDR, unfinished bool, err error) {
	file, err := root.Open(name)
	if err != nil {
		return cdr, false, fmt.Errorf("open a CDR: %w", err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return cdr, false, fmt.Errorf("look at a CDR: %w", err)
	}
	body, err := io.ReadAll(io.LimitReader(file, calls.CDRLimit+1))
	if err != nil {
		return cdr, false, fmt.Errorf("read a CDR: %w", err)
	}
	cdr, err = calls.ParseCDR(channel, bytes.TrimSuffix(body, []byte("\n")))
	torn := errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
	return cdr, torn && time.Since(info.ModTime()) < sweepPatience, err
}

// setAside moves a file that is no CDR out of the way, for people to look at.
func setAside(root *os.Root, name string) error {
	if err := root.Mkdir(refusedCDRs, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the folder of refused CDRs: %w", err)
	}
	if err := root.Rename(name, filepath.Join(refusedCDRs, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("set a file aside that is no CDR: %w", err)
	}
	return nil
}

// rows are the nodes whose lease is ours and whose disk we share.
func (k *nodeKeeper) rows() []models.Node {
	k.mu.Lock()
	defer k.mu.Unlock()
	rows := make([]models.Node, 0, len(k.held))
	for _, held := range k.held {
		if !held.row.Remote() {
			rows = append(rows, held.row)
		}
	}
	return rows
}
