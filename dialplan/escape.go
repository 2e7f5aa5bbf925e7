package dialplan

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// references are the characters that mean something to the XML parser or, one step earlier, to FreeSWITCH's preprocessor,
// which works on lines of text: "$${name}", "<!--#exec", "<X-PRE-PROCESS", "<include>", "<?" (switch_xml.c, preprocess and
// expand_vars). References are decoded after it has run. All are numeric: a named one is replaced by text that is looked at
// again (switch_xml.c, switch_xml_decode).
var references = strings.NewReplacer(
	"&", "&#38;", "<", "&#60;", ">", "&#62;", `"`, "&#34;", "'", "&#39;", "$", "&#36;", "-", "&#45;",
)

// attribute writes a value so that FreeSWITCH reads exactly that value between the double quotes of an attribute. It refuses
// what cannot be kept: control characters (the parser turns tabs and line breaks into spaces, and XML has no others) and
// what is no UTF-8 or no character of XML 1.0 (§2.2).
func attribute(value string) (string, error) {
	if !utf8.ValidString(value) {
		return "", fmt.Errorf("is not valid UTF-8")
	}
	for _, r := range value {
		if r < 0x20 || r == 0x7f || r == 0xFFFE || r == 0xFFFF {
			return "", fmt.Errorf("holds the control character U+%04X", r)
		}
	}
	return references.Replace(value), nil
}

// Names that are pasted into XML, tokens, regular expressions and file names, so they may hold nothing that any of these reads
// as syntax.
var (
	gatewayNamePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,200}$`)
	idPattern          = regexp.MustCompile(`^[A-Za-z0-9_]{1,64}$`)
	profilePattern     = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	numberPattern      = regexp.MustCompile(`^\+[1-9][0-9]{6,14}$`)
)

// document collects the lines of one file.
type document struct{ strings.Builder }

func (d *document) line(format string, args ...any) {
	_, _ = fmt.Fprintf(d, format, args...)
	d.WriteByte('\n')
}

func (d *document) bytes() []byte { return []byte(d.String()) }
