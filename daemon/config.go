package daemon

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/viper"

	"tandem/api"
	"tandem/billing"
	"tandem/calls"
	"tandem/dialplan"
	"tandem/models"
	"tandem/numbering"
)

// Config is everything that an operator can set. Each field is one key of the configuration file and one environment
// variable: `database_url` is TANDEM_DATABASE_URL. docs/configuration.md lists them; TestConfigDocs holds the two together.
type Config struct {
	// DatabaseURL is "sqlite:PATH" or "postgres://…".
	DatabaseURL string
	// HTTPAddr is the address that the API listens on.
	HTTPAddr string
	// MetricsAddr is the address that metrics are served on, empty for none.
	MetricsAddr string
	// NodeAddr is the address that nodes without a shared disk talk to; empty: none do. NodeURL is how they reach it.
	NodeAddr, NodeURL string
	// RecordingsDir takes the recordings of these nodes, each of at most RecordingLimit bytes.
	RecordingsDir  string
	RecordingLimit int64
	// SecretKey encrypts SIP passwords and webhook secrets at rest (AES-256: 32 bytes).
	SecretKey []byte
	// AllowNetworks are private networks that outgoing HTTP (answer_url, webhook_url, play URLs) may reach all the same.
	AllowNetworks []netip.Prefix
	// AllowPorts are the TCP ports that outgoing HTTP may reach; empty means any.
	AllowPorts []uint16
	// Providers are the networks of the operator's own number providers, who may call any DID.
	Providers []netip.Prefix
	// Billing holds the prices per minute and the limits of a reservation.
	Billing billing.Config
	// Currency is the ISO 4217 code given to new customers.
	Currency string
	// Rates bound the requests to the API, TrustedProxies are the networks of the reverse proxies before it.
	Rates          api.Rates
	TrustedProxies []netip.Prefix
	// NewCustomer are the limits of customers that are made without others.
	NewCustomer models.CustomerLimits
	// SIPProfile is the name of the sofia profile that gateways belong to.
	SIPProfile string
	// VoiceEngine and Voice are the default of the say action.
	VoiceEngine, Voice string
	// Synthesis is the text-to-speech server of VoiceEngine "http".
	Synthesis calls.Synthesis
	// Recognizer is the speech recognizer that the nodes have.
	Recognizer calls.Recognizer
	// StreamHosts are the hosts that the nodes may stream calls to.
	StreamHosts []string
	// MediaCache bounds what is kept of fetched sound files, in bytes.
	MediaCache int64
	// Limits are what makes a controller refuse new calls.
	Limits calls.Limits
	// AcceptTimeout is how long a node takes calls without word from its controller.
	AcceptTimeout time.Duration
	// NoBalanceStatus is the SIP status that refuses an inbound call for which the balance does not pay.
	NoBalanceStatus int
	// NodeLease is how long a node stays with a controller that has stopped renewing.
	NodeLease time.Duration
	// Retention is how long events, deliveries, attempts, what calls leave and CDRs are kept.
	Retention models.Retention
	// Blocks say when an address that calls uninvited is blocked.
	Blocks models.BlockRules
	// ShutdownTimeout bounds the orderly stop.
	ShutdownTimeout time.Duration
	// hangUpAtStop ends the calls with this process, whose switch ends with it.
	hangUpAtStop bool
	// LogLevel is debug, info, warn or error; LogFormat is text or json.
	LogLevel, LogFormat string
}

// setting is one configuration key with its default and the sentence that documents it.
type setting struct {
	key, value, doc string
}

// settings lists every key. viper ignores an environment variable whose key it has never heard of, so each key is
// registered from here, with its default.
var settings = []setting{
	{"database_url", "sqlite:.tandem/tandem.db", "`sqlite:PATH` or `postgres://user:password@host/database`."},
	{"http_addr", "127.0.0.1:8080", "Address of the HTTP API."},
	{"trusted_proxies", "", "Comma-separated networks (CIDR) of the reverse proxies before the API, whose `X-Forwarded-For` tells where requests come from. Without it all that comes through a proxy has the proxy's address."},
	{"api_rate", "6000", "Requests that an API key, or an operator's token, may make in a minute, at all controllers together; `0`: any number. An operator can give a customer another rate."},
	{"api_address_rate", "120", "Requests without a valid key that may come from an address in a minute; one with a wrong key counts as four. `0`: any number."},
	{"metrics_addr", "", "Address of the metrics for Prometheus (`GET /metrics`), such as `127.0.0.1:9090`; empty: none. They tell of no numbers, but keep them off the public side."},
	{"node_addr", "", "Address of the port that nodes with the delivery `xml_curl` talk to, such as `10.0.0.5:8081`. Keep it to the network of the nodes. Empty: there are none."},
	{"node_url", "", "URL by which these nodes reach `node_addr` of this very controller, such as `http://10.0.0.5:8081`."},
	{"recordings_dir", ".tandem/recordings", "Folder for the recordings that these nodes send; controllers that share a database share it."},
	{"recording_limit", "1073741824", "Bytes of the largest recording that is taken from a node."},
	{"secret_key", "", "32 bytes in base64 that encrypt SIP passwords and webhook secrets at rest. Empty: read from `secret_key_file`."},
	{"secret_key_file", ".tandem/secret.key", "File that holds the secret key; made with mode 0600 when it does not exist. Back it up: without it the stored secrets cannot be read."},
	{"allow_networks", "", "Comma-separated networks (CIDR) of private addresses that answer_url, webhook_url and play URLs may reach. Public addresses are always allowed, private ones never unless listed."},
	{"allow_ports", "80,443", "Comma-separated TCP ports that outgoing HTTP may reach; `any` for all."},
	{"providers", "", "Comma-separated networks (CIDR) of the operator's number providers, who may call any DID."},
	{"outbound_price", "0.01", "Price of a minute of an outbound call, in units of the currency, up to six decimals."},
	{"inbound_price", "0.005", "Price of a minute of an inbound call."},
	{"billing_increment", "60", "Seconds in a billing increment; every increment begun is paid."},
	{"max_grant", "3600", "Longest time in seconds for which the cost of a call is held at a time. A call that lasts longer is held more for before; without a controller, the switch ends it there."},
	{"max_call", "14400", "Longest time in seconds that a call may last, where no limit says less; the switch ends the call there."},
	{"no_balance_status", "503", "SIP status that refuses an inbound call for which the balance does not pay, 400 to 699."},
	{"currency", "USD", "ISO 4217 code of new customers' accounts."},
	{"new_customer_max_calls", "20", "Calls and dialled parties that a new customer may have at a time, unless an operator says otherwise; `0`: any number. Existing customers keep what they have."},
	{"new_customer_max_calls_per_second", "5", "Outbound calls and dialled parties that a new customer may begin in a second; `0`: any number."},
	{"new_customer_destinations", "", "Comma-separated destinations that a new customer may call: prefixes (`+44`), countries (`US`), `sip:HOST`, `sip:*`; `*`: everywhere. Empty: nowhere, until an operator says where (`tandem customers limits`)."},
	{"sip_profile", "external", "Name of the sofia profile that gateways belong to."},
	{"voice_engine", "flite", "Speech engine of the say action: one of the switch's own, or `http` for the server at `tts_url`."},
	{"voice", "slt", "Default voice of the say action."},
	{"tts_url", "", "Text-to-speech server of the voice engine `http`: asked by POST with `{\"text\", \"voice\", \"language\"}`, it answers with a WAV file (or MP3 where the nodes have mod_shout). When it fails, mod_flite speaks."},
	{"tts_token", "", "Bearer token for `tts_url`."},
	{"speech_engine", "", "Speech recognizer of the nodes for gathers that listen, such as `vosk`; empty: gathers that listen are refused."},
	{"speech_module", "", "Module of FreeSWITCH that holds `speech_engine`, such as `mod_vosk`."},
	{"stream_hosts", "", "Comma-separated hosts that calls may be streamed to; everything below a host too. Empty: streams are refused."},
	{"media_cache", "268435456", "Bytes of fetched sound files that are kept for the next call that plays them."},
	{"node_lease", "5s", "How long a node stays with a controller that has stopped renewing its lease; another controller takes it then."},
	{"retention_events", "720h", "How long an event is kept: since it happened, until its call has ended that long ago, and as long as its delivery. `0` keeps for ever; otherwise 24h to 87600h, as for all of these."},
	{"retention_deliveries", "720h", "How long the delivery of an event is kept with its attempts since it was taken or given up. What is still to be delivered is always kept."},
	{"retention_attempts", "168h", "How long the attempts of deliveries are kept, with the first KiB of each answer."},
	{"retention_calls", "2160h", "How long after their end calls keep their legs, their stays in queues and conferences and their place in their actions. Calls themselves, recordings and the ledger are always kept."},
	{"retention_cdrs", "2160h", "How long the CDRs of the nodes are kept that were held against what was billed."},
	{"retention_strangers", "720h", "How long it is kept who was refused, since the last call, and what was blocked, since it ended: that at least for 720h."},
	{"block_after", "20", "Uninvited calls within `block_window` after which their source is blocked by itself; `0`: never. See [abuse.md](abuse.md)."},
	{"block_window", "5m", "How long uninvited calls are counted together."},
	{"block_for", "1h", "How long the first automatic block of an address lasts; each further one within 30 days twice as long as the one before."},
	{"block_longest", "168h", "Longest automatic block."},
	{"accept_timeout", "10s", "How long a node goes on taking calls after its controller has fallen silent; then its dialplan answers 503."},
	{"max_calls", "20000", "Calls that one controller holds; further ones are refused: 503 to the API, 503 in the dialplan."},
	{"max_setup", "4s", "How long the oldest new call may wait to be routed and stored before further ones are refused."},
	{"max_backlog", "20000", "Events of the switches that may wait before new calls are refused."},
	{"max_deferred", "16384", "Changes of calls that wait in memory while the database is away; a call whose change finds no room waits itself."},
	{"max_memory", "0", "Bytes of memory in use from which new calls are refused; 0: half of what the container or the machine has."},
	{"shutdown_timeout", "15s", "Bound of an orderly stop, in which calls are left to the next controller."},
	{"log_level", "info", "`debug`, `info`, `warn` or `error`."},
	{"log_format", "text", "`text` or `json`."},
}

// LoadConfig reads the configuration: defaults, then the file (YAML, TOML or JSON; none when empty), then the
// environment. Overrides, keyed like the file, win over all. An error names the key that is wrong.
func LoadConfig(file string, overrides map[string]string) (Config, error) {
	v := viper.New()
	v.SetEnvPrefix("tandem")
	v.AutomaticEnv()
	known := make([]string, 0, len(settings))
	for _, s := range settings {
		v.SetDefault(s.key, s.value)
		known = append(known, s.key)
	}
	if file != "" {
		v.SetConfigFile(file)
		if err := v.ReadInConfig(); err != nil {
			return Config{}, fmt.Errorf("read configuration: %w", err)
		}
		for _, key := range v.AllKeys() {
			if !slices.Contains(known, key) {
				return Config{}, fmt.Errorf("read configuration %s: unknown key %q", file, key)
			}
		}
	}
	for key, value := range overrides {
		v.Set(key, value)
	}
	r := reader{v: v}
	cfg := Config{
		DatabaseURL:    r.text("database_url"),
		HTTPAddr:       r.address("http_addr"),
		MetricsAddr:    r.optionalAddress("metrics_addr"),
		RecordingsDir:  r.text("recordings_dir"),
		RecordingLimit: int64(r.integer("recording_limit", 1<<20, 1<<40)),
		AllowNetworks:  r.prefixes("allow_networks"),
		AllowPorts:     r.ports("allow_ports"),
		Providers:      r.prefixes("providers"),
		Currency:       r.text("currency"),
		Rates:          api.Rates{Key: r.integer("api_rate", 0, 1_000_000), Address: r.integer("api_address_rate", 0, 1_000_000)},
		TrustedProxies: r.prefixes("trusted_proxies"),
		NewCustomer: models.CustomerLimits{CallLimits: models.CallLimits{
			MaxCalls:          r.integer("new_customer_max_calls", 0, 1_000_000),
			MaxCallsPerSecond: r.integer("new_customer_max_calls_per_second", 0, 10_000),
			Destinations:      models.Destinations{AllowedDestinations: r.destinations("new_customer_destinations")},
		}},
		SIPProfile:  r.text("sip_profile"),
		VoiceEngine: r.text("voice_engine"),
		Voice:       r.text("voice"),
		Synthesis:   calls.Synthesis{URL: r.v.GetString("tts_url"), Token: r.v.GetString("tts_token")},
		Recognizer:  calls.Recognizer{Engine: r.v.GetString("speech_engine"), Module: r.v.GetString("speech_module")},
		StreamHosts: r.hosts("stream_hosts"),
		MediaCache:  int64(r.integer("media_cache", 0, 1<<40)),
		NodeLease:   r.duration("node_lease", time.Second, time.Minute),
		Retention: models.Retention{
			Events:     r.retention("retention_events"),
			Deliveries: r.retention("retention_deliveries"),
			Attempts:   r.retention("retention_attempts"),
			Calls:      r.retention("retention_calls"),
			CDRs:       r.retention("retention_cdrs"),
			Strangers:  r.retention("retention_strangers"),
		},
		Blocks: models.BlockRules{
			After: int64(r.integer("block_after", 0, 1_000_000)), Window: r.duration("block_window", 10*time.Second, 24*time.Hour),
			For: r.duration("block_for", time.Minute, 30*24*time.Hour), Longest: r.duration("block_longest", time.Minute, 365*24*time.Hour),
		},
		NoBalanceStatus: r.integer("no_balance_status", 400, 699),
		AcceptTimeout:   r.duration("accept_timeout", 3*time.Second, 10*time.Minute),
		Limits: calls.Limits{
			Calls:    r.integer("max_calls", 1, 1_000_000),
			Setup:    r.duration("max_setup", 100*time.Millisecond, time.Minute),
			Backlog:  r.integer("max_backlog", 1, 1_000_000),
			Deferred: r.integer("max_deferred", 1, 1_000_000),
			Memory:   int64(r.integer("max_memory", 0, 1<<44)),
		},
		ShutdownTimeout: r.duration("shutdown_timeout", time.Second, 10*time.Minute),
		LogLevel:        r.oneOf("log_level", "debug", "info", "warn", "error"),
		LogFormat:       r.oneOf("log_format", "text", "json"),
		Billing: billing.Config{
			OutboundPerMinuteMicros: r.micros("outbound_price"),
			InboundPerMinuteMicros:  r.micros("inbound_price"),
			IncrementSeconds:        r.integer("billing_increment", 1, 3600),
			MaxGrantSeconds:         r.integer("max_grant", 120, 86400),
			MaxCallSeconds:          r.integer("max_call", 60, 7*86400),
		},
	}
	r.voices(cfg)
	if cfg.Blocks.Longest < cfg.Blocks.For {
		r.fail("block_longest", "must not be shorter than block_for (%s), was %s", cfg.Blocks.For, cfg.Blocks.Longest)
	}
	cfg.NodeAddr, cfg.NodeURL = r.nodePort()
	if r.err == nil {
		cfg.SecretKey, r.err = secretKey(v.GetString("secret_key"), v.GetString("secret_key_file"))
	}
	if r.err != nil {
		return Config{}, r.err
	}
	return cfg, nil
}

// environmentName is the environment variable of a key.
func environmentName(key string) string { return "TANDEM_" + strings.ToUpper(key) }

// reader reads typed values and keeps the first error, with the name of its key.
type reader struct {
	v   *viper.Viper
	err error
}

func (r *reader) fail(key string, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("configuration %s (%s): %s", key, environmentName(key), fmt.Sprintf(format, args...))
	}
}

func (r *reader) text(key string) string {
	value := strings.TrimSpace(r.v.GetString(key))
	if value == "" {
		r.fail(key, "must not be empty")
	}
	return value
}

func (r *reader) address(key string) string {
	value := r.text(key)
	if _, _, err := net.SplitHostPort(value); err != nil {
		r.fail(key, "must be HOST:PORT, was %q", value)
	}
	return value
}

func (r *reader) optionalAddress(key string) string {
	if strings.TrimSpace(r.v.GetString(key)) == "" {
		return ""
	}
	return r.address(key)
}

func (r *reader) oneOf(key string, allowed ...string) string {
	value := r.text(key)
	if !slices.Contains(allowed, value) {
		r.fail(key, "must be one of %s, was %q", strings.Join(allowed, ", "), value)
	}
	return value
}

func (r *reader) integer(key string, low, high int) int {
	value := r.text(key)
	n, err := strconv.Atoi(value)
	if err != nil || n < low || n > high {
		r.fail(key, "must be a whole number from %d to %d, was %q", low, high, value)
	}
	return n
}

func (r *reader) duration(key string, low, high time.Duration) time.Duration {
	value := r.text(key)
	d, err := time.ParseDuration(value)
	if err != nil || d < low || d > high {
		r.fail(key, "must be a duration from %s to %s such as 10s, was %q", low, high, value)
	}
	return d
}

// retention reads how long something is kept, 0 for ever. A day is more than any controller may be away from the database.
func (r *reader) retention(key string) time.Duration {
	if r.text(key) == "0" {
		return 0
	}
	return r.duration(key, 24*time.Hour, 10*365*24*time.Hour)
}

func (r *reader) list(key string) []string {
	var out []string
	for _, part := range strings.Split(r.v.GetString(key), ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// destinations reads the entries of a numbering.Policy: nil for everywhere.
func (r *reader) destinations(key string) []string {
	entries := []string{}
	for _, part := range r.list(key) {
		entry, err := numbering.ParseEntry(part)
		if err != nil {
			r.fail(key, "%q %s", part, err)
			return nil
		}
		if entry == "*" {
			return nil
		}
		entries = append(entries, entry)
	}
	return entries
}

var hostName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,62})(\.[a-z0-9]([a-z0-9-]{0,62}))*$`)

func (r *reader) hosts(key string) []string {
	var out []string
	for _, part := range r.list(key) {
		host := strings.ToLower(strings.TrimSuffix(part, "."))
		if !hostName.MatchString(host) {
			r.fail(key, "must be a list of host names, has %q", part)
			continue
		}
		out = append(out, host)
	}
	return out
}

// nodePort reads the two settings of the port for nodes, which go together.
func (r *reader) nodePort() (addr, base string) {
	addr, base = strings.TrimSpace(r.v.GetString("node_addr")), strings.TrimSpace(r.v.GetString("node_url"))
	if addr == "" && base == "" {
		return "", ""
	}
	if _, err := dialplan.NewExchange(base); err != nil {
		r.fail("node_url", "must be an http or https URL without query and user, and goes with node_addr, was %q", base)
	}
	return r.address("node_addr"), base
}

// voices holds the settings of speech against each other.
func (r *reader) voices(cfg Config) {
	if cfg.VoiceEngine == calls.EngineHTTP || cfg.Synthesis.URL != "" {
		if u, err := url.Parse(cfg.Synthesis.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			r.fail("tts_url", "must be an http or https URL; voice_engine http needs one")
		}
	}
	if cfg.Recognizer.Engine != "" && cfg.Recognizer.Module == "" {
		r.fail("speech_module", "must be given with speech_engine (%s)", environmentName("speech_engine"))
	}
	if cfg.Recognizer.Module != "" && cfg.Recognizer.Engine == "" {
		r.fail("speech_engine", "must be given with speech_module (%s)", environmentName("speech_module"))
	}
}

func (r *reader) prefixes(key string) []netip.Prefix {
	var out []netip.Prefix
	for _, part := range r.list(key) {
		prefix, err := netip.ParsePrefix(part)
		if err != nil {
			r.fail(key, "must be a list of networks such as 10.0.0.0/8, has %q", part)
			continue
		}
		out = append(out, prefix.Masked())
	}
	return out
}

func (r *reader) ports(key string) []uint16 {
	parts := r.list(key)
	if len(parts) == 1 && parts[0] == "any" {
		return nil
	}
	var out []uint16
	for _, part := range parts {
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil || n == 0 {
			r.fail(key, "must be `any` or a list of ports, has %q", part)
			continue
		}
		out = append(out, uint16(n))
	}
	if len(out) == 0 {
		r.fail(key, "must be `any` or a list of ports")
	}
	return out
}

func (r *reader) micros(key string) int64 {
	value := r.text(key)
	micros, err := billing.ParseAmount(value)
	if err != nil || micros < 0 {
		r.fail(key, "must be a price such as 0.0125 with at most six decimals, was %q", value)
	}
	return micros
}

// secretKey decodes the key, or reads its file, or makes the file.
func secretKey(encoded, file string) ([]byte, error) {
	name := "TANDEM_SECRET_KEY"
	if encoded == "" {
		name = file
		raw, err := os.ReadFile(file)
		switch {
		case err == nil:
			encoded = string(raw)
		case errors.Is(err, fs.ErrNotExist):
			if encoded, err = makeSecretKey(file); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("read the secret key: %w", err)
		}
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
	if err != nil || len(key) != 32 {
		return nil, fmt.Errorf("secret key in %s: want 32 bytes in base64", name)
	}
	return key, nil
}

// makeSecretKey writes a new random key. O_EXCL keeps two processes that start together from using different keys:
// the loser reads what the winner wrote.
func makeSecretKey(file string) (string, error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", fmt.Errorf("make the secret key's folder: %w", err)
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return "", fmt.Errorf("make a secret key: %w", err)
	}
	encoded := base64.StdEncoding.EncodeToString(key)
	temporary, err := os.CreateTemp(filepath.Dir(file), ".secret-*")
	if err != nil {
		return "", fmt.Errorf("make the secret key: %w", err)
	}
	defer func() { _ = os.Remove(temporary.Name()) }()
	if _, err := temporary.WriteString(encoded + "\n"); err != nil {
		_ = temporary.Close()
		return "", fmt.Errorf("write the secret key: %w", err)
	}
	if err := errors.Join(temporary.Sync(), temporary.Close()); err != nil {
		return "", fmt.Errorf("write the secret key: %w", err)
	}
	if err := os.Link(temporary.Name(), file); err != nil {
		raw, readErr := os.ReadFile(file)
		if readErr != nil {
			return "", fmt.Errorf("write the secret key: %w", err)
		}
		return string(raw), nil
	}
	return encoded, nil
}
