package daemon

import (
	"encoding/base64"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/api"
	"tandem/calls"
	"tandem/models"
)

var update = flag.Bool("update", false, "rewrite docs/configuration.md")

// loaded reads a configuration whose secret key lives in a folder of the test.
func loaded(t *testing.T, overrides map[string]string) (Config, error) {
	t.Helper()
	all := map[string]string{"secret_key_file": filepath.Join(t.TempDir(), "keys", "secret.key")}
	for key, value := range overrides {
		all[key] = value
	}
	return LoadConfig("", all)
}

func TestConfigDefaults(t *testing.T) {
	t.Parallel()
	cfg, err := loaded(t, nil)
	require.NoError(t, err)
	require.Equal(t, "sqlite:.tandem/tandem.db", cfg.DatabaseURL)
	require.Equal(t, "127.0.0.1:8080", cfg.HTTPAddr)
	require.Equal(t, []uint16{80, 443}, cfg.AllowPorts)
	require.Empty(t, cfg.AllowNetworks, "private networks are closed unless an operator opens them")
	require.Equal(t, int64(10_000), cfg.Billing.OutboundPerMinuteMicros)
	require.Equal(t, int64(5_000), cfg.Billing.InboundPerMinuteMicros)
	require.Equal(t, 5*time.Second, cfg.NodeLease)
	require.Equal(t, models.CustomerLimits{CallLimits: models.CallLimits{MaxCalls: 20, MaxCallsPerSecond: 5, Destinations: models.Destinations{AllowedDestinations: []string{}}}}, cfg.NewCustomer, "new customers call nowhere")
	require.Len(t, cfg.SecretKey, 32)
}

// TestConfigEnvironment sets every key through its variable; it cannot run in parallel with the others.
func TestConfigEnvironment(t *testing.T) { //nolint:paralleltest // t.Setenv
	key := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
	values := map[string]string{
		"database_url": "postgres://u@h/d", "http_addr": "0.0.0.0:1", "metrics_addr": "127.0.0.1:2", "node_addr": "10.0.0.5:8081", "node_url": "https://nodes.example/tandem",
		"recordings_dir": "/srv/recordings", "recording_limit": "2097152", "secret_key": key, "secret_key_file": "unused",
		"allow_networks": "10.1.2.3/8, fd00::/8", "allow_ports": "any", "providers": "192.0.2.0/24", "outbound_price": "0.0125",
		"inbound_price": "0", "billing_increment": "1", "max_grant": "600", "max_call": "7200", "no_balance_status": "402", "currency": "EUR", "sip_profile": "carriers",
		"trusted_proxies": "127.0.0.1/32, fd00::/8", "api_rate": "17", "api_address_rate": "18", "new_customer_max_calls": "15", "new_customer_max_calls_per_second": "16", "new_customer_destinations": "us, +44,SIP:pbx.example.com",
		"voice_engine": "other", "voice": "rms", "node_lease": "6s", "shutdown_timeout": "1m", "log_level": "debug", "log_format": "json",
		"tts_url": "https://voices.example/speak", "tts_token": "t0ken", "speech_engine": "vosk", "speech_module": "mod_vosk",
		"stream_hosts": "listen.example, EARS.example", "media_cache": "1048576",
		"accept_timeout": "7s", "max_calls": "11", "max_setup": "3s", "max_backlog": "12", "max_deferred": "13", "max_memory": "14",
		"retention_events": "24h", "retention_deliveries": "25h", "retention_attempts": "26h", "retention_calls": "0", "retention_cdrs": "87600h",
		"retention_strangers": "48h", "block_after": "7", "block_window": "11s", "block_for": "2m", "block_longest": "3m",
	}
	for _, s := range settings {
		require.Contains(t, values, s.key, "the test must set every key")
		t.Setenv(environmentName(s.key), values[s.key])
	}
	cfg, err := LoadConfig("", nil)
	require.NoError(t, err)
	require.Equal(t, "postgres://u@h/d", cfg.DatabaseURL)
	require.Equal(t, "0.0.0.0:1", cfg.HTTPAddr)
	require.Equal(t, "127.0.0.1:2", cfg.MetricsAddr)
	require.Equal(t, []string{"10.0.0.5:8081", "https://nodes.example/tandem", "/srv/recordings"}, []string{cfg.NodeAddr, cfg.NodeURL, cfg.RecordingsDir})
	require.Equal(t, int64(2<<20), cfg.RecordingLimit)
	require.Equal(t, strings.Repeat("k", 32), string(cfg.SecretKey))
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}, cfg.AllowNetworks)
	require.Empty(t, cfg.AllowPorts)
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, cfg.Providers)
	require.Equal(t, int64(12_500), cfg.Billing.OutboundPerMinuteMicros)
	require.Zero(t, cfg.Billing.InboundPerMinuteMicros)
	require.Equal(t, 1, cfg.Billing.IncrementSeconds)
	require.Equal(t, []int{600, 7200, 402}, []int{cfg.Billing.MaxGrantSeconds, cfg.Billing.MaxCallSeconds, cfg.NoBalanceStatus})
	require.Equal(t, "EUR", cfg.Currency)
	require.Equal(t, "carriers", cfg.SIPProfile)
	require.Equal(t, models.CustomerLimits{CallLimits: models.CallLimits{MaxCalls: 15, MaxCallsPerSecond: 16, Destinations: models.Destinations{AllowedDestinations: []string{"US", "+44", "sip:pbx.example.com"}}}}, cfg.NewCustomer)
	require.Equal(t, api.Rates{Key: 17, Address: 18}, cfg.Rates)
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("fd00::/8")}, cfg.TrustedProxies)
	require.Equal(t, "other", cfg.VoiceEngine)
	require.Equal(t, "rms", cfg.Voice)
	require.Equal(t, calls.Synthesis{URL: "https://voices.example/speak", Token: "t0ken"}, cfg.Synthesis)
	require.Equal(t, calls.Recognizer{Engine: "vosk", Module: "mod_vosk"}, cfg.Recognizer)
	require.Equal(t, []string{"listen.example", "ears.example"}, cfg.StreamHosts)
	require.Equal(t, int64(1<<20), cfg.MediaCache)
	require.Equal(t, models.Retention{Events: 24 * time.Hour, Deliveries: 25 * time.Hour, Attempts: 26 * time.Hour, CDRs: 87600 * time.Hour, Strangers: 48 * time.Hour}, cfg.Retention)
	require.Equal(t, models.BlockRules{After: 7, Window: 11 * time.Second, For: 2 * time.Minute, Longest: 3 * time.Minute}, cfg.Blocks)
	require.Equal(t, 6*time.Second, cfg.NodeLease)
	require.Equal(t, 7*time.Second, cfg.AcceptTimeout)
	require.Equal(t, calls.Limits{Calls: 11, Setup: 3 * time.Second, Backlog: 12, Deferred: 13, Memory: 14}, cfg.Limits)
	require.Equal(t, time.Minute, cfg.ShutdownTimeout)
	require.Equal(t, "debug", cfg.LogLevel)
	require.Equal(t, "json", cfg.LogFormat)
}

func TestConfigFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tandem.yaml")
	key := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
	require.NoError(t, os.WriteFile(file, []byte("secret_key: "+key+"\nhttp_addr: 127.0.0.1:9\n"), 0o600))
	cfg, err := LoadConfig(file, nil)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:9", cfg.HTTPAddr)

	require.NoError(t, os.WriteFile(file, []byte("htttp_addr: x\n"), 0o600))
	_, err = LoadConfig(file, nil)
	require.ErrorContains(t, err, `unknown key "htttp_addr"`)
}

func TestConfigRefusesAndNamesTheKey(t *testing.T) {
	t.Parallel()
	for key, value := range map[string]string{
		"database_url": "", "http_addr": "8080", "secret_key": "c2hvcnQ=", "allow_networks": "10.0.0.1", "allow_ports": "80,0",
		"providers": "carrier.example", "outbound_price": "0.0000001", "inbound_price": "-1", "billing_increment": "0",
		"max_grant": "1", "max_call": "1", "no_balance_status": "200", "currency": "", "sip_profile": "", "voice_engine": "", "voice": "", "node_lease": "1",
		"block_after": "-1", "block_window": "1s", "block_for": "5", "block_longest": "30m", "retention_strangers": "1h",
		"shutdown_timeout": "0s", "log_level": "loud", "log_format": "xml",
		"tts_url": "ftp://voices.example", "speech_engine": "vosk", "speech_module": "mod_vosk", "new_customer_destinations": "USA", "trusted_proxies": "proxy", "api_rate": "-1", "api_address_rate": "x", "new_customer_max_calls": "-1", "stream_hosts": "https://listen.example/", "media_cache": "-1",
	} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			_, err := loaded(t, map[string]string{key: value})
			require.Error(t, err)
			if key != "secret_key" {
				require.ErrorContains(t, err, key)
			}
			require.ErrorContains(t, err, environmentName(key))
		})
	}
}

func TestSecretKeyFileIsMadeOnceAndKept(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "deep", "secret.key")
	first, err := secretKey("", file)
	require.NoError(t, err)
	second, err := secretKey("", file)
	require.NoError(t, err)
	require.Equal(t, first, second)
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestSecretKeyFileUnderRace(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret.key")
	keys := make(chan []byte, 8)
	for range cap(keys) {
		go func() {
			key, err := secretKey("", file)
			if err != nil {
				key = nil
			}
			keys <- key
		}()
	}
	first := <-keys
	require.Len(t, first, 32)
	for range cap(keys) - 1 {
		require.Equal(t, first, <-keys)
	}
}

// TestConfigDocs holds docs/configuration.md to the settings; -update rewrites it.
func TestConfigDocs(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("# Configuration\n\nEvery setting is a key of the configuration file (`tandem --config FILE`, YAML, TOML or JSON) and an environment\n" +
		"variable; the variable wins. An unknown key or a value out of its bounds stops the start with a message that names it.\n\n" +
		"| key | environment | default | meaning |\n|---|---|---|---|\n")
	for _, s := range settings {
		value := "–"
		if s.value != "" {
			value = "`" + s.value + "`"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s |\n", s.key, environmentName(s.key), value, s.doc)
	}
	b.WriteString("\n`tandem dev` also reads `TANDEM_DEV_API_KEY`, which presets the API key. It keeps its data in `--data-dir` (`.tandem`), lets outgoing\n" +
		"HTTP reach loopback on any port, and counts loopback as a number provider.\n")
	file := filepath.Join("..", "docs", "configuration.md")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644)) //nolint:gosec // documentation
	}
	written, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(written), "run: go test ./daemon -run TestConfigDocs -update")
}
