package models

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

const redacted = "[redacted]"

// Secret is a value that must be recoverable (a SIP password, a webhook secret): plain in memory, sealed in the database,
// and "[redacted]" wherever it is printed, logged or turned into JSON. string(secret) gives the plain text.
type Secret string

// String implements fmt.Stringer without the secret.
func (Secret) String() string { return redacted }

// Format implements fmt.Formatter: no verb prints the secret.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalJSON implements json.Marshaler without the secret.
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalText implements encoding.TextMarshaler without the secret.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue implements slog.LogValuer without the secret.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// sealVersion begins every sealed value, so that another cipher or key can follow.
const sealVersion = "v1:"

// sealer encrypts with AES-256-GCM. The place of a value (table, column, row) is authenticated with it: a sealed value copied
// to another row or column does not open.
type sealer struct{ aead cipher.AEAD }

func newSealer(key []byte) (*sealer, error) {
	if len(key) != 32 {
		return nil, fmt.Errorf("encryption key has %d bytes, 32 are needed", len(key))
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("prepare encryption key: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("prepare encryption key: %w", err)
	}
	return &sealer{aead: aead}, nil
}

func place(table, column, id string) []byte { return []byte(table + ":" + column + ":" + id) }

// seal encrypts a secret for its place; an empty one stays empty.
func (s *sealer) seal(table, column, id string, secret Secret) string {
	if secret == "" {
		return ""
	}
	nonce := make([]byte, s.aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails: crypto/rand.Read crashes the program instead
	sealed := s.aead.Seal(nonce, nonce, []byte(secret), place(table, column, id))
	return sealVersion + base64.RawStdEncoding.EncodeToString(sealed)
}

// open decrypts what seal made for the same place; ErrUnsealed otherwise.
func (s *sealer) open(table, column, id, sealed string) (Secret, error) {
	if sealed == "" {
		return "", nil
	}
	encoded, ok := strings.CutPrefix(sealed, sealVersion)
	raw, err := base64.RawStdEncoding.DecodeString(encoded)
	if ok && err == nil && len(raw) > s.aead.NonceSize() {
		size := s.aead.NonceSize()
		var plain []byte
		if plain, err = s.aead.Open(nil, raw[:size], raw[size:], place(table, column, id)); err == nil {
			return Secret(plain), nil
		}
	}
	return "", fmt.Errorf("%w: %s.%s of %s: %w", ErrUnsealed, table, column, id, errors.New("not sealed for this place with this key"))
}
