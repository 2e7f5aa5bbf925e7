package api

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tandem/models"
)

const (
	// maxImportRecords is how many records one request brings at most; the limit of bodies is met before, mostly.
	maxImportRecords = 2000
	// maxImportTotal is how many records an import has at most.
	maxImportTotal = 10_000_000
	// maxFileName bounds the name of a file, in characters.
	maxFileName = 255
)

var sha256Pattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// rejectColumns are what a file of rejects has besides: it can be corrected and imported again.
var rejectColumns = []string{"line", "field", "error"}

// importCreate is what begins an import of any kind.
type importCreate struct {
	TotalRecords *int    `json:"total_records" required:"true" minimum:"0" maximum:"10000000" doc:"How many records the file has, without its header."`
	FileName     *string `json:"file_name" max:"255"`
	FileSHA256   *string `json:"file_sha256" pattern:"^[0-9a-f]{64}$" doc:"By which an import that was broken off is found again."`
}

// importRecord is a record as a request brings it.
type importRecord struct {
	Line   int64    `json:"line"`
	Values []string `json:"values"`
}

// importObject is what imports of every kind have, and how far one has come.
type importObject struct {
	ID           string            `json:"id" example:"imp_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	State        string            `json:"state" enum:"open,finished,canceled"`
	FileName     string            `json:"file_name"`
	FileSHA256   string            `json:"file_sha256"`
	Columns      []string          `json:"columns"`
	Defaults     map[string]string `json:"defaults"`
	TotalRecords int64             `json:"total_records"`
	NextRecord   int64             `json:"next_record" doc:"Where to go on."`
	Created      int64             `json:"created" doc:"What is new."`
	Updated      int64             `json:"updated" doc:"What was changed or took the place of another."`
	Rejected     int64             `json:"rejected" doc:"What was refused; the rejects tell why."`
	CreatedAt    string            `json:"created_at" format:"date-time"`
	UpdatedAt    string            `json:"updated_at" format:"date-time"`
}

// rejectObject is a record that was refused.
type rejectObject struct {
	Line    int64  `json:"line" doc:"Where the record begins in the file."`
	Record  string `json:"record" doc:"The record as CSV."`
	Field   string `json:"field" doc:"The column to blame; empty where there is none."`
	Message string `json:"message"`
}

// importFilters are what lists of imports are narrowed by.
var importFilters = append([]param{
	{name: "state", kind: "string", enum: []string{models.ImportOpen, models.ImportFinished, models.ImportCanceled}},
	{name: "file_sha256", kind: "string"},
}, paging...)

func toImport(d *models.Import) importObject {
	return importObject{
		ID: d.ID, State: d.State, FileName: d.FileName, FileSHA256: d.FileSHA256, Columns: d.Columns, Defaults: d.Defaults,
		TotalRecords: d.TotalRecords, NextRecord: d.NextRecord, Created: d.Created, Updated: d.Updated, Rejected: d.Rejected,
		CreatedAt: stamp(d.CreatedAt), UpdatedAt: stamp(d.UpdatedAt),
	}
}

// columns accepts the columns of a file: those that a kind of file knows, the first of which is needed, and those of rejects.
func (c *checks) columns(field string, columns, known []string) []string {
	if !slices.Contains(columns, known[0]) {
		c.refuse(field, "%s must hold %s", field, known[0])
	}
	for i, column := range columns {
		switch {
		case !slices.Contains(known, column) && !slices.Contains(rejectColumns, column):
			c.refuse(field, "%s: %s is none of %s", field, clip(column), strings.Join(known, ", "))
		case slices.Contains(columns[:i], column):
			c.refuse(field, "%s: %s is given twice", field, column)
		}
	}
	return columns
}

// beginImport accepts what begins an import of any kind.
func (c *checks) beginImport(in *importCreate, columns, known []string) models.Import {
	job := models.Import{
		Columns: c.columns("columns", columns, known), FileName: c.text("file_name", in.FileName, maxFileName),
		TotalRecords: int64(c.between("total_records", in.TotalRecords, 0, maxImportTotal)), Defaults: map[string]string{},
	}
	if in.TotalRecords == nil {
		c.refuse("total_records", "total_records is required")
	}
	if in.FileSHA256 != nil {
		if job.FileSHA256 = *in.FileSHA256; !sha256Pattern.MatchString(job.FileSHA256) {
			c.refuse("file_sha256", "file_sha256 must be 64 hexadecimal digits in lower case")
		}
	}
	return job
}

// importState accepts the state by which a list of imports is narrowed.
func (r *request) importState() (string, error) {
	c := &checks{}
	state := c.oneOf("state", r.param("state"), models.ImportOpen, models.ImportFinished, models.ImportCanceled)
	return state, c.failed()
}

// notOpen says that an import to be cancelled is over.
func notOpen(err error) error {
	if errors.Is(err, models.ErrImportPlace) {
		return &Error{Code: codeImportPlace, Message: "the import is not open", cause: err}
	}
	return orNotFound(err, "import")
}

// readImport reads the place and the records of a request.
func readImport(place *int, raw json.RawMessage) ([]importRecord, error) {
	if place == nil || *place < 0 {
		return nil, invalid("record", "record must be an integer of at least 0")
	}
	if raw == nil {
		return nil, invalid("records", "records is required")
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	var records []importRecord
	if err := decoder.Decode(&records); err != nil && !errors.Is(err, io.EOF) {
		return nil, invalid("records", `records must be a list of {"line": 2, "values": ["+31201234567"]}`)
	}
	if len(records) == 0 || len(records) > maxImportRecords {
		return nil, invalid("records", "records must hold 1 to %d records", maxImportRecords)
	}
	return records, nil
}

// own is what a record says of a column itself.
func (i *importRecord) own(job *models.Import, column string) string {
	if at := slices.Index(job.Columns, column); at >= 0 && at < len(i.Values) {
		return strings.TrimSpace(i.Values[at])
	}
	return ""
}

// value is what a record says of a column, or the import does.
func (i *importRecord) value(job *models.Import, column string) string {
	return cmp.Or(i.own(job, column), job.Defaults[column])
}

// complete refuses a record that has not a value for each column.
func (c *checks) complete(i *importRecord, job *models.Import) {
	if len(i.Values) != len(job.Columns) {
		c.refuse("", "the record has %d values for %d columns", len(i.Values), len(job.Columns))
	}
}

// csv is the record as the file has it.
func (i *importRecord) csv() string {
	var line strings.Builder
	w := csv.NewWriter(&line)
	_ = w.Write(i.Values) // a strings.Builder takes everything
	w.Flush()
	return strings.ReplaceAll(strings.TrimSuffix(line.String(), "\n"), "\x00", "") // which PostgreSQL keeps in no text
}

// reject keeps the record and what is wrong with it.
func (i *importRecord) reject(why *Error) models.ImportReject {
	return models.ImportReject{Line: i.Line, Record: i.csv(), Field: why.Field, Message: why.Message}
}

// rejectPage answers with a page of rejects, which read reads from a place on.
func (r *request) rejectPage(read func(from int64, limit int) ([]models.ImportReject, error)) (any, error) {
	page, err := r.page()
	if err != nil {
		return nil, err
	}
	from := int64(0)
	if page.Cursor != "" {
		if from, err = strconv.ParseInt(page.Cursor, 10, 64); err != nil || from < 0 {
			return nil, models.ErrBadCursor
		}
	}
	rows, err := read(from, page.Limit+1)
	if err != nil {
		return nil, orNotFound(err, "import")
	}
	next := ""
	if len(rows) > page.Limit {
		rows = rows[:page.Limit]
		next = strconv.FormatInt(rows[page.Limit-1].Place+1, 10)
	}
	return listOf(rows, next, func(d *models.ImportReject) rejectObject {
		return rejectObject{Line: d.Line, Record: d.Record, Field: d.Field, Message: d.Message}
	}), nil
}
