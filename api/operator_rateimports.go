package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"tandem/models"
)

// rateColumns are the columns of a file of rates; prefix and per_minute are needed.
var rateColumns = []string{
	"prefix", "direction", "destination", "per_minute", "connect", "connect_on", "billing", "minimum", "increment", "valid_from", "valid_to",
}

type rateImportCreate struct {
	DeckID    *string  `json:"deck_id" required:"true" doc:"The deck that the rates are for."`
	Columns   []string `json:"columns" required:"true" doc:"The file's columns: prefix, per_minute, and any of direction, destination, connect, connect_on, billing, minimum, increment, valid_from, valid_to, as the fields of a rate. line, field and error, which a file of rejects has, are passed over." example:"prefix"`
	Mode      *string  `json:"mode" enum:"merge,replace" doc:"What becomes of rates of the deck that the file does not name, by direction and prefix: merge leaves them, replace ends them when the file has been taken to its end, unless a record was rejected. Default merge."`
	Direction *string  `json:"direction" enum:"outbound,inbound" doc:"For records without one of their own, as all that follow."`
	ConnectOn *string  `json:"connect_on" enum:"answer,attempt"`
	Billing   *string  `json:"billing" example:"60/1"`
	ValidFrom *string  `json:"valid_from" doc:"Also when rates end that the file does not name. Default now." example:"2026-02-01"`
	importCreate
}

type rateRecordsCreate struct {
	Record  *int            `json:"record" required:"true" minimum:"0" doc:"Place of the first of the records in the file, counted from 0: the import's next_record."`
	Records json.RawMessage `json:"records" raw:"list" required:"true" doc:"1 to 2000 records: {\"line\": 2, \"values\": [\"3120\", …]}, with a value for each of the import's columns. line is where the record begins in the file."`
}

// rateImportObject is an import of rates and how far it has come.
type rateImportObject struct {
	importObject
	DeckID    string `json:"deck_id"`
	Mode      string `json:"mode" enum:"merge,replace"`
	StartsAt  string `json:"starts_at" format:"date-time" doc:"From when on rates are valid that do not say so, and when those end that the file does not name."`
	Unchanged int64  `json:"unchanged" doc:"Records that say what was so already."`
	Ended     int64  `json:"ended" doc:"Rates that ended because the file does not name them."`
}

func (s *Server) operatorRateImportRoutes() []route {
	return []route{
		{method: http.MethodPost, path: "/operator/v1/rate-imports", id: "createRateImport", tag: "rates", summary: "Begin to import a file of rates",
			details: "Its records are sent in parts, one after the other. How far it has come is kept with what was imported: after a crash of either side, go on at next_record.",
			role:    models.RoleAdmin, request: rateImportCreate{}, status: created, response: rateImportObject{}, handle: s.createRateImport,
			codes: []string{codeNotFound}},
		{method: http.MethodGet, path: "/operator/v1/rate-imports", id: "listRateImports", tag: "rates", summary: "List imports of rates, newest first",
			role: models.RoleViewer, query: append([]param{{name: "deck_id", kind: "string"}}, importFilters...), status: ok, response: list[rateImportObject]{},
			handle: s.listRateImports},
		{method: http.MethodGet, path: "/operator/v1/rate-imports/:id", id: "getRateImport", tag: "rates", summary: "Get an import of rates",
			role: models.RoleViewer, status: ok, response: rateImportObject{}, handle: s.getRateImport},
		{method: http.MethodPost, path: "/operator/v1/rate-imports/:id/records", id: "importRates", tag: "rates", summary: "Send the next records of an import of rates",
			details: "A record that is wrong is rejected; the others are imported.",
			role:    models.RoleAdmin, request: rateRecordsCreate{}, status: ok, response: rateImportObject{}, handle: s.importRates,
			codes: []string{codeImportPlace}},
		{method: http.MethodPost, path: "/operator/v1/rate-imports/:id/cancel", id: "cancelRateImport", tag: "rates", summary: "End an import of rates where it stands",
			details: "What it has imported stays, and no rate ends.",
			role:    models.RoleAdmin, request: emptyCreate{}, bodyOptional: true, status: ok, response: rateImportObject{}, handle: s.cancelRateImport,
			codes: []string{codeImportPlace}},
		{method: http.MethodGet, path: "/operator/v1/rate-imports/:id/rejects", id: "listRateRejects", tag: "rates", summary: "List what an import of rates has rejected, in the order of the file",
			role: models.RoleViewer, query: paging, status: ok, response: list[rejectObject]{}, handle: s.listRateRejects},
	}
}

func toRateImport(d *models.RateImport) rateImportObject {
	return rateImportObject{importObject: toImport(&d.Import), DeckID: d.DeckID, Mode: d.Mode, StartsAt: stamp(d.StartsAt), Unchanged: d.Unchanged, Ended: d.Ended}
}

func (s *Server) createRateImport(r *request) (any, error) {
	in := body[rateImportCreate](r)
	c := &checks{}
	c.required("deck_id", in.DeckID)
	job := models.RateImport{
		Import: c.beginImport(&in.importCreate, in.Columns, rateColumns), DeckID: c.id("deck_id", in.DeckID), Mode: models.ImportMerge,
		StartsAt: s.store.Now().Truncate(time.Second),
	}
	if !slices.Contains(in.Columns, "per_minute") {
		c.refuse("columns", "columns must hold per_minute")
	}
	change(r, "mode", &job.Mode, c.oneOf("mode", in.Mode, models.ImportMerge, models.ImportReplace))
	if job.Mode == models.ImportReplace && slices.ContainsFunc(in.Columns, func(name string) bool { return slices.Contains(rejectColumns, name) }) {
		c.refuse("mode", "mode replace would end all that a file of rejects does not name: merge it, or import the whole file")
	}
	for name, value := range map[string]*string{"direction": in.Direction, "connect_on": in.ConnectOn, "billing": in.Billing, "valid_from": in.ValidFrom} {
		if value != nil {
			job.Defaults[name] = *value
		}
	}
	c.oneOf("direction", in.Direction, models.Outbound, models.Inbound)
	c.oneOf("connect_on", in.ConnectOn, models.ConnectOnAnswer, models.ConnectOnAttempt)
	if in.Billing != nil {
		c.billing("billing", *in.Billing)
	}
	if at := c.moment("valid_from", in.ValidFrom); at != nil {
		job.StartsAt = *at
	}
	if err := c.failed(); err != nil {
		return nil, err
	}
	var answer rateImportObject
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		row := job
		err := tx.CreateRateImport(r.ctx, &row)
		if errors.Is(err, models.ErrNotFound) {
			return &Error{Code: codeNotFound, Field: "deck_id", Message: "deck_id names no rate deck"}
		}
		if err != nil {
			return err
		}
		answer = toRateImport(&row)
		r.concerns("", row.ID)
		return nil
	})
	return answer, err
}

func (s *Server) listRateImports(r *request) (any, error) {
	page, err := r.page()
	if err != nil {
		return nil, err
	}
	state, err := r.importState()
	if err != nil {
		return nil, err
	}
	c := &checks{}
	deck := c.id("deck_id", r.param("deck_id"))
	if err := c.failed(); err != nil {
		return nil, err
	}
	rows, next, err := s.store.RateImports(r.ctx, deck, state, r.query["file_sha256"], page)
	if err != nil {
		return nil, err
	}
	return listOf(rows, next, toRateImport), nil
}

func (s *Server) getRateImport(r *request) (any, error) {
	job, err := s.store.RateImport(r.ctx, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "import")
	}
	return toRateImport(job), nil
}

func (s *Server) cancelRateImport(r *request) (any, error) {
	job, err := s.store.CancelRateImport(r.ctx, r.params["id"])
	if err != nil {
		return nil, notOpen(err)
	}
	return toRateImport(job), nil
}

func (s *Server) importRates(r *request) (any, error) {
	in := body[rateRecordsCreate](r)
	job, err := s.store.RateImport(r.ctx, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "import")
	}
	records, err := readImport(in.Record, in.Records)
	if err != nil {
		return nil, err
	}
	rows, rejects := readRates(job, records)
	done, err := s.store.ImportRates(r.ctx, job.ID, int64(*in.Record), int64(len(records)), rows, rejects)
	if err != nil {
		return nil, orNotFound(err, "import")
	}
	return toRateImport(done), nil
}

// readRates makes rates of records, and rejects those that are none.
func readRates(job *models.RateImport, records []importRecord) ([]models.DeckRate, []models.ImportReject) {
	rows := make([]models.DeckRate, 0, len(records))
	var rejects []models.ImportReject
	for i := range records {
		rate, err := records[i].rate(job)
		if err != nil {
			rejects = append(rejects, records[i].reject(err))
			continue
		}
		rows = append(rows, rate)
	}
	return rows, rejects
}

// rate reads a record.
func (i *importRecord) rate(job *models.RateImport) (models.DeckRate, *Error) {
	c := &checks{}
	c.complete(i, &job.Import)
	text := func(column string) *string {
		if value := i.value(&job.Import, column); value != "" {
			return &value
		}
		return nil
	}
	seconds := func(column string) *int {
		value := text(column)
		if value == nil {
			return nil
		}
		number, err := strconv.Atoi(*value)
		if err != nil {
			c.refuse(column, "%s must be an integer", column)
		}
		return &number
	}
	in := rateCreate{
		Direction: text("direction"), Prefix: text("prefix"), Destination: text("destination"), PerMinute: text("per_minute"), Connect: text("connect"),
		ConnectOn: text("connect_on"), Billing: text("billing"), Minimum: seconds("minimum"), Increment: seconds("increment"),
		ValidFrom: text("valid_from"), ValidTo: text("valid_to"),
	}
	if i.own(&job.Import, "billing") == "" && (in.Minimum != nil || in.Increment != nil) {
		in.Billing = nil // what the record says wins over the import's
	}
	return c.rate(&in, job.StartsAt), c.first
}

func (s *Server) listRateRejects(r *request) (any, error) {
	id := r.params["id"]
	return r.rejectPage(func(from int64, limit int) ([]models.ImportReject, error) {
		if _, err := s.store.RateImport(r.ctx, id); err != nil {
			return nil, err
		}
		return s.store.RateRejects(r.ctx, id, from, limit)
	})
}
