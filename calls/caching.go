package calls

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// caching is what an answer says about serving it again (RFC 9111).
type caching struct {
	keep    bool // it may be stored
	expires time.Time
	etag    string
	changed string // Last-Modified
}

// maxFresh bounds how long a file serves without being asked about.
const maxFresh = 24 * time.Hour

// readCaching reads the headers of an answer. What says nothing about its age is asked about each time, as far as it has something
// to be asked by.
func readCaching(header http.Header, now time.Time) caching {
	c := caching{keep: true, expires: now, etag: header.Get("ETag"), changed: header.Get("Last-Modified")}
	directives := map[string]string{}
	for _, part := range strings.Split(strings.Join(header.Values("Cache-Control"), ","), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		directives[strings.ToLower(name)] = strings.Trim(value, `"`)
	}
	if _, forbidden := directives["no-store"]; forbidden {
		return caching{}
	}
	if _, always := directives["no-cache"]; !always {
		c.expires = now.Add(freshness(header, directives, now))
	}
	c.keep = c.expires.After(now) || c.etag != "" || c.changed != ""
	return c
}

// freshness is how long an answer serves unasked (RFC 9111 §4.2.1): s-maxage is for caches that are shared, as ours is between calls.
func freshness(header http.Header, directives map[string]string, now time.Time) time.Duration {
	for _, name := range []string{"s-maxage", "max-age"} {
		value, given := directives[name]
		if !given {
			continue
		}
		seconds, err := strconv.ParseInt(value, 10, 32)
		if err != nil || seconds < 0 {
			return 0
		}
		age, err := strconv.ParseInt(header.Get("Age"), 10, 32)
		if err != nil {
			age = 0
		}
		return min(max(time.Duration(seconds-age)*time.Second, 0), maxFresh)
	}
	if at, err := http.ParseTime(header.Get("Expires")); err == nil {
		return min(max(at.Sub(now), 0), maxFresh)
	}
	return 0
}
