package models_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

func TestSecretIsNotPrinted(t *testing.T) {
	t.Parallel()
	const plain = "canary-4711"
	secret := models.Secret(plain)
	holder := models.Application{Name: "visible", WebhookSecret: secret, PreviousSecret: secret}
	encoded, err := json.Marshal(map[string]any{"app": holder, "secret": secret, "pointer": &secret})
	require.NoError(t, err)
	var logged bytes.Buffer
	for _, handler := range []slog.Handler{slog.NewTextHandler(&logged, nil), slog.NewJSONHandler(&logged, nil)} {
		slog.New(handler).Info("test", "secret", secret, "holder", holder, "pointer", &secret)
	}
	printed := logged.String() + string(encoded)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t"} {
		printed += fmt.Sprintf(verb, secret) + fmt.Sprintf(verb, holder) + fmt.Sprintf(verb, []any{secret, holder})
	}
	require.Contains(t, printed, "visible")
	for _, form := range []string{plain, fmt.Sprintf("%x", plain), fmt.Sprintf("%X", plain), base64.StdEncoding.EncodeToString([]byte(plain))} {
		require.NotContains(t, printed, form)
	}
	require.Equal(t, plain, string(secret))
}

// canaries stores one secret of every kind and returns them.
func canaries(t *testing.T, s *models.Store) map[string]string {
	t.Helper()
	ctx := t.Context()
	secrets := map[string]string{
		"webhook": "canary-webhook-secret", "previous": "canary-previous-secret", "sip": "canary-sip-password", "esl": "canary-esl-password",
		"preset key": "canary-preset-api-key-of-an-operator", "answer": "canary-in-a-stored-answer",
	}
	customer := modelstest.Customer(t, s, 0)
	app := &models.Application{CustomerID: customer.ID, Name: "app", WebhookSecret: models.Secret(secrets["previous"])}
	require.NoError(t, s.CreateApplication(ctx, app))
	require.NoError(t, s.RotateWebhookSecret(ctx, customer.ID, app.ID, models.Secret(secrets["webhook"]), time.Hour))
	require.NoError(t, s.CreateTrunk(ctx, &models.Trunk{CustomerID: customer.ID, Direction: models.Outbound, GatewayName: "gw", Password: models.Secret(secrets["sip"])}))
	require.NoError(t, s.CreateNode(ctx, &models.Node{Name: "node", Password: models.Secret(secrets["esl"])}))
	generated, err := s.CreateAPIKey(ctx, &models.APIKey{CustomerID: customer.ID, Name: "generated"}, "")
	require.NoError(t, err)
	secrets["generated key"] = generated
	_, err = s.CreateAPIKey(ctx, &models.APIKey{CustomerID: customer.ID, Name: "preset"}, secrets["preset key"])
	require.NoError(t, err)
	require.NoError(t, s.SaveIdempotent(ctx, &models.IdempotentResponse{CustomerID: customer.ID, Key: "key", Body: []byte(secrets["answer"])}))
	return secrets
}

func requireAbsent(t *testing.T, dump string, secrets map[string]string) {
	t.Helper()
	for name, secret := range secrets {
		for _, form := range []string{secret, fmt.Sprintf("%x", secret), base64.StdEncoding.EncodeToString([]byte(secret)), base64.RawURLEncoding.EncodeToString([]byte(secret))} {
			require.NotContains(t, dump, form, "the dump contains the %s secret", name)
		}
	}
}

func TestSecretsNotInSQLiteFile(t *testing.T) {
	t.Parallel()
	location := modelstest.SQLiteURL(t)
	s, err := models.Open(t.Context(), models.Config{URL: location, Key: modelstest.Key})
	require.NoError(t, err)
	secrets := canaries(t, s)
	path := strings.TrimPrefix(location, "sqlite:")
	var dump []byte
	read := func() {
		files, err := filepath.Glob(path + "*")
		require.NoError(t, err)
		for _, file := range files {
			info, err := os.Stat(file)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), file)
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			dump = append(dump, content...)
		}
	}
	read() // with the write-ahead log
	require.NoError(t, s.Close())
	read() // checkpointed
	require.Contains(t, string(dump), "generated", "this is the right file")
	requireAbsent(t, string(dump), secrets)
}

func TestSecretsNotInPostgresDump(t *testing.T) {
	t.Parallel()
	s := modelstest.OpenPostgres(t)
	secrets := canaries(t, s)
	var tables []string
	require.NoError(t, models.Reader(s).Raw("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'").Scan(&tables).Error)
	require.Contains(t, tables, "applications")
	var dump strings.Builder
	for _, table := range tables {
		var rows []string
		require.NoError(t, models.Reader(s).Raw("SELECT CAST(x AS TEXT) FROM "+table+" x").Scan(&rows).Error)
		dump.WriteString(strings.Join(rows, "\n"))
	}
	require.Contains(t, dump.String(), "generated", "these are the right rows")
	requireAbsent(t, dump.String(), secrets)
}

func TestSealedSecretsStayInTheirPlace(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		one, two := modelstest.Application(t, s, customer), modelstest.Application(t, s, customer)
		trunk := modelstest.OutboundTrunk(t, s, customer)
		found, err := s.ApplicationByID(ctx, one.ID)
		require.NoError(t, err)
		require.Equal(t, one, found)

		for name, statement := range map[string]string{
			"other row":    "UPDATE applications SET webhook_secret = (SELECT webhook_secret FROM applications WHERE id = '" + two.ID + "') WHERE id = '" + one.ID + "'",
			"other column": "UPDATE applications SET previous_secret = webhook_secret WHERE id = '" + one.ID + "'",
			"other table":  "UPDATE applications SET webhook_secret = (SELECT password FROM trunks WHERE id = '" + trunk.ID + "') WHERE id = '" + one.ID + "'",
			"plain":        "UPDATE applications SET webhook_secret = 'plain' WHERE id = '" + one.ID + "'",
			"cut":          "UPDATE applications SET webhook_secret = SUBSTR(webhook_secret, 1, 20) WHERE id = '" + one.ID + "'",
		} {
			require.NoError(t, s.UpdateApplication(ctx, one))
			_, err = s.ApplicationByID(ctx, one.ID)
			require.NoError(t, err, name)
			require.NoError(t, models.Write(ctx, s, statement))
			_, err = s.ApplicationByID(ctx, one.ID)
			require.ErrorIs(t, err, models.ErrUnsealed, name)
			_, _, err = s.ListApplications(ctx, customer.ID, models.Page{})
			require.ErrorIs(t, err, models.ErrUnsealed, name)
		}
	})
}

func TestSecretsNeedTheKey(t *testing.T) {
	t.Parallel()
	modelstest.RunURL(t, "", func(t *testing.T, location string) {
		s, err := models.Open(t.Context(), models.Config{URL: location, Key: modelstest.Key})
		require.NoError(t, err)
		trunk := modelstest.OutboundTrunk(t, s, modelstest.Customer(t, s, 0))
		require.NoError(t, s.Close())
		s, err = models.Open(t.Context(), models.Config{URL: location, Key: bytes.Repeat([]byte{1}, 32)})
		require.NoError(t, err)
		_, err = s.TrunkByID(t.Context(), trunk.ID)
		require.ErrorIs(t, err, models.ErrUnsealed)
		require.NotContains(t, err.Error(), string(trunk.Password))
		require.NoError(t, s.Close())
		for _, size := range []int{0, 16, 31, 33} {
			_, err := models.Open(t.Context(), models.Config{URL: location, Key: make([]byte, size)})
			require.ErrorContains(t, err, "32 are needed")
		}
	})
}
