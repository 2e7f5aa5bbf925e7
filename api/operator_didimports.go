package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"tandem/models"
)

// didImportColumns are the columns of a file of numbers. The first is needed; of the others, what a file does not have comes from the import.
var didImportColumns = []string{"number_e164", "customer_id", "application_id", "provider", "status", "route_mode", "sip_uri", "reject_code"}

type didImportCreate struct {
	Columns       []string `json:"columns" required:"true" doc:"The file's columns: number_e164, which may hold ranges, and any of customer_id, application_id, provider, status, route_mode, sip_uri, reject_code. line, field and error, which a file of rejects has, are passed over." example:"number_e164"`
	OnConflict    *string  `json:"on_conflict" enum:"skip,update,reassign" doc:"With a number that exists: skip leaves it as it is, update changes the routing of one of the same customer's, reassign also takes it from another customer. Default skip."`
	CustomerID    *string  `json:"customer_id" doc:"For records without one of their own, as all that follow."`
	ApplicationID *string  `json:"application_id"`
	Provider      *string  `json:"provider" max:"100"`
	Status        *string  `json:"status" enum:"active,suspended"`
	RouteMode     *string  `json:"route_mode" enum:"webhook,sip,reject"`
	SIPURI        *string  `json:"sip_uri" max:"255"`
	RejectCode    *int     `json:"reject_code" minimum:"400" maximum:"699"`
	importCreate
}

type didRecordsCreate struct {
	Record  *int            `json:"record" required:"true" minimum:"0" doc:"Place of the first of the records in the file, counted from 0: the import's next_record."`
	Records json.RawMessage `json:"records" raw:"list" required:"true" doc:"1 to 2000 records: {\"line\": 2, \"values\": [\"+31201234567\", …]}, with a value for each of the import's columns. line is where the record begins in the file."`
}

// didImportObject is an import of numbers and how far it has come.
type didImportObject struct {
	importObject
	OnConflict string `json:"on_conflict" enum:"skip,update,reassign"`
	Duplicates int64  `json:"duplicates" doc:"Numbers that were there already and stayed as they were."`
}

func (s *Server) operatorDIDImportRoutes() []route {
	return []route{
		{method: http.MethodPost, path: "/operator/v1/did-imports", id: "createDIDImport", tag: "dids", summary: "Begin to import a file of numbers",
			details: "Its records are sent in parts, one after the other. How far it has come is kept with what was imported: after a crash of either side, go on at next_record.",
			role:    models.RoleOperator, request: didImportCreate{}, status: created, response: didImportObject{}, handle: s.createDIDImport,
			codes: []string{codeNotFound}},
		{method: http.MethodGet, path: "/operator/v1/did-imports", id: "listDIDImports", tag: "dids", summary: "List imports of numbers, newest first",
			role: models.RoleViewer, query: importFilters, status: ok, response: list[didImportObject]{}, handle: s.listDIDImports},
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
			role: models.RoleViewer, query: paging, status: ok, response: list[rejectObject]{}, handle: s.listDIDRejects},
	}
}

func toDIDImport(d *models.DIDImport) didImportObject {
	return didImportObject{importObject: toImport(&d.Import), OnConflict: d.OnConflict, Duplicates: d.Duplicates}
}

func (s *Server) createDIDImport(r *request) (any, error) {
	in := body[didImportCreate](r)
	c := &checks{}
	job := models.DIDImport{Import: c.beginImport(&in.importCreate, in.Columns, didImportColumns), OnConflict: models.DIDSkip}
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
	state, err := r.importState()
	if err != nil {
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
	if err != nil {
		return nil, notOpen(err)
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
	records, err := readImport(in.Record, in.Records)
	if err != nil {
		return nil, err
	}
	part := readDIDs(job, records)
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

// didPart is what one request imports.
type didPart struct {
	records int64
	rows    []models.ImportedDID
	rejects []models.ImportReject
}

// readDIDs makes numbers of records, until there are as many as fit into one transaction.
func readDIDs(job *models.DIDImport, records []importRecord) didPart {
	var part didPart
	for i := range records {
		record := &records[i]
		did, block, err := record.did(job)
		if err != nil {
			part.rejects = append(part.rejects, record.reject(err))
			part.records++
			continue
		}
		if int64(len(part.rows))+block.Len() > models.MaxDIDs {
			break // there is a record before it: a single range is no longer than that
		}
		for number := range block.Numbers {
			did.NumberE164 = number
			part.rows = append(part.rows, models.ImportedDID{DID: did, Line: record.Line, Record: record.with(job, number).csv()})
		}
		part.records++
	}
	return part
}

// did reads a record: the numbers, and what each of them is to be.
func (i *importRecord) did(job *models.DIDImport) (models.DID, models.NumberRange, *Error) {
	c := &checks{}
	c.complete(i, &job.Import)
	block, err := models.ParseNumberRange(i.value(&job.Import, "number_e164"))
	switch {
	case err != nil:
		c.refuse("number_e164", "number_e164 %s", err)
	case block.Len() > models.MaxDIDs:
		c.refuse("number_e164", "number_e164 must be a range of at most %d numbers", models.MaxDIDs)
	}
	named := &request{given: fieldSet{}}
	text := func(column string) *string {
		value := i.value(&job.Import, column)
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

// with is the record with one of its range's numbers.
func (i *importRecord) with(job *models.DIDImport, number string) *importRecord {
	single := &importRecord{Line: i.Line, Values: slices.Clone(i.Values)}
	if at := slices.Index(job.Columns, didImportColumns[0]); at >= 0 && at < len(single.Values) {
		single.Values[at] = number
	}
	return single
}

func (s *Server) listDIDRejects(r *request) (any, error) {
	id := r.params["id"]
	return r.rejectPage(func(from int64, limit int) ([]models.ImportReject, error) {
		if _, err := s.store.DIDImport(r.ctx, id); err != nil {
			return nil, err
		}
		return s.store.DIDRejects(r.ctx, id, from, limit)
	})
}
