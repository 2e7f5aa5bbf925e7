package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

const (
	// fromStdin stands for standard input where a file is named.
	fromStdin = "-"
	// trunkFileLimit is the largest file that describes a trunk, in bytes: more than the API takes.
	trunkFileLimit = 1 << 20
)

// trunkFlags are the flags that describe a new trunk. Those in the maps have the names of the API's fields, with dashes.
type trunkFlags struct {
	file, passwordFile, customer string
	texts                        map[string]*string
	lists                        map[string]*[]string
	numbers                      map[string]*int
	truths                       map[string]*bool
}

func (f *trunkFlags) register(set *pflag.FlagSet) {
	f.texts, f.lists, f.numbers, f.truths = map[string]*string{}, map[string]*[]string{}, map[string]*int{}, map[string]*bool{}
	set.StringVar(&f.customer, "customer", "", "id of the customer whose trunk it is to be")
	set.StringVar(&f.file, "file", "", "JSON file with the fields of POST /v1/trunks, - for standard input; flags win over it")
	set.StringVar(&f.passwordFile, "password-file", "", "file that holds the SIP password, - for standard input; asked for where somebody sits at a terminal")
	for _, text := range [][2]string{
		{"name", "a name for people"},
		{"proxy", "SIP proxy, host or host:port: makes the trunk outbound"}, {"username", "SIP user name"},
		{"realm", "digest realm, when it is not the proxy's name"}, {"from-domain", "domain of the From header, when it is not the proxy's name"},
		{"gateway-name", "name of the gateway on the nodes (default: the trunk's id)"},
		{"application-id", "inbound: the application that handles calls to numbers that are not DIDs"},
		{"transport", "udp, tcp or tls, where the proxy names none"}, {"strip-prefix", "taken off the beginning of a number"}, {"add-prefix", "put before the number then"},
		{"caller-id-policy", "any, own_dids or fixed"}, {"caller-id", "E.164 number that is shown, by the policy"},
	} {
		f.texts[text[0]] = set.String(text[0], "", text[1])
	}
	for _, list := range [][2]string{
		{"inbound-ips", "addresses and networks that calls come from: makes the trunk inbound"}, {"allowed-prefixes", "what the numbers begin with that may be called"},
		{"codecs", "what is offered to the carrier, the first one first"},
		{"allowed-destinations", "prefixes and countries that may be called, of what the customer may (default: all)"},
		{"denied-destinations", "prefixes and countries that may not be called all the same"},
		{"allowed-destination-types", "premium, satellite, shared_cost, of what the customer may (default: all)"},
	} {
		f.lists[list[0]] = set.StringSlice(list[0], nil, list[1])
	}
	for _, number := range [][2]string{
		{"port", "port of the proxy, where it names none"}, {"priority", "0 to 100: the lowest is tried first (default 10)"}, {"weight", "1 to 100: the share among trunks of one priority (default 1)"},
		{"max-calls", "calls at a time (default: any number)"}, {"max-calls-per-second", "calls that begin in a second (default: any number)"},
		{"max-calls-per-day", "calls that begin on a day in UTC (default: any number)"}, {"max-spend-per-day-micros", "what the calls of a day may cost, in millionths of the currency (default: any amount)"},
		{"max-call-seconds", "seconds that a call may last (default: as the server is configured)"},
	} {
		f.numbers[number[0]] = set.Int(number[0], 0, number[1])
	}
	for _, truth := range [][2]string{
		{"register", "whether to register with the proxy (default: with a user name and a password)"}, {"is-active", "whether calls go through it (default true)"},
	} {
		f.truths[truth[0]] = set.Bool(truth[0], false, truth[1])
	}
}

// body is the request: what the file says, and over it the flags that are given.
func (f *trunkFlags) body(cmd *cobra.Command) (map[string]any, error) {
	if f.file == fromStdin && f.passwordFile == fromStdin {
		return nil, usage("--file and --password-file cannot both be standard input")
	}
	body := map[string]any{}
	if f.file != "" {
		var err error
		if body, err = readTrunk(cmd, f.file); err != nil {
			return nil, err
		}
	}
	set := cmd.Flags()
	given(set, body, f.texts)
	given(set, body, f.lists)
	given(set, body, f.numbers)
	given(set, body, f.truths)
	if f.customer != "" {
		body["customer_id"] = f.customer
	}
	if body["customer_id"] == nil || body["customer_id"] == "" {
		return nil, usage("--customer is required, or customer_id in the file")
	}
	_, known := body["password"]
	switch {
	case f.passwordFile != "" && f.passwordFile != fromStdin:
		password, err := readSecret("password-file", f.passwordFile)
		if err != nil {
			return nil, err
		}
		body["password"] = password
	case f.passwordFile == fromStdin, body["username"] != nil && !known && f.file != fromStdin && interactive(cmd.InOrStdin()):
		password, err := readPassword(cmd, f.passwordFile == fromStdin)
		if err != nil {
			return nil, err
		}
		if password != "" {
			body["password"] = password
		}
	}
	return body, nil
}

// given puts the flags that are given into a body, under the names of the fields.
func given[T any](set *pflag.FlagSet, body map[string]any, flags map[string]*T) {
	for name, value := range flags {
		if set.Changed(name) {
			body[strings.ReplaceAll(name, "-", "_")] = *value
		}
	}
}

// readTrunk reads a file that describes a trunk. What is in it is the API's to check.
func readTrunk(cmd *cobra.Command, name string) (map[string]any, error) {
	from := cmd.InOrStdin()
	if name != fromStdin {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("--file: %w", err)
		}
		defer func() { _ = file.Close() }() // it was only read
		from = file
	}
	raw, err := io.ReadAll(io.LimitReader(from, trunkFileLimit+1))
	if err != nil {
		return nil, fmt.Errorf("--file: %w", err)
	}
	if len(raw) > trunkFileLimit {
		return nil, fmt.Errorf("--file: %s is larger than 1 MiB", name)
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var body map[string]any
	if err := decoder.Decode(&body); err != nil {
		return nil, fmt.Errorf("--file: %s must hold a JSON object: %w", name, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) || body == nil {
		return nil, fmt.Errorf("--file: %s must hold one JSON object and nothing else", name)
	}
	return body, nil
}

// readPassword asks for the SIP password, or reads it from standard input; a required one is not empty.
func readPassword(cmd *cobra.Command, required bool) (string, error) {
	var raw []byte
	var err error
	if interactive(cmd.InOrStdin()) {
		note(cmd, "SIP password (not shown; empty for none):")
		raw, err = term.ReadPassword(int(cmd.InOrStdin().(*os.File).Fd()))
	} else if raw, err = bufio.NewReader(io.LimitReader(cmd.InOrStdin(), 4096)).ReadBytes('\n'); errors.Is(err, io.EOF) {
		err = nil
	}
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}
	password := strings.TrimRight(string(raw), "\r\n")
	if password == "" && required {
		return "", usage("--password-file -: there is no password on standard input")
	}
	return password, nil
}

func newTrunksCreate(opts *options) *cobra.Command {
	flags := &trunkFlags{}
	cmd := &cobra.Command{
		Use:   "create --customer CUSTOMER_ID --name NAME (--proxy HOST | --inbound-ips ADDRESS,…)",
		Short: "Create a trunk of a customer",
		Long: "create makes an outbound trunk with --proxy and an inbound one with --inbound-ips. The flags are the fields of\n" +
			"POST /v1/trunks, which has their rules; --file has them in JSON, and flags win over it. The SIP password is never an\n" +
			"argument, which other users of a machine could see: it is in --password-file, in the file, or asked for.",
		Args: args(cobra.NoArgs),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, _ []string) error {
			body, err := flags.body(cmd)
			if err != nil {
				return err
			}
			var made json.RawMessage
			if err := c.post(cmd.Context(), "/trunks", body, &made); err != nil {
				return err
			}
			return show(opts, cmd.OutOrStdout(), trunkView, made)
		}),
	}
	flags.register(cmd.Flags())
	complete(cmd, "transport", "udp", "tcp", "tls")
	complete(cmd, "caller-id-policy", "any", "own_dids", "fixed")
	return cmd
}
