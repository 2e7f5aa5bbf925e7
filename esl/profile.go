package esl

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Gateway is one row of `sofia xmlstatus gateway`.
type Gateway struct {
	Name    string  `xml:"name"`
	Profile string  `xml:"profile"`
	Proxy   string  `xml:"proxy"`
	Context string  `xml:"context"`
	Scheme  string  `xml:"scheme"`
	State   string  `xml:"state"`  // REGED, TRYING, FAIL_WAIT, NOREG, …
	Status  string  `xml:"status"` // UP or DOWN, by the OPTIONS ping
	PingMS  float64 `xml:"pingtime"`

	CallsIn        int64 `xml:"calls-in"`
	CallsOut       int64 `xml:"calls-out"`
	FailedCallsIn  int64 `xml:"failed-calls-in"`
	FailedCallsOut int64 `xml:"failed-calls-out"`
}

// Gateways asks for the state of every gateway.
func (n *Node) Gateways(ctx context.Context) ([]Gateway, error) {
	reply, err := n.api(ctx, "sofia", "xmlstatus gateway")
	if err != nil {
		return nil, err
	}
	return parseGateways(reply)
}

// Gateway asks for the state of one gateway, nil where the switch has none of the name.
func (n *Node) Gateway(ctx context.Context, name string) (*Gateway, error) {
	if err := checkPattern("gateway", name, gatewayPattern, "letters, digits, '.', '_' or '-'"); err != nil {
		return nil, err
	}
	reply, err := n.api(ctx, "sofia", "xmlstatus gateway "+name)
	if err != nil {
		return nil, err
	}
	list, err := parseGateways(reply)
	if err != nil || len(list) == 0 { // "Invalid Gateway!"
		return nil, err
	}
	return &list[0], nil
}

// parseGateways reads the rows one by one. FreeSWITCH claims ISO-8859-1 and writes whatever bytes the configuration held.
func parseGateways(doc string) ([]Gateway, error) {
	d := xml.NewDecoder(strings.NewReader(strings.ToValidUTF8(doc, "\uFFFD")))
	d.Strict = false
	d.CharsetReader = func(_ string, input io.Reader) (io.Reader, error) { return input, nil }
	var list []Gateway
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, fmt.Errorf("parse the list of gateways (%d bytes): %w", len(doc), err)
		}
		start, ok := token.(xml.StartElement)
		if !ok || start.Name.Local != "gateway" {
			continue
		}
		var g Gateway
		if err := d.DecodeElement(&g, &start); err != nil {
			return nil, fmt.Errorf("parse gateway %d: %w", len(list)+1, err)
		}
		list = append(list, g)
	}
}

// ReloadXML makes the switch read its configuration and dialplan again.
func (n *Node) ReloadXML(ctx context.Context) error {
	_, err := n.slow(ctx, "reloadxml", "")
	return err
}

// ReloadACL makes the switch read its access lists again; it reloads the XML too.
func (n *Node) ReloadACL(ctx context.Context) error {
	_, err := n.slow(ctx, "reloadacl", "")
	return err
}

// RescanProfile makes a SIP profile load the gateways that are new. It never replaces one that is loaded (sofia.c, parse_gateways): see
// KillGateway.
func (n *Node) RescanProfile(ctx context.Context, profile string) error {
	if err := checkPattern("profile", profile, gatewayPattern, "letters, digits, '.', '_' or '-'"); err != nil {
		return err
	}
	_, err := n.slow(ctx, "sofia", "profile "+profile+" rescan")
	return err
}

// KillGateway unloads a gateway.
func (n *Node) KillGateway(ctx context.Context, profile, gateway string) error {
	if err := checkPattern("profile", profile, gatewayPattern, "letters, digits, '.', '_' or '-'"); err != nil {
		return err
	}
	if err := checkPattern("gateway", gateway, gatewayPattern, "letters, digits, '.', '_' or '-'"); err != nil {
		return err
	}
	if strings.EqualFold(gateway, "_all_") {
		return refuse("gateway", "must not be _all_, which stands for every gateway")
	}
	_, err := n.api(ctx, "sofia", "profile "+profile+" killgw "+gateway)
	return err
}

// GlobalVariable returns a global variable of the switch, or empty when it is not set.
func (n *Node) GlobalVariable(ctx context.Context, name string) (string, error) {
	if err := checkPattern("name", name, variablePattern, "named with a letter, then letters, digits and _ . -"); err != nil {
		return "", err
	}
	reply, err := n.api(ctx, "global_getvar", name)
	if refused := new(CommandError); errors.As(err, &refused) && refused.Reply == "-ERR no reply" {
		return "", nil // how the event socket words an empty reply (mod_event_socket.c, api_exec)
	}
	return strings.TrimSuffix(reply, "\n"), err
}

// Version returns the switch's version line.
func (n *Node) Version(ctx context.Context) (string, error) {
	reply, err := n.api(ctx, "version", "")
	return strings.TrimSpace(reply), err
}
