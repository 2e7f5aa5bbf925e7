package egress

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
)

// MaxURL is the longest URL that CheckURL accepts, in bytes.
const MaxURL = 2048

// CheckURL parses a URL that a customer configured: absolute, http or https, with a host and without a user. Whether its
// address is allowed shows only when it is connected to. The error is fit to be read by the customer and never repeats
// the URL, which may hold a token.
func CheckURL(raw string) (*url.URL, error) {
	if raw == "" {
		return nil, errors.New("is empty")
	}
	if len(raw) > MaxURL {
		return nil, fmt.Errorf("is longer than %d bytes", MaxURL)
	}
	parsed, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("is not a URL")
	}
	if parsed.Scheme != "http" && parsed.Scheme != "https" {
		return nil, errors.New("must begin with http:// or https://")
	}
	if parsed.Opaque != "" || parsed.Hostname() == "" {
		return nil, errors.New("has no host")
	}
	if parsed.User != nil {
		return nil, errors.New("must not hold a user name or password")
	}
	if port := parsed.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, errors.New("has a port that is not between 1 and 65535")
		}
	}
	return parsed, nil
}
