package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

const (
	// partRecords and partBytes bound what one request of an import brings; the API takes 2000 records and 64 KiB.
	partRecords = 1000
	partBytes   = 48 << 10
)

// csvRecord is a record of a file, as the API takes it.
type csvRecord struct {
	Line   int      `json:"line"`
	Values []string `json:"values"`
}

// csvFile is a file to import: CSV with a header.
type csvFile struct {
	file    *os.File
	comma   rune
	columns []string
	records int64 // without the header
	sha256  string
}

// byteOrderMark is what some spreadsheets begin a file with.
const byteOrderMark = "\ufeff"

// openCSV reads a file once from its beginning to its end, so that one which is no CSV is refused before anything is imported.
func openCSV(path string, comma rune) (_ *csvFile, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the file: %w", err)
	}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	d := &csvFile{file: file, comma: comma, sha256: hex.EncodeToString(sum.Sum(nil))}
	reader, err := d.from(0)
	if err != nil {
		return nil, err
	}
	for {
		record, err := reader.next()
		if errors.Is(err, io.EOF) {
			return d, nil
		}
		if err != nil {
			return nil, err
		}
		if size := record.size(); size > partBytes {
			return nil, fmt.Errorf("%s: the record in line %d is longer than %d bytes", path, record.Line, partBytes)
		}
		d.records++
	}
}

func (d *csvFile) close() { _ = d.file.Close() }

// size is what the record takes in a request.
func (r *csvRecord) size() int {
	encoded, err := json.Marshal(r)
	if err != nil {
		return 0 // a number and strings can always be encoded
	}
	return len(encoded) + 1
}

// csvReader reads the records of a file.
type csvReader struct {
	csv  *csv.Reader
	path string
}

// from begins to read at a record, counted from 0 behind the header.
func (d *csvFile) from(record int64) (*csvReader, error) {
	if _, err := d.file.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read %s: %w", d.file.Name(), err)
	}
	r := &csvReader{csv: csv.NewReader(d.file), path: d.file.Name()}
	r.csv.Comma, r.csv.FieldsPerRecord = d.comma, -1
	header, err := r.next()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s is empty: its first line must name the columns", r.path)
	}
	if err != nil {
		return nil, err
	}
	d.columns = header.Values
	d.columns[0] = strings.TrimPrefix(d.columns[0], byteOrderMark)
	for i, column := range d.columns {
		d.columns[i] = strings.ToLower(strings.TrimSpace(column))
	}
	for range record {
		if _, err := r.next(); err != nil {
			return nil, fmt.Errorf("%s has changed since it was first read: %w", r.path, err)
		}
	}
	return r, nil
}

// next reads a record, or returns io.EOF.
func (r *csvReader) next() (*csvRecord, error) {
	values, err := r.csv.Read()
	if errors.Is(err, io.EOF) {
		return nil, io.EOF
	}
	if err != nil {
		return nil, fmt.Errorf("%s is not CSV: %w", r.path, err)
	}
	line, _ := r.csv.FieldPos(0)
	for _, value := range values {
		if !utf8.ValidString(value) {
			return nil, fmt.Errorf("%s: line %d is not UTF-8", r.path, line)
		}
	}
	return &csvRecord{Line: line, Values: values}, nil
}

// parts hands out a file in parts that fit into a request. What the API has not taken of one comes again in the next.
type parts struct {
	file    *csvFile
	reader  *csvReader
	at      int64 // the first of the waiting records
	waiting []*csvRecord
	ended   bool
}

func (d *csvFile) parts(from int64) (*parts, error) {
	reader, err := d.from(from)
	if err != nil {
		return nil, err
	}
	return &parts{file: d, reader: reader, at: from}, nil
}

// goTo has the next part begin at a record.
func (p *parts) goTo(record int64) error {
	if record >= p.at && record <= p.at+int64(len(p.waiting)) {
		p.waiting = p.waiting[record-p.at:]
		p.at = record
		return nil
	}
	again, err := p.file.parts(record)
	if err != nil {
		return err
	}
	*p = *again
	return nil
}

// part returns the next records, none at the end of the file.
func (p *parts) part() ([]*csvRecord, error) {
	size, count := 0, 0
	for ; count < partRecords; count++ {
		if count == len(p.waiting) {
			if p.ended {
				break
			}
			record, err := p.reader.next()
			if errors.Is(err, io.EOF) {
				p.ended = true
				break
			}
			if err != nil {
				return nil, err
			}
			p.waiting = append(p.waiting, record)
		}
		if size += p.waiting[count].size(); size > partBytes && count > 0 {
			break
		}
	}
	return p.waiting[:count], nil
}

// rejectsPath is where the rejects of a file go: numbers.rejects.csv for numbers.csv.
func rejectsPath(path string) string {
	if stem, found := strings.CutSuffix(path, ".csv"); found {
		return stem + ".rejects.csv"
	}
	return path + ".rejects.csv"
}

// writeRejects writes a file of rejects, whole or not at all: the records as they were, with their line, the column to blame and why.
func writeRejects(path string, columns []string, rejects []importReject) (err error) {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	// A file of rejects that is imported again has these columns already.
	kept := make([]int, 0, len(columns))
	header := []string{}
	for i, column := range columns {
		if column != "line" && column != "field" && column != "error" {
			kept = append(kept, i)
			header = append(header, column)
		}
	}
	_ = w.Write(append(header, "line", "field", "error")) // a bytes.Buffer takes everything
	for i := range rejects {
		values, err := csv.NewReader(strings.NewReader(rejects[i].Record)).Read()
		if err != nil {
			values = []string{rejects[i].Record}
		}
		record := make([]string, 0, len(kept)+3)
		for _, k := range kept {
			value := ""
			if k < len(values) {
				value = values[k]
			}
			record = append(record, value)
		}
		_ = w.Write(append(record, fmt.Sprint(rejects[i].Line), rejects[i].Field, rejects[i].Message))
	}
	w.Flush()
	temporary := path + ".part"
	defer func() {
		if err != nil {
			_ = os.Remove(temporary)
		}
	}()
	if err := os.WriteFile(temporary, out.Bytes(), 0o600); err != nil {
		return fmt.Errorf("write the rejects: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("write the rejects: %w", err)
	}
	return nil
}
