package simswitch

import (
	"regexp"
	"strings"
	"sync"
)

// expand is switch_channel_expand_variables for ${variable}: values are expanded recursively, ${command(args)} would run an
// API command and never does here.
func (c *channel) expand(s string) string {
	return c.expandDepth(s, 0)
}

func (c *channel) expandDepth(s string, depth int) string {
	if depth > 10 || !strings.Contains(s, "${") {
		return s
	}
	var out strings.Builder
	for {
		start := strings.Index(s, "${")
		if start < 0 {
			break
		}
		end := closing(s[start+1:], '{', '}')
		if end < 0 {
			break
		}
		name := s[start+2 : start+1+end]
		out.WriteString(s[:start])
		s = s[start+1+end+1:]
		if strings.ContainsAny(name, "()") {
			if c.sw.cfg.APIExpansion {
				c.sw.log.Error("an API command was expanded from application data", "command", name, "channel", c.uuid)
			}
			continue
		}
		out.WriteString(c.expandDepth(c.variable(name), depth+1))
	}
	out.WriteString(s)
	return out.String()
}

var patterns sync.Map

// compile compiles a pattern once. PCRE's syntax is RE2's for everything Tandem writes; a pattern RE2 cannot read is an error
// where the dialplan is loaded, and matches nothing elsewhere.
func compile(expression string) (*regexp.Regexp, error) {
	if re, ok := patterns.Load(expression); ok {
		return re.(*regexp.Regexp), nil
	}
	plain, flags := expression, ""
	if strings.HasPrefix(expression, "/") {
		if end := strings.LastIndexByte(expression, '/'); end > 0 {
			plain, flags = expression[1:end], expression[end+1:]
		}
	}
	if strings.Contains(flags, "i") {
		plain = "(?i)" + plain
	}
	re, err := regexp.Compile(plain)
	if err != nil {
		return nil, err
	}
	patterns.Store(expression, re)
	return re, nil
}

// matchesPattern is switch_regex_match: an unanchored match.
func matchesPattern(expression, s string) bool {
	re, err := compile(expression)
	return err == nil && re.MatchString(s)
}
