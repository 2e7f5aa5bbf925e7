package calls

import (
	"errors"
	"os"
	"path/filepath"
	"time"
)

// mediaStale is how old a file is that no call plays any more, whoever fetched it: calls last a day at most.
const mediaStale = 25 * time.Hour

// leave forgets the files of a folder without removing them: the folder's node is another controller's now, whose calls may play them.
func (st *mediaStore) leave(dir string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for key, c := range st.copies {
		if filepath.Dir(c.path) == dir {
			delete(st.copies, key)
			st.size -= c.size
		}
	}
	for path := range st.held {
		if filepath.Dir(path) == dir {
			delete(st.held, path)
		}
	}
}

// sweep removes what controllers have left in a folder when its node was handed over, or when they died.
func (st *mediaStore) sweep(dir string) {
	files, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil {
		st.cfg.Logger.Warn("media folder not swept", "error", err)
		return
	}
	removed := 0
	for _, file := range files {
		info, err := file.Info()
		if err != nil || !info.Mode().IsRegular() || time.Since(info.ModTime()) < mediaStale {
			continue
		}
		if st.removeUnheld(filepath.Join(dir, file.Name())) {
			removed++
		}
	}
	if removed > 0 {
		st.cfg.Logger.Info("media of earlier controllers removed", "files", removed)
	}
}

// removeUnheld removes a file that no call and no copy holds, and reports whether it did.
func (st *mediaStore) removeUnheld(path string) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.held[path] == 0 && os.Remove(path) == nil
}
