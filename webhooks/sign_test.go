package webhooks

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"tandem/models"
)

const (
	prefixedSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	rawSecret      = "a customer's own secret, not base64"
)

var signedBody = []byte(`{"id":"evt_1","type":"call.completed","data":{"text":"Grüße"}}`)

func headersFor(secret models.Secret, at time.Time, body []byte) http.Header {
	h := http.Header{}
	SetHeaders(h, Keys(&models.Application{WebhookSecret: secret}, at), "evt_1", at, body)
	return h
}

// TestSignKnownAnswer holds the signature to the example of the Standard Webhooks specification.
func TestSignKnownAnswer(t *testing.T) {
	t.Parallel()
	body := []byte(`{"test": 2432232314}`)
	got := Sign([][]byte{key(prefixedSecret)}, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), body)
	require.Equal(t, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", got)
}

func TestKey(t *testing.T) {
	t.Parallel()
	encode := func(n int) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, n)) }
	for name, tc := range map[string]struct {
		secret string
		want   []byte
	}{
		"prefixed, 24 bytes":           {"whsec_" + encode(24), bytes.Repeat([]byte{7}, 24)},
		"prefixed, 64 bytes":           {"whsec_" + encode(64), bytes.Repeat([]byte{7}, 64)},
		"prefixed, too short":          {"whsec_" + encode(23), []byte("whsec_" + encode(23))},
		"prefixed, too long":           {"whsec_" + encode(65), []byte("whsec_" + encode(65))},
		"prefixed, not base64":         {"whsec_not base64 at all, my friend", []byte("whsec_not base64 at all, my friend")},
		"base64 without prefix is raw": {encode(32), []byte(encode(32))},
		"plain":                        {"hunter2", []byte("hunter2")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, key(tc.secret))
		})
	}
}

func TestNewSecret(t *testing.T) {
	t.Parallel()
	secret := NewSecret()
	require.NotEqual(t, secret, NewSecret())
	require.True(t, strings.HasPrefix(secret, "whsec_"))
	require.Len(t, key(secret), 32)
	_, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
}

func TestKeysDuringRotation(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	until := now.Add(24 * time.Hour)
	app := &models.Application{WebhookSecret: "new", PreviousSecret: "old", PreviousSecretUntil: &until}
	require.Equal(t, [][]byte{[]byte("new"), []byte("old")}, Keys(app, now))
	require.Equal(t, [][]byte{[]byte("new"), []byte("old")}, Keys(app, until.Add(-time.Microsecond)))
	require.Equal(t, [][]byte{[]byte("new")}, Keys(app, until))
	app.PreviousSecretUntil = nil
	require.Equal(t, [][]byte{[]byte("new")}, Keys(app, now))

	require.Empty(t, Keys(&models.Application{}, now))
	h := headersFor("", now, signedBody)
	require.Empty(t, h.Values(HeaderSignature))
	require.Equal(t, "evt_1", h.Get(HeaderID))
}

func TestVerify(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, secret := range []string{prefixedSecret, rawSecret} {
		h := headersFor(models.Secret(secret), now, signedBody)
		require.NoError(t, Verify(secret, h, signedBody, now))
		require.NoError(t, Verify(secret, h, signedBody, now.Add(Tolerance-time.Second)))
		require.ErrorIs(t, Verify(secret, h, signedBody, now.Add(Tolerance+time.Second)), ErrTimestamp)
		require.ErrorIs(t, Verify(secret, h, signedBody, now.Add(-Tolerance-time.Second)), ErrTimestamp)
		require.ErrorIs(t, Verify(secret, h, append([]byte(" "), signedBody...), now), ErrSignature)
		require.ErrorIs(t, Verify(secret+"x", h, signedBody, now), ErrSignature)

		for _, name := range []string{HeaderID, HeaderTimestamp, HeaderSignature} {
			broken := h.Clone()
			broken.Del(name)
			require.ErrorIs(t, Verify(secret, broken, signedBody, now), ErrMissingHeaders)
		}
		other := h.Clone()
		other.Set(HeaderID, "evt_2")
		require.ErrorIs(t, Verify(secret, other, signedBody, now), ErrSignature)
		other = h.Clone()
		other.Set(HeaderSignature, strings.Replace(h.Get(HeaderSignature), "v1,", "v1a,", 1))
		require.ErrorIs(t, Verify(secret, other, signedBody, now), ErrSignature)
		other.Set(HeaderSignature, "v1a,x v1,!!! "+h.Get(HeaderSignature))
		require.NoError(t, Verify(secret, other, signedBody, now))
	}
}

// FuzzVerify feeds headers that no signer wrote: only the true signature passes.
func FuzzVerify(f *testing.F) {
	now := time.Unix(1614265330, 0)
	valid := headersFor(prefixedSecret, now, signedBody)
	f.Add(valid.Get(HeaderID), valid.Get(HeaderTimestamp), valid.Get(HeaderSignature), signedBody)
	f.Add("evt_1", "1614265330", "v1,", []byte("{}"))
	f.Add("evt_1.1", "-1", "v1,AAAA v1a,x  v1", []byte(""))
	f.Add("", "9223372036854775807", "v1,"+strings.Repeat("A", 44), []byte("x"))
	f.Fuzz(func(t *testing.T, id, timestamp, signature string, body []byte) {
		h := http.Header{}
		h.Set(HeaderID, id)
		h.Set(HeaderTimestamp, timestamp)
		h.Set(HeaderSignature, signature)
		if Verify(prefixedSecret, h, body, now) == nil {
			want := base64.StdEncoding.EncodeToString(mac(key(prefixedSecret), id, timestamp, body))
			require.Contains(t, signature, want)
		}
	})
}

// TestPublishedGoLibrary has the published library verify what we sign and us what it signs.
func TestPublishedGoLibrary(t *testing.T) {
	t.Parallel()
	now := time.Now()
	prefixed, err := standardwebhooks.NewWebhook(prefixedSecret)
	require.NoError(t, err)
	raw, err := standardwebhooks.NewWebhookRaw([]byte(rawSecret))
	require.NoError(t, err)
	for secret, library := range map[string]*standardwebhooks.Webhook{prefixedSecret: prefixed, rawSecret: raw} {
		h := headersFor(models.Secret(secret), now, signedBody)
		require.NoError(t, library.Verify(signedBody, h))
		require.Error(t, library.Verify(signedBody[1:], h))
		require.Error(t, library.Verify(signedBody, headersFor("another secret", now, signedBody)))

		theirs, err := library.Sign("evt_1", now, signedBody)
		require.NoError(t, err)
		h.Set(HeaderSignature, theirs)
		require.NoError(t, Verify(secret, h, signedBody, now))
	}

	until := now.Add(24 * time.Hour)
	both := http.Header{}
	app := &models.Application{WebhookSecret: prefixedSecret, PreviousSecret: rawSecret, PreviousSecretUntil: &until}
	SetHeaders(both, Keys(app, now), "evt_1", now, signedBody)
	require.NoError(t, prefixed.Verify(signedBody, both), "a receiver with the new secret")
	require.NoError(t, raw.Verify(signedBody, both), "a receiver with the old secret")
}

// TestPublishedNPMLibrary has the published JavaScript library verify what we sign.
func TestPublishedNPMLibrary(t *testing.T) {
	t.Parallel()
	installed := installNPM(t)
	now := time.Now()
	until := now.Add(24 * time.Hour)
	type testCase struct {
		Secret  string            `json:"secret"`
		Raw     bool              `json:"raw"`
		Headers map[string]string `json:"headers"`
		Body    string            `json:"body"`
	}
	build := func(app *models.Application, secret string, raw bool, at time.Time, body string) testCase {
		h := http.Header{}
		SetHeaders(h, Keys(app, now), "evt_1", at, signedBody)
		headers := map[string]string{}
		for name := range h {
			headers[name] = h.Get(name)
		}
		return testCase{Secret: secret, Raw: raw, Headers: headers, Body: body}
	}
	prefixed := &models.Application{WebhookSecret: prefixedSecret}
	raw := &models.Application{WebhookSecret: rawSecret}
	rotated := &models.Application{WebhookSecret: prefixedSecret, PreviousSecret: rawSecret, PreviousSecretUntil: &until}
	body := string(signedBody)
	input, err := json.Marshal([]testCase{
		build(prefixed, prefixedSecret, false, now, body),
		build(raw, rawSecret, true, now, body),
		build(rotated, prefixedSecret, false, now, body),
		build(rotated, rawSecret, true, now, body),
		build(prefixed, rawSecret, true, now, body),
		build(prefixed, prefixedSecret, false, now, body+" "),
		build(prefixed, prefixedSecret, false, now.Add(-time.Hour), body),
	})
	require.NoError(t, err)

	script, err := filepath.Abs(filepath.Join("testdata", "npm", "verify.cjs"))
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "node", script, installed)
	cmd.Stdin = bytes.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	var verdicts []string
	require.NoError(t, json.Unmarshal(output, &verdicts))
	require.Equal(t, []string{
		"ok", "ok", "ok", "ok",
		"No matching signature found", "No matching signature found", "Message timestamp too old",
	}, verdicts)
}

// installNPM returns a folder in which the pinned package is installed. The folder is named by the lock file's content
// and kept in the user's cache, so that the registry is asked once.
func installNPM(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed: the published JavaScript verifier is not run", program)
		}
	}
	lock, err := os.ReadFile(filepath.Join("testdata", "npm", "package-lock.json"))
	require.NoError(t, err)
	manifest, err := os.ReadFile(filepath.Join("testdata", "npm", "package.json"))
	require.NoError(t, err)
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	sum := sha256.Sum256(lock)
	installed := filepath.Join(cache, "tandem-test", "standardwebhooks-"+hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(installed); err == nil {
		return installed
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(installed), 0o750))
	staging, err := os.MkdirTemp(filepath.Dir(installed), "staging-") //nolint:usetesting // beside its place: a rename must not cross disks
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(staging)) })
	require.NoError(t, os.WriteFile(filepath.Join(staging, "package.json"), manifest, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(staging, "package-lock.json"), lock, 0o600))
	cmd := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = staging
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("npm could not install the published JavaScript verifier, so it is not run: %v: %s", err, bytes.TrimSpace(output))
	}
	if err := os.Rename(staging, installed); err != nil {
		_, statErr := os.Stat(installed)
		require.NoError(t, statErr, "another process did not install it either: %v", err)
	}
	return installed
}
