package esl

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// ErrRefusedInput is what errors.Is finds in every *InputError: nothing was sent.
var ErrRefusedInput = errors.New("input refused")

// InputError says which input of a builder cannot be carried to the switch without being read as syntax there.
type InputError struct {
	Field  string // the field of the builder, such as "caller_id_name"
	Reason string
}

func (e *InputError) Error() string { return fmt.Sprintf("esl: %s %s", e.Field, e.Reason) }

// Is reports ErrRefusedInput.
func (e *InputError) Is(target error) bool { return target == ErrRefusedInput }

func refuse(field, format string, args ...any) error {
	return &InputError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// maxLineBytes bounds one command line: FreeSWITCH reads it a byte a system call, and cuts it without a word at 1 MiB
// (mod_event_socket.c, read_packet).
const maxLineBytes = 64 << 10

var (
	idPattern       = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,95}$`)
	gatewayPattern  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)
	numberPattern   = regexp.MustCompile(`^\+?[0-9]{1,32}$`)
	callerPattern   = regexp.MustCompile(`^[A-Za-z0-9+._-]{1,64}$`)
	variablePattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,127}$`)
	filePattern     = regexp.MustCompile(`^[A-Za-z0-9/._~+-]+$`)
	dtmfPattern     = regexp.MustCompile(`^[0-9A-D*#wW]{1,128}$`)
	codecPattern    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,19}$`)
	wordPattern     = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	tonePattern     = regexp.MustCompile(`^` + tone + `(;` + tone + `){0,7}$`)
)

// tone is one tone of FreeSWITCH's notation: on and off in milliseconds, then 1 to 4 frequencies in hertz.
const tone = `%\([0-9]{1,5},[0-9]{1,5}(,[0-9]{2,4}(\.[0-9])?){1,4}\)`

func checkPattern(field, value string, pattern *regexp.Regexp, want string) error {
	if !pattern.MatchString(value) {
		return refuse(field, "must be %s", want)
	}
	return nil
}

func checkID(field, value string) error {
	return checkPattern(field, value, idPattern, "1 to 96 letters, digits, '-', '_' or '.'")
}

// checkFile accepts only names that no file interface, delimiter, expansion or argument list reads as anything but a path: we name the files
// that we play and record.
func checkFile(field, path string) error {
	if len(path) > 1024 {
		return refuse(field, "is longer than 1024 bytes")
	}
	if err := checkPattern(field, path, filePattern, "a path of letters, digits and / . _ ~ + -"); err != nil {
		return err
	}
	if strings.Contains(path, "//") || path == ".." || strings.HasPrefix(path, "../") || strings.Contains(path, "/../") || strings.HasSuffix(path, "/..") {
		return refuse(field, "must not hold // or a .. element")
	}
	return nil
}

// checkText refuses what no place in the protocol can carry: control characters, which end lines and messages, and invalid UTF-8.
func checkText(field, value string, limit int) error {
	if len(value) > limit {
		return refuse(field, "is longer than %d bytes", limit)
	}
	if !utf8.ValidString(value) {
		return refuse(field, "is not valid UTF-8")
	}
	for i := range len(value) {
		if c := value[i]; c < 0x20 || c == 0x7f {
			return refuse(field, "holds the control character 0x%02x", c)
		}
	}
	return nil
}

func checkASCII(field, value string) error {
	for i := range len(value) {
		if value[i] < 0x20 || value[i] > 0x7e {
			return refuse(field, "must be printable ASCII")
		}
	}
	return nil
}

// hasExpansion reports whether FreeSWITCH would see the beginning of a variable or API call: '$', any number of backslashes, '{'
// (switch_utils.h, switch_string_var_check_const).
func hasExpansion(s string) bool {
	dollar := false
	for i := range len(s) {
		switch s[i] {
		case '$':
			dollar = true
		case '{':
			if dollar {
				return true
			}
		case '\\':
		default:
			dollar = false
		}
	}
	return false
}

// appArgsPattern is what an application of an originate command may have as argument.
var appArgsPattern = regexp.MustCompile(`^[A-Za-z0-9+_.:/-]*$`)
