package dialplan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tandem/models"
)

// What every gateway gets, in seconds and counts. A gateway is down after pingMisses unanswered OPTIONS and up after as many
// answers: FreeSWITCH's default of 1 marks a carrier dead on one lost packet.
const (
	pingSeconds   = 20
	pingMisses    = 3
	expireSeconds = 600
	retrySeconds  = 30
)

// gatewayFolder and the others are where files live below a node's configuration directory.
const (
	gatewayFolder   = "tandem/gateways"
	dialplanFolder  = "tandem/dialplan"
	directoryFolder = "tandem/directory"
)

// gatewayPath names a gateway's file. The include's pattern "*.xml" does not see names with a leading dot (glob(3)); no gateway
// name holds a plus, so the name stays unique.
func gatewayPath(name string) string {
	if strings.HasPrefix(name, ".") {
		name = "+" + name
	}
	return gatewayFolder + "/" + name + ".xml"
}

// checkGatewayName refuses the names that FreeSWITCH ignores (sofia.c, parse_gateways) and the one that stands for all gateways
// of a profile in killgw (mod_sofia.c, cmd_profile).
func checkGatewayName(name string) error {
	if !gatewayNamePattern.MatchString(name) {
		return errors.New("gateway name must be 1 to 200 letters, digits, dots, underscores or hyphens")
	}
	if strings.EqualFold(name, "_all_") {
		return errors.New(`gateway name "_all_" stands for every gateway of the switch`)
	}
	return nil
}

// Proxy is where a trunk's carrier is, as its proxy, port and transport say together.
type Proxy struct {
	Host      string // a name, an IPv4 address or a bracketed IPv6 address
	Port      int    // 0: what DNS says, or the transport's own
	Transport string // udp, tcp, tls or empty: what DNS says, or udp
}

// ProxyOf reads where a trunk's carrier is. A port or a transport that both the proxy and a field of its own name is refused.
func ProxyOf(trunk *models.Trunk) (Proxy, error) {
	e, err := trunkEndpoint(trunk)
	if err != nil {
		return Proxy{}, err
	}
	port, err := strconv.Atoi(cmp.Or(e.port, "0"))
	return Proxy{Host: e.host, Port: port, Transport: e.transport}, err
}

func trunkEndpoint(trunk *models.Trunk) (endpoint, error) {
	address := trunk.Proxy
	secure := false
	if scheme, rest, found := strings.Cut(address, ":"); found && (strings.EqualFold(scheme, "sip") || strings.EqualFold(scheme, "sips")) {
		address, secure = rest, strings.EqualFold(scheme, "sips")
	}
	proxy, err := parseEndpoint(address)
	if err != nil {
		return endpoint{}, fmt.Errorf("proxy %w", err)
	}
	if secure {
		proxy.transport = "tls"
	}
	if trunk.Port != 0 {
		if trunk.Port < 0 || trunk.Port > 65535 {
			return endpoint{}, errors.New("port is not between 1 and 65535")
		}
		if proxy.port != "" {
			return endpoint{}, errors.New("proxy has a port, and there is another beside it")
		}
		proxy.port = strconv.Itoa(trunk.Port)
	}
	if trunk.Transport != "" {
		if !slices.Contains(models.Transports, trunk.Transport) {
			return endpoint{}, errors.New("transport is none of udp, tcp and tls")
		}
		if proxy.transport != "" {
			return endpoint{}, errors.New("proxy has a transport, and there is another beside it")
		}
		proxy.transport = trunk.Transport
	}
	return proxy, nil
}

// renderGateway writes the gateway of an outbound trunk.
func renderGateway(trunk *models.Trunk) ([]byte, error) {
	if err := checkGatewayName(trunk.GatewayName); err != nil {
		return nil, err
	}
	proxy, err := trunkEndpoint(trunk)
	if err != nil {
		return nil, err
	}
	fromDomain := trunk.FromDomain
	if fromDomain != "" {
		from, err := parseEndpoint(fromDomain)
		if err != nil || from.transport != "" {
			return nil, errors.New("from_domain is no host")
		}
		fromDomain = from.hostPort()
	} else if proxy.transport != "" {
		fromDomain = proxy.hostPort() // otherwise FreeSWITCH makes the From of the proxy, parameters and all
	}
	if err := checkCredentials(trunk); err != nil {
		return nil, err
	}

	params := []struct{ name, value string }{
		{"proxy", proxy.String()},
		{"realm", cmp.Or(trunk.Realm, proxy.host)},
		{"username", percentEncoded(trunk.Username)},
		{"auth-username", trunk.Username},
		{"password", string(trunk.Password)},
		{"from-domain", fromDomain},
		{"register", fmt.Sprint(trunk.Register)},
		{"register-transport", proxy.transport},
		{"expire-seconds", fmt.Sprint(expireSeconds)},
		{"retry-seconds", fmt.Sprint(retrySeconds)},
		{"ping", fmt.Sprint(pingSeconds)},
		{"ping-min", fmt.Sprint(pingMisses)},
		{"ping-max", fmt.Sprint(pingMisses)},
		{"caller-id-in-from", "true"},
		// A call that a carrier sends to the registered contact enters like any other: the number from To, the same context.
		{"extension", "auto_to_user"},
		{"context", entryContext},
	}
	var d document
	d.line("<include>")
	d.line(`  <gateway name="%s">`, references.Replace(trunk.GatewayName))
	for _, param := range params {
		if param.value == "" {
			continue
		}
		value, err := attribute(param.value)
		if err != nil {
			return nil, fmt.Errorf("%s %w", param.name, err)
		}
		d.line(`    <param name="%s" value="%s"/>`, param.name, value)
	}
	d.line("  </gateway>")
	d.line("</include>")
	return d.bytes(), nil
}

// checkCredentials refuses what would be read as syntax after the XML: the credentials become one string
// scheme:"realm":user:password, and `sofia xmlstatus gateway` writes user and realm into XML as they are (mod_sofia.c,
// xml_gateway_status), where one customer's markup would spoil the status of everyone's gateways.
func checkCredentials(trunk *models.Trunk) error {
	switch {
	case trunk.Register && (trunk.Username == "" || trunk.Password == ""):
		return errors.New("a trunk that registers needs a username and a password")
	case strings.ContainsAny(trunk.Username, `:"<>&\`):
		return errors.New(`username holds one of : " < > & \`)
	case strings.ContainsAny(trunk.Realm, `"<>&\`):
		return errors.New(`realm holds one of " < > & \`)
	}
	return nil
}
