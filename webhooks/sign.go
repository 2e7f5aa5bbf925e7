package webhooks

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"tandem/models"
)

// Headers of the Standard Webhooks specification 1.0.0.
const (
	// HeaderID carries the event's id, the same on every attempt.
	HeaderID = "webhook-id"
	// HeaderTimestamp carries the time of this attempt, in seconds since the Unix epoch.
	HeaderTimestamp = "webhook-timestamp"
	// HeaderSignature carries one signature per active secret, separated by spaces.
	HeaderSignature = "webhook-signature"
)

// Tolerance is how far the timestamp of a request may be from the clock of whoever verifies it.
const Tolerance = 5 * time.Minute

const (
	secretPrefix   = "whsec_"
	signatureV1    = "v1,"
	minSecretBytes = 24
	maxSecretBytes = 64
	newSecretBytes = 32
)

// Errors of Verify.
var (
	ErrMissingHeaders = errors.New("webhook-id, webhook-timestamp or webhook-signature is missing")
	ErrTimestamp      = errors.New("webhook-timestamp is not within five minutes of now")
	ErrSignature      = errors.New("no signature matches")
)

// NewSecret returns a new signing secret: "whsec_" and the base64 of 32 random bytes.
func NewSecret() string {
	raw := make([]byte, newSecretBytes)
	_, _ = rand.Read(raw) // never fails: crypto/rand.Read crashes the program instead
	return secretPrefix + base64.StdEncoding.EncodeToString(raw)
}

// key returns the HMAC key that a secret stands for: the bytes after "whsec_" where they are base64 of 24 to 64 bytes
// (Standard Webhooks 1.0.0, "Signature scheme"), otherwise the bytes of the secret itself, because a customer may choose
// any.
func key(secret string) []byte {
	if encoded, ok := strings.CutPrefix(secret, secretPrefix); ok {
		raw, err := base64.StdEncoding.DecodeString(encoded)
		if err == nil && len(raw) >= minSecretBytes && len(raw) <= maxSecretBytes {
			return raw
		}
	}
	return []byte(secret)
}

// Keys returns the keys that sign for an application now: the secret's and, during the overlap after a rotation, the
// previous one's. An application without a secret has none.
func Keys(app *models.Application, now time.Time) [][]byte {
	var keys [][]byte
	if app.WebhookSecret != "" {
		keys = append(keys, key(string(app.WebhookSecret)))
	}
	if app.PreviousSecret != "" && app.PreviousSecretUntil != nil && now.Before(*app.PreviousSecretUntil) {
		keys = append(keys, key(string(app.PreviousSecret)))
	}
	return keys
}

// Sign returns the value of the signature header: for each key, "v1," and the base64 of the HMAC-SHA256 over
// "id.timestamp.body", separated by spaces.
func Sign(keys [][]byte, id string, ts time.Time, body []byte) string {
	signatures := make([]string, len(keys))
	for i, k := range keys {
		signatures[i] = signatureV1 + base64.StdEncoding.EncodeToString(mac(k, id, strconv.FormatInt(ts.Unix(), 10), body))
	}
	return strings.Join(signatures, " ")
}

func mac(key []byte, id, timestamp string, body []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(id + "." + timestamp + "."))
	h.Write(body)
	return h.Sum(nil)
}

// SetHeaders sets the three headers of the specification on a request. Without keys the signature header is left out.
func SetHeaders(h http.Header, keys [][]byte, id string, ts time.Time, body []byte) {
	h.Set(HeaderID, id)
	h.Set(HeaderTimestamp, strconv.FormatInt(ts.Unix(), 10))
	if len(keys) > 0 {
		h.Set(HeaderSignature, Sign(keys, id, ts, body))
	}
}

// Verify checks the signature of a request as a receiver would: ErrMissingHeaders, ErrTimestamp, ErrSignature or nil.
func Verify(secret string, h http.Header, body []byte, now time.Time) error {
	id, timestamp, signature := h.Get(HeaderID), h.Get(HeaderTimestamp), h.Get(HeaderSignature)
	if id == "" || timestamp == "" || signature == "" {
		return ErrMissingHeaders
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > Tolerance {
		return ErrTimestamp
	}
	want := mac(key(secret), id, timestamp, body)
	for _, candidate := range strings.Fields(signature) {
		encoded, ok := strings.CutPrefix(candidate, signatureV1)
		if !ok {
			continue
		}
		got, err := base64.StdEncoding.DecodeString(encoded)
		if err == nil && hmac.Equal(got, want) {
			return nil
		}
	}
	return ErrSignature
}
