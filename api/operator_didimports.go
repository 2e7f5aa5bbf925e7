package api

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"net/http"
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

// importColumns are the columns of a file of numbers. The first is needed; of the others, what a file does not have comes from the import.
var importColumns = []string{"number_e164", "customer_id", "application_id", "provider", "status", "route_mode", "sip_uri", "reject_code"}

// rejectColumns are what a file of rejects has besides: it can be corrected and imported again.
var rejectColumns = []string{"line", "field", "error"}

type didImportCreate struct {
	Columns       []string `json:"columns" required:"true" doc:"The file's columns: number_e164, which may hold ranges, and any of customer_id, application_id, provider, status, route_mode, sip_uri, reject_code. line, field and error, which a file of rejects has, are passed over." example:"number_e164"`
	TotalRecords  *int     `json:"total_records" required:"true" minimum:"0" maximum:"10000000" doc:"How many records the file has, without its header."`
	FileName      *string  `json:"file_name" max:"255"`
	FileSHA256    *string  `json:"file_sha256" pattern:"^[0-9a-f]{64}$" doc:"By which an import that was broken off is found again."`
	OnConflict    *string  `json:"on_conflict" enum:"skip,update,reassign" doc:"With a number that exists: skip leaves it as it is, update changes the routing of one of the same customer's, reassign also takes it from another customer. Default skip."`
	CustomerID    *string  `json:"customer_id" doc:"For records without one of their own, as all that follow."`
	ApplicationID *string  `json:"application_id"`
	Provider      *string  `json:"provider" max:"100"`
	Status        *string  `json:"status" enum:"active,suspended"`
	RouteMode     *string  `json:"route_mode" enum:"webhook,sip,reject"`
	SIPURI        *string  `json:"sip_uri" max:"255"`
	RejectCode    *int     `json:"reject_code" minimum:"400" maximum:"699"`
}

type didRecordsCreate struct {
	Record  *int            `json:"record" required:"true" minimum:"0" doc:"Place of the first of the records in the file, counted from 0: the import's next_record."`
	Records json.RawMessage `json:"records" raw:"list" required:"true" doc:"1 to 2000 records: {\"line\": 2, \"values\": [\"+31201234567\", …]}, with a value for each of the import's columns. line is where the record begins in the file."`
}

// importRecord is a record as a request brings it.
type importRecord struct {
	Line   int64    `json:"line"`
	Values []string `json:"values"`
}

// didImportObject is an import and how far it has come.
type didImportObject struct {
	ID           string            `json:"id" example:"imp_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	State        string            `json:"state" enum:"open,finished,canceled"`
	FileName     string            `json:"file_name"`
	FileSHA256   string            `json:"file_sha256"`
	Columns      []string          `json:"columns"`
	Defaults     map[string]string `json:"defaults"`
	OnConflict   string            `json:"on_conflict" enum:"skip,update,reassign"`
	TotalRecords int64             `json:"total_records"`
	NextRecord   int64             `json:"next_record" doc:"Where to go on."`
	Created      int64             `json:"created" doc:"Numbers that are new."`
	Updated      int64             `json:"updated" doc:"Numbers that were changed or reassigned."`
	Duplicates   int64             `json:"duplicates" doc:"Numbers that were there already and stayed as they were."`
	Rejected     int64             `json:"rejected" doc:"Records and numbers that were refused; the rejects tell why."`
	CreatedAt    string            `json:"created_at" format:"date-time"`
	UpdatedAt    string            `json:"updated_at" format:"date-time"`
}

// didRejectObject is a record that was refused.
type didRejectObject struct {
	Line    int64  `json:"line" doc:"Where the record begins in the file."`
	Record  string `json:"record" doc:"The record as CSV."`
	Field   string `json:"field" doc:"The column to blame; empty where there is none."`
	Message string `json:"message"`
}

func (s *Server) operatorDIDImportRoutes() []route {
	return []route{
		{method: http.MethodPost, path: "/operator/v1/did-imports", id: "createDIDImport", tag: "dids", summary: "Begin to import a file of numbers",
			details: "Its records are sent in parts, one after the other. How far it has come is kept with what was imported: after a crash of either side, go on at next_record.",
			role:    models.RoleOperator, request: didImportCreate{}, status: created, response: didImportObject{}, handle: s.createDIDImport,
			codes: []string{codeNotFound}},
		{method: http.MethodGet, path: "/operator/v1/did-imports", id: "listDIDImports", tag: "dids", summary: "List imports of numbers, newest first",
			role: models.RoleViewer, query: append([]param{
				{name: "state", kind: "string", enum: []string{models.ImportOpen, models.ImportFinished, models.ImportCanceled}},
				{name: "file_sha256", kind: "string"},
			}, paging...), status: ok, response: list[didImportObject]{}, handle: s.listDIDImports},
		{method: http.MethodGet, path: "/operator/v1/did-imports/:id", id: "getDIDImport", tag: "dids", summary: "Get an import of numbers",
			role: models.RoleViewer, status: ok, response: didImportObject{}, handle: s.getDIDImport},
		{method: http.MethodPost, path: "/operator/v1/did-imports/:id/records", id: "importDIDs", tag: "dids", summary: "Send the next records of an import",
			details: "A record that is wrong is rejected; the others are imported. Of records that hold large ranges only the first may be taken: the answer's next_record says which come next.",
			role:    models.RoleOperator, request: didRecordsCreate{}, status: ok, response: didImportObject{}, handle: s.importDIDs,
			codes: []string{codeImportPlace}},
		{method: http.MethodPost, path: "/operator/v1/did-imports/:id/cancel", id: "cancelDIDImport", tag: "dids", summary: "End an import where it stands",
			details: "What it has imported stays.",
			role:    models.RoleOperator, request: emptyCreate{}, bodyOptional: true, status: ok, response: didImportObject{}, handle: s.cancelDIDImport,
			codes: []string{codeImportPlace}},
		{method: http.MethodGet, path: "/operator/v1/did-imports/:id/rejects", id: "listDIDRejects", tag: "dids", summary: "List what an import has rejected, in the order of the file",
			role: models.RoleViewer, query: paging, status: ok, response: list[didRejectObject]{}, handle: s.listDIDRejects},
	}
}

func toDIDImport(d *models.DIDImport) didImportObject {
	return didImportObject{
		ID: d.ID, State: d.State, FileName: d.FileName, FileSHA256: d.FileSHA256, Columns: d.Columns, Defaults: d.Defaults, OnConflict: d.OnConflict,
		TotalRecords: d.TotalRecords, NextRecord: d.NextRecord, Created: d.Created, Updated: d.Updated, Duplicates: d.Duplicates, Rejected: d.Rejected,
		CreatedAt: stamp(d.CreatedAt), UpdatedAt: stamp(d.UpdatedAt),
	}
}

// columns accepts the columns of a file.
func (c *checks) columns(field string, columns []string) []string {
	if !slices.Contains(columns, importColumns[0]) {
		c.refuse(field, "%s must hold %s", field, importColumns[0])
	}
	for i, column := range columns {
		switch {
		case !slices.Contains(importColumns, column) && !slices.Contains(rejectColumns, column):
			c.refuse(field, "%s: %s is none of %s", field, clip(column), strings.Join(importColumns, ", "))
		case slices.Contains(columns[:i], column):
			c.refuse(field, "%s: %s is given twice", field, column)
		}
	}
	return columns
}

func (s *Server) createDIDImport(r *request) (any, error) {
	in := body[didImportCreate](r)
	c := &checks{}
	job := models.DIDImport{
		Columns: c.columns("columns", in.Columns), FileName: c.text("file_name", in.FileName, maxFileName), OnConflict: models.DIDSkip,
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
	change(r, "on_conflict", &job.OnConflict, c.oneOf("on_conflict", in.OnConflict, models.DIDSkip, models.DIDUpdate, models.DIDReassign))
	for _, given := range []struct {
		name  string
		value *string
		fit   func(field string, value *string) string
	}{
		{"customer_id", in.CustomerID, c.id}, {"application_id", in.ApplicationID, c.id}, {"sip_uri", in.SIPURI, c.sipURI},
		{"provider", in.Provider, func(field string, value *string) string { return c.text(field, value, maxNameLength) }},
		{"status", in.Status, func(field string, value *string) string {
			return c.oneOf(field, value, models.DIDActive, models.DIDSuspended)
		}},
		{"route_mode", in.RouteMode, func(field string, value *string) string {
			return c.oneOf(field, value, models.RouteWebhook, models.RouteSIP, models.RouteReject)
		}},
	} {
		if given.value != nil {
			job.Defaults[given.name] = given.fit(given.name, given.value)
		}
	}
	if in.RejectCode != nil {
		job.Defaults["reject_code"] = strconv.Itoa(c.between("reject_code", in.RejectCode, minRejectCode, maxRejectCode))
	}
	if !slices.Contains(job.Columns, "customer_id") {
		c.required("customer_id", in.CustomerID)
	}
	if err := c.failed(); err != nil {
		return nil, err
	}
	if err := s.importOwners(r, in); err != nil {
		return nil, err
	}
	var answer didImportObject
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		row := job
		if err := tx.CreateDIDImport(r.ctx, &row); err != nil {
			return err
		}
		answer = toDIDImport(&row)
		r.concerns(job.Defaults["customer_id"], row.ID)
		return nil
	})
	return answer, err
}

// importOwners refuses an import whose customer or application is not there: every record would be rejected.
func (s *Server) importOwners(r *request, in *didImportCreate) error {
	if in.CustomerID == nil {
		return nil
	}
	if _, err := s.store.Customer(r.ctx, *in.CustomerID); err != nil {
		if errors.Is(err, models.ErrNotFound) {
			return didRefused(models.DIDNoCustomer, "")
		}
		return err
	}
	if in.ApplicationID == nil {
		return nil
	}
	_, err := s.store.Application(r.ctx, *in.CustomerID, *in.ApplicationID)
	if errors.Is(err, models.ErrNotFound) {
		return didRefused(models.DIDNoApplication, "")
	}
	return err
}

func (s *Server) listDIDImports(r *request) (any, error) {
	page, err := r.page()
	if err != nil {
		return nil, err
	}
	c := &checks{}
	state := c.oneOf("state", r.param("state"), models.ImportOpen, models.ImportFinished, models.ImportCanceled)
	if err := c.failed(); err != nil {
		return nil, err
	}
	rows, next, err := s.store.DIDImports(r.ctx, state, r.query["file_sha256"], page)
	if err != nil {
		return nil, err
	}
	return listOf(rows, next, toDIDImport), nil
}

func (s *Server) getDIDImport(r *request) (any, error) {
	job, err := s.store.DIDImport(r.ctx, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "import")
	}
	return toDIDImport(job), nil
}

func (s *Server) cancelDIDImport(r *request) (any, error) {
	job, err := s.store.CancelDIDImport(r.ctx, r.params["id"])
	if errors.Is(err, models.ErrImportPlace) {
		return nil, &Error{Code: codeImportPlace, Message: "the import is not open", cause: err}
	}
	if err != nil {
		return nil, orNotFound(err, "import")
	}
	s.dialplanChanged()
	return toDIDImport(job), nil
}

func (s *Server) importDIDs(r *request) (any, error) {
	in := body[didRecordsCreate](r)
	job, err := s.store.DIDImport(r.ctx, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "import")
	}
	records, err := in.records()
	if err != nil {
		return nil, err
	}
	part := readRecords(job, records)
	done, err := s.store.ImportDIDs(r.ctx, job.ID, int64(*in.Record), part.records, part.rows, part.rejects)
	if err != nil {
		return nil, orNotFound(err, "import")
	}
	if done.State != models.ImportOpen {
		// The nodes' own look at the database finds what came before: were they told of each part, they would reload all the time.
		s.dialplanChanged()
	}
	return toDIDImport(done), nil
}

// records reads the body's records.
func (in *didRecordsCreate) records() ([]importRecord, error) {
	if in.Record == nil || *in.Record < 0 {
		return nil, invalid("record", "record must be an integer of at least 0")
	}
	if in.Records == nil {
		return nil, invalid("records", "records is required")
	}
	decoder := json.NewDecoder(bytes.NewReader(in.Records))
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

// importPart is what one request imports.
type importPart struct {
	records int64
	rows    []models.ImportedDID
	rejects []models.DIDReject
}

// readRecords makes numbers of records, until there are as many as fit into one transaction.
func readRecords(job *models.DIDImport, records []importRecord) importPart {
	var part importPart
	for i := range records {
		record := &records[i]
		did, block, err := record.did(job)
		if err != nil {
			part.rejects = append(part.rejects, models.DIDReject{Line: record.Line, Record: record.csv(job, ""), Field: err.Field, Message: err.Message})
			part.records++
			continue
		}
		if int64(len(part.rows))+block.Len() > models.MaxDIDs {
			break // there is a record before it: a single range is no longer than that
		}
		for number := range block.Numbers {
			did.NumberE164 = number
			part.rows = append(part.rows, models.ImportedDID{DID: did, Line: record.Line, Record: record.csv(job, number)})
		}
		part.records++
	}
	return part
}

// value is what a record says of a column, or the import does.
func (i *importRecord) value(job *models.DIDImport, column string) string {
	if at := slices.Index(job.Columns, column); at >= 0 && at < len(i.Values) {
		if value := strings.TrimSpace(i.Values[at]); value != "" {
			return value
		}
	}
	return job.Defaults[column]
}

// did reads a record: the numbers, and what each of them is to be.
func (i *importRecord) did(job *models.DIDImport) (models.DID, models.NumberRange, *Error) {
	c := &checks{}
	if len(i.Values) != len(job.Columns) {
		c.refuse("", "the record has %d values for %d columns", len(i.Values), len(job.Columns))
	}
	block, err := models.ParseNumberRange(i.value(job, "number_e164"))
	switch {
	case err != nil:
		c.refuse("number_e164", "number_e164 %s", err)
	case block.Len() > models.MaxDIDs:
		c.refuse("number_e164", "number_e164 must be a range of at most %d numbers", models.MaxDIDs)
	}
	named := &request{given: fieldSet{}}
	text := func(column string) *string {
		value := i.value(job, column)
		if value == "" {
			return nil
		}
		named.given[column] = true
		return &value
	}
	customer := text("customer_id")
	c.required("customer_id", customer)
	did := models.DID{CustomerID: c.id("customer_id", customer), Status: models.DIDActive, RouteMode: models.RouteWebhook, RejectCode: defaultRejectCode}
	in := didUpdate{
		ApplicationID: text("application_id"), Provider: text("provider"), Status: text("status"), RouteMode: text("route_mode"), SIPURI: text("sip_uri"),
	}
	c.id("application_id", in.ApplicationID)
	if code := text("reject_code"); code != nil {
		number, err := strconv.Atoi(*code)
		if err != nil {
			c.refuse("reject_code", "reject_code must be an integer")
		}
		in.RejectCode = &number
	}
	c.applyDID(named, &in, &did)
	return did, block, c.first
}

// csv is the record as the file has it, with another number where one is given.
func (i *importRecord) csv(job *models.DIDImport, number string) string {
	values := slices.Clone(i.Values)
	if at := slices.Index(job.Columns, importColumns[0]); number != "" && at >= 0 && at < len(values) {
		values[at] = number
	}
	var line strings.Builder
	w := csv.NewWriter(&line)
	_ = w.Write(values) // a strings.Builder takes everything
	w.Flush()
	return strings.ReplaceAll(strings.TrimSuffix(line.String(), "\n"), "\x00", "") // which PostgreSQL keeps in no text
}

func (s *Server) listDIDRejects(r *request) (any, error) {
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
	if _, err := s.store.DIDImport(r.ctx, r.params["id"]); err != nil {
		return nil, orNotFound(err, "import")
	}
	rows, err := s.store.DIDRejects(r.ctx, r.params["id"], from, page.Limit+1)
	if err != nil {
		return nil, err
	}
	next := ""
	if len(rows) > page.Limit {
		rows = rows[:page.Limit]
		next = strconv.FormatInt(rows[page.Limit-1].Place+1, 10)
	}
	return listOf(rows, next, func(d *models.DIDReject) didRejectObject {
		return didRejectObject{Line: d.Line, Record: d.Record, Field: d.Field, Message: d.Message}
	}), nil
}
