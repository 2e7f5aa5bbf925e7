package dialplan

import (
	"encoding/xml"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The documents as the switch reads them; that they need no preprocessor is the business of attribute.
type (
	dialplanDocument struct {
		Contexts []contextElement `xml:"context"`
	}
	contextElement struct {
		Name       string             `xml:"name,attr"`
		Extensions []extensionElement `xml:"extension"`
	}
	extensionElement struct {
		Name       string             `xml:"name,attr"`
		Conditions []conditionElement `xml:"condition"`
	}
	conditionElement struct {
		Field      string `xml:"field,attr"`
		Expression string `xml:"expression,attr"`
		Actions    []struct {
			Application string `xml:"application,attr"`
			Data        string `xml:"data,attr"`
		} `xml:"action"`
	}
	directoryDocument struct {
		Users []struct {
			ID   string `xml:"id,attr"`
			CIDR string `xml:"cidr,attr"`
		} `xml:"domain>groups>group>users>user"`
	}
)

// Step is an extension that took a call.
type Step struct {
	Context     string
	Extension   string
	Destination string // the number as it was in this context
	Application string
	Data        string
}

// reading are the documents of a rendering as a switch has them loaded.
type reading struct {
	contexts map[string]*contextElement
	sources  map[netip.Prefix]string // token by network
	blocked  []netip.Prefix
}

func readFiles(files Files) (*reading, error) {
	r := &reading{contexts: map[string]*contextElement{}, sources: map[netip.Prefix]string{}}
	for path, content := range files {
		var err error
		switch {
		case strings.HasPrefix(path, dialplanFolder+"/"):
			err = r.dialplan(content)
		case path == blockPath:
			err = r.users(content, func(prefix netip.Prefix, _ string) { r.blocked = append(r.blocked, prefix) })
		case strings.HasPrefix(path, directoryFolder+"/"):
			err = r.users(content, func(prefix netip.Prefix, id string) { r.sources[prefix] = id + "@" + domain })
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
	}
	return r, nil
}

func (r *reading) dialplan(content []byte) error {
	var document dialplanDocument
	if err := xml.Unmarshal(content, &document); err != nil {
		return err
	}
	for i := range document.Contexts {
		r.contexts[document.Contexts[i].Name] = &document.Contexts[i]
	}
	return nil
}

// users hands the users of a directory to take.
func (r *reading) users(content []byte, take func(prefix netip.Prefix, id string)) error {
	var document directoryDocument
	if err := xml.Unmarshal(content, &document); err != nil {
		return err
	}
	for _, user := range document.Users {
		prefix, err := netip.ParsePrefix(user.CIDR)
		if err != nil {
			return err
		}
		take(prefix, user.ID)
	}
	return nil
}

// token is what the access list says of an address: the longest prefix wins (switch_utils.c,
// switch_network_list_validate_ip_port_token). It is empty for nobody's.
func (r *reading) token(from netip.Addr) string {
	bits, token := -1, ""
	for prefix, user := range r.sources {
		if prefix.Contains(from.Unmap()) && prefix.Bits() > bits {
			bits, token = prefix.Bits(), user
		}
	}
	return token
}

// blocks tells whether the SIP profile refuses an address that is nobody's: it asks the list of the sources first.
func (r *reading) blocks(from netip.Addr) bool {
	return slices.ContainsFunc(r.blocked, func(p netip.Prefix) bool { return p.Contains(from.Unmap()) })
}

// maxTransfers is how many contexts a call passes through at most; ours transfer once.
const maxTransfers = 4

// call follows a call as mod_dialplan_xml.c does (dialplan_hunt, parse_exten), as far as our documents go: conditions that must all match, one
// action in the last, and transfers. It returns every extension that took the call; the last one's application is what becomes of it.
func (r *reading) call(token, destination string, accept string) ([]Step, error) {
	context := entryContext
	var steps []Step
	for range maxTransfers {
		step, err := r.hunt(context, destination, strings.NewReplacer("${acl_token}", token, taken, accept))
		if err != nil {
			return nil, err
		}
		steps = append(steps, *step)
		if step.Application != "transfer" {
			return steps, nil
		}
		parts := strings.Fields(step.Data)
		if len(parts) != 3 {
			return nil, fmt.Errorf("transfer to %q", step.Data)
		}
		destination, context = parts[0], parts[2]
	}
	return nil, errors.New("transferred for ever")
}

// hunt finds the extension of a context that takes a call.
func (r *reading) hunt(context, destination string, variables *strings.Replacer) (*Step, error) {
	found := r.contexts[context]
	if found == nil {
		return nil, fmt.Errorf("context %q is not there", context)
	}
	for i := range found.Extensions {
		extension := &found.Extensions[i]
		var groups []string
		matched := true
		for j := range extension.Conditions {
			condition := &extension.Conditions[j]
			if condition.Field == "" {
				continue
			}
			value := destination
			if condition.Field != "destination_number" {
				value = variables.Replace(condition.Field)
			}
			expression, err := regexp.Compile(condition.Expression)
			if err != nil {
				return nil, fmt.Errorf("extension %q: %w", extension.Name, err)
			}
			if groups = expression.FindStringSubmatch(value); groups == nil {
				matched = false
				break
			}
		}
		if !matched {
			continue
		}
		last := extension.Conditions[len(extension.Conditions)-1]
		if len(last.Actions) != 1 {
			return nil, fmt.Errorf("extension %q has %d actions", extension.Name, len(last.Actions))
		}
		data := last.Actions[0].Data
		for g := len(groups) - 1; g > 0; g-- {
			data = strings.ReplaceAll(data, "$"+strconv.Itoa(g), groups[g])
		}
		return &Step{Context: context, Extension: extension.Name, Destination: destination, Application: last.Actions[0].Application, Data: data}, nil
	}
	return nil, fmt.Errorf("no extension of context %q takes %q", context, destination)
}
