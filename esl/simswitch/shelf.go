package simswitch

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"unique"
)

// shelf keeps what was read of the dialplan's files from one reload to the next: of a million numbers, a changed one costs the parsing of its
// file. FreeSWITCH parses all of them again; the result is the same. It belongs to whoever holds the switch's lock of reloads.
type shelf struct {
	files map[string]dialplanFile
}

// dialplanFile is a file of the dialplan as it was parsed.
type dialplanFile struct {
	name     string
	content  [sha256.Size]byte
	contexts []*planContext
}

// readDialplan reads the dialplan's files in the order in which FreeSWITCH includes them.
func (s *shelf) readDialplan(confDir string) ([]dialplanFile, error) {
	paths, err := filepath.Glob(filepath.Join(confDir, "tandem", "dialplan", "*.xml"))
	if err != nil {
		return nil, fmt.Errorf("list dialplan: %w", err)
	}
	sort.Strings(paths)
	files := make([]dialplanFile, 0, len(paths))
	read := make(map[string]dialplanFile, len(paths))
	for _, path := range paths {
		name := filepath.ToSlash(filepath.Join("tandem", "dialplan", filepath.Base(path)))
		content, err := os.ReadFile(path) // #nosec G304 -- below the configured directory.
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		file, err := s.dialplanFile(name, content)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
		read[name] = file
	}
	s.files = read
	return files, nil
}

func (s *shelf) dialplanFile(name string, content []byte) (dialplanFile, error) {
	sum := sha256.Sum256(content)
	if known, ok := s.files[name]; ok && known.content == sum {
		return known, nil
	}
	roots, err := parseXML(name, string(content), dialplanSchema)
	if err != nil {
		return dialplanFile{}, err
	}
	file := dialplanFile{name: name, content: sum}
	for _, root := range roots {
		context, err := newContext(name, root)
		if err != nil {
			return dialplanFile{}, err
		}
		file.contexts = append(file.contexts, context)
	}
	return file, nil
}

// shared is a text that many rows have in common, kept once.
func shared(s string) string { return unique.Make(s).Value() }
