package dialplan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// fileMode lets the switch read when it runs as another user of the folder's group, and nobody else: gateways hold passwords.
	fileMode   = 0o640
	folderMode = 0o750
	// stagePattern names files that are not complete yet; no include's pattern matches them.
	stagePattern = ".stage-*"
	journalPath  = "tandem/.pending.json"
)

var managedFolders = []string{gatewayFolder, dialplanFolder, directoryFolder}

// folder is a node's configuration directory.
type folder struct{ root string }

func (f folder) path(name string) string { return filepath.Join(f.root, filepath.FromSlash(name)) }

// check makes sure that the directory is there. Were it made here, a path that is wrong or not mounted would look right.
func (f folder) check() error {
	if !filepath.IsAbs(f.root) {
		return fmt.Errorf("configuration directory %q is not an absolute path", f.root)
	}
	info, err := os.Stat(f.root)
	if err != nil {
		return fmt.Errorf("configuration directory: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("configuration directory %q is no directory", f.root)
	}
	return nil
}

// difference is what must change in a folder, each list sorted.
type difference struct {
	written []string // new or changed
	removed []string // there, but in no rendering
}

func (d difference) empty() bool { return len(d.written) == 0 && len(d.removed) == 0 }

func (d difference) touches(prefix string) bool {
	within := func(path string) bool { return strings.HasPrefix(path, prefix+"/") }
	return slices.ContainsFunc(d.written, within) || slices.ContainsFunc(d.removed, within)
}

// read tells what each of the folder's files holds. One that is there but cannot be a document has the digest of nothing.
func (f folder) read() (map[string]digest, error) {
	held := map[string]digest{}
	for _, name := range managedFolders {
		entries, err := os.ReadDir(f.path(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read folder: %w", err)
		}
		for _, entry := range entries {
			path := name + "/" + entry.Name()
			if !strings.HasSuffix(path, ".xml") {
				continue
			}
			content, err := os.ReadFile(f.path(path))
			switch {
			case errors.Is(err, fs.ErrNotExist) || entry.IsDir():
				held[path] = digest{}
			case err != nil:
				return nil, fmt.Errorf("read folder: %w", err)
			default:
				held[path] = digestOf(content)
			}
		}
	}
	return held, nil
}

// differ tells how what a folder holds differs from what it should hold.
func differ(held, wanted map[string]digest) difference {
	var d difference
	for path, content := range wanted {
		if present, there := held[path]; !there || present != content {
			d.written = append(d.written, path)
		}
	}
	for path := range held {
		if _, there := wanted[path]; !there {
			d.removed = append(d.removed, path)
		}
	}
	slices.Sort(d.written)
	slices.Sort(d.removed)
	return d
}

// staged are complete files that wait for their names.
type staged struct {
	temporary map[string]string // temporary path by final path
	held      map[string]digest // what they hold, by path below the folder
}

// stage writes the changed files beside their places, so that a full disk is met before anything has changed.
func (f folder) stage(ctx context.Context, rendering *Rendering, paths []string) (_ staged, err error) {
	s := staged{temporary: map[string]string{}, held: map[string]digest{}}
	defer func() {
		if err != nil {
			s.discard()
		}
	}()
	for _, name := range managedFolders {
		if err := os.MkdirAll(f.path(name), folderMode); err != nil {
			return staged{}, fmt.Errorf("stage: %w", err)
		}
		left, err := filepath.Glob(filepath.Join(f.path(name), stagePattern)) // of a process that died here
		if err != nil {
			return staged{}, fmt.Errorf("stage: %w", err)
		}
		for _, path := range left {
			if err := os.Remove(path); err != nil {
				return staged{}, fmt.Errorf("stage: %w", err)
			}
		}
	}
	err = rendering.contents(ctx, paths, func(path string, content []byte) error {
		temporary, err := writeTemporary(filepath.Dir(f.path(path)), content)
		if err != nil {
			return fmt.Errorf("stage %s: %w", path, err)
		}
		s.temporary[f.path(path)], s.held[path] = temporary, digestOf(content)
		return nil
	})
	return s, err
}

func (s staged) discard() {
	for _, temporary := range s.temporary {
		_ = os.Remove(temporary)
	}
}

// writeTemporary writes a file that is on the disk, whole, before it gets its name.
func writeTemporary(dir string, content []byte) (path string, err error) {
	file, err := os.CreateTemp(dir, stagePattern)
	if err != nil {
		return "", err
	}
	_, err = file.Write(content)
	err = errors.Join(err, file.Chmod(fileMode), file.Sync(), file.Close())
	if err != nil {
		_ = os.Remove(file.Name())
		return "", err
	}
	return file.Name(), nil
}

// commit gives the staged files their names and removes the stale ones.
func (f folder) commit(s staged, removed []string) error {
	for final, temporary := range s.temporary {
		if err := os.Rename(temporary, final); err != nil {
			s.discard()
			return fmt.Errorf("commit: %w", err)
		}
		delete(s.temporary, final)
	}
	for _, path := range removed {
		if err := os.Remove(f.path(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("commit: %w", err)
		}
	}
	for _, name := range managedFolders {
		if err := syncFolder(f.path(name)); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
	}
	return nil
}

func syncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// pending is what the switch has yet to be told. It is written before files change and removed when the switch has taken
// them, so that whoever comes after a crash or a lost connection knows what the loaded configuration lacks.
type pending struct {
	Kill []string `json:"kill,omitempty"` // gateways to unload: changed or removed
	ACL  bool     `json:"acl,omitempty"`
	Scan bool     `json:"scan,omitempty"`
}

func (p pending) merge(other pending) pending {
	kill := append(slices.Clone(p.Kill), other.Kill...)
	slices.Sort(kill)
	return pending{Kill: slices.Compact(kill), ACL: p.ACL || other.ACL, Scan: p.Scan || other.Scan}
}

// readPending returns what is pending and whether anything is. A journal that cannot be parsed is no reason to stop for ever:
// everything but the unloading of gateways is done again.
func (f folder) readPending() (pending, bool, error) {
	content, err := os.ReadFile(f.path(journalPath))
	if errors.Is(err, fs.ErrNotExist) {
		return pending{}, false, nil
	}
	if err != nil {
		return pending{}, false, fmt.Errorf("read journal: %w", err)
	}
	var p pending
	if intact := json.Unmarshal(content, &p) == nil; !intact {
		p = pending{ACL: true, Scan: true}
	}
	p.Kill = slices.DeleteFunc(p.Kill, func(name string) bool { return checkGatewayName(name) != nil })
	return p, true, nil
}

func (f folder) writePending(p pending) error {
	content, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	path := f.path(journalPath)
	temporary, err := writeTemporary(filepath.Dir(path), content)
	if err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	if err := syncFolder(filepath.Dir(path)); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return nil
}

func (f folder) clearPending() error {
	if err := os.Remove(f.path(journalPath)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("clear journal: %w", err)
	}
	return nil
}

// gatewayOf is the name of the gateway in a file of the gateway folder, or empty.
func gatewayOf(path string) string {
	name, found := strings.CutPrefix(path, gatewayFolder+"/")
	name = strings.TrimPrefix(strings.TrimSuffix(name, ".xml"), "+")
	if !found || checkGatewayName(name) != nil {
		return ""
	}
	return name
}
