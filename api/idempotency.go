package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/gofiber/fiber/v2"

	"tandem/models"
)

// IdempotencyWindow is how long an answer is kept for its Idempotency-Key. Whoever prunes models' stored answers uses it.
const IdempotencyWindow = 24 * time.Hour

// once is the Idempotency-Key of a request and what it stands for. The answer is stored in the transaction that makes what
// the request asked for, under a unique key: of two concurrent requests one commits, the other is undone whole and gets the
// first one's answer. Failures are not stored, so that a corrected request may use the same key.
type once struct {
	key, method, path string
	// hash identifies the body by what it says, so that a client which encodes it anew still gets its replay.
	hash string
}

var idempotencyKeyPattern = regexp.MustCompile(`^[\x21-\x7e]{1,255}$`)

func (r *request) readIdempotencyKey(c *fiber.Ctx, raw []byte) error {
	key := c.Get(headerIdempotencyKey)
	if len(c.Request().Header.Peek(headerIdempotencyKey)) == 0 {
		return nil
	}
	if !idempotencyKeyPattern.MatchString(key) {
		return invalid(headerIdempotencyKey, "Idempotency-Key must have 1 to 255 printable ASCII characters and no blanks")
	}
	hash, err := hashBody(raw)
	if err != nil {
		return err
	}
	r.once = &once{key: key, method: c.Method(), path: c.Path(), hash: hash}
	return nil
}

// hashBody hashes the JSON value, whatever the order of its members and the blanks between them.
func hashBody(raw []byte) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil {
		return "", fmt.Errorf("hash body: %w", err)
	}
	canonical, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("hash body: %w", err)
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:]), nil
}

// keep stores the answer under the request's Idempotency-Key, if it has one, and has the audit trail name what was made. It must
// run in the transaction that makes what the answer tells of.
func (r *request) keep(tx *models.Store, status int, answer any) error {
	if r.once == nil && r.audit == nil {
		return nil
	}
	encoded, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	r.auditAnswer(encoded)
	if r.once == nil {
		return nil
	}
	return tx.SaveIdempotent(r.ctx, &models.IdempotentResponse{
		CustomerID: r.customer, Key: r.once.key, Method: r.once.method, Path: r.once.path,
		RequestHash: r.once.hash, Status: status, Body: encoded,
	})
}

// replay returns the answer stored under the request's key, nil where there is none, and idempotency_conflict where the key
// was used for another request.
func replay(r *request, store *models.Store) (*models.IdempotentResponse, error) {
	stored, err := store.FindIdempotent(r.ctx, r.customer, r.once.key)
	if errors.Is(err, models.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find stored answer: %w", err)
	}
	if oldest := store.Now().Add(-IdempotencyWindow); stored.CreatedAt.Before(oldest) {
		if _, err := store.PruneIdempotent(r.ctx, oldest); err != nil {
			return nil, fmt.Errorf("forget stored answers: %w", err)
		}
		return nil, nil
	}
	if stored.Method != r.once.method || stored.Path != r.once.path || stored.RequestHash != r.once.hash {
		return nil, &Error{Code: codeIdempotencyConflict, Field: headerIdempotencyKey, Message: "Idempotency-Key was already used for another request"}
	}
	return stored, nil
}

// orReplay answers a failed request, but for one that can be tried again as it is: a concurrent twin may have been the cause and have succeeded meanwhile, in which case
// its answer is the right one. It looks inside a transaction: on SQLite, where transactions share a commit, this failure may
// be known before the twin's success is committed, and a transaction waits for that.
func (s *Server) orReplay(c *fiber.Ctx, r *request, failure error) error {
	if asError(failure).Status() == http.StatusServiceUnavailable {
		// Whether it, or a twin, was carried out all the same, the next try with the key tells.
		return failure
	}
	var stored *models.IdempotentResponse
	err := s.store.InTx(r.ctx, func(tx *models.Store) (err error) {
		stored, err = replay(r, tx)
		return err
	})
	if err != nil {
		return err
	}
	if stored == nil {
		return failure
	}
	return writeReplay(c, stored)
}

func writeReplay(c *fiber.Ctx, stored *models.IdempotentResponse) error {
	c.Set(headerReplayed, "true")
	return write(c, stored.Status, json.RawMessage(stored.Body))
}
