package api

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"
)

// Forms of an answer.
const (
	formatJSON = "json"
	formatCSV  = "csv"
)

// formats are the query parameters of routes that also answer in CSV.
var formats = []param{{name: "format", kind: "string", enum: []string{formatJSON, formatCSV}, doc: "csv answers with a file for spreadsheets. Default json."}}

// mimeCSV is the content type of RFC 4180, with a line of names.
const mimeCSV = "text/csv; charset=utf-8; header=present"

// format reads which form of an answer is asked for.
func (r *request) format() (string, error) {
	c := &checks{}
	format := c.oneOf("format", r.param("format"), formatJSON, formatCSV)
	return format, c.failed()
}

// table is an answer in CSV.
type table struct {
	// name is what the file is called, without its ending.
	name string
	// rows are the first ones, that with the names of the columns included; more returns those behind them, none at the end. nil is no more.
	rows [][]string
	more func(ctx context.Context) ([][]string, error)
}

// formulas are what a spreadsheet takes for the beginning of a formula, also in the wide forms that East Asian ones read alike, and what it skips
// before one.
const formulas = "=+-@\t\r\n＝＋－＠"

// cell makes text that people have typed one that no spreadsheet runs: what begins like a formula gets an apostrophe before it, which spreadsheets take for
// the mark of plain text. Spreadsheets of countries with a decimal comma begin a new cell at a semicolon, whatever quotes are around it.
func cell(text string) string {
	parts := strings.Split(text, ";")
	for i, part := range parts {
		if first, size := utf8.DecodeRuneInString(part); size > 0 && strings.ContainsRune(formulas, first) {
			parts[i] = "'" + part
		}
	}
	return strings.Join(parts, ";")
}

// cellOrNone is cell for what need not be there.
func cellOrNone(text *string) string {
	if text == nil {
		return ""
	}
	return cell(*text)
}

// tableStream writes a table piece by piece as it is read: it never holds more than a page of it.
type tableStream struct {
	table *table
	// base ends with the server, page bounds the reading of one page and accept the client's taking of it.
	base   context.Context
	page   time.Duration
	accept time.Duration
	conn   net.Conn
	buffer bytes.Buffer
	ended  bool
}

var _ io.ReadCloser = (*tableStream)(nil)

// Read implements io.Reader. An error cuts the connection, so that the client sees that the file is not whole.
func (t *tableStream) Read(p []byte) (int, error) {
	for t.buffer.Len() == 0 {
		if t.ended {
			return 0, io.EOF
		}
		if err := t.next(); err != nil {
			return 0, err
		}
	}
	return t.buffer.Read(p)
}

// next fills the buffer with the rows at hand and reads those behind them.
func (t *tableStream) next() error {
	writer := csv.NewWriter(&t.buffer)
	writer.UseCRLF = true
	if err := writer.WriteAll(t.table.rows); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	if t.ended = t.table.more == nil; t.ended {
		return nil
	}
	ctx, cancel := context.WithTimeout(t.base, t.page)
	defer cancel()
	var err error
	if t.table.rows, err = t.table.more(ctx); err != nil {
		return fmt.Errorf("go on with CSV: %w", err)
	}
	t.ended = len(t.table.rows) == 0
	// The server's own deadline is for the whole of an answer.
	if err := t.conn.SetWriteDeadline(time.Now().Add(t.accept)); err != nil {
		return fmt.Errorf("go on with CSV: %w", err)
	}
	return nil
}

// Close implements io.Closer.
func (t *tableStream) Close() error { return nil }

// writeTable sends a table.
func (s *Server) writeTable(c *fiber.Ctx, status int, answer *table) error {
	c.Set(fiber.HeaderContentType, mimeCSV)
	c.Set(fiber.HeaderContentDisposition, `attachment; filename="`+answer.name+`.csv"`)
	c.Status(status).Context().SetBodyStream(&tableStream{table: answer, base: s.base, page: s.timeout, accept: writeTimeout, conn: c.Context().Conn()}, -1)
	return nil
}
