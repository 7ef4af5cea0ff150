package fetch

import (
	"bufio"
	"cmp"
	"errors"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// toValidate returns r.Previous if the next request for a may be conditional, or nil. Validators belong to the URL that
// they came from, so the redirects must be the same. A file that was cut is requested again, since MaxSize may be
// larger now.
func (r Request) toValidate(a *Answer) *Answer {
	p := r.Previous
	if p == nil || p.Availability != Found || p.Truncated || p.ETag == "" && p.LastModified == "" ||
		!slices.Equal(p.Redirects, a.Redirects) {
		return nil
	}
	return p
}

// setConditions makes a request conditional (RFC 9110 section 13.1).
func (a *Answer) setConditions(h http.Header) {
	if a.ETag != "" {
		h.Set("If-None-Match", a.ETag)
	}
	if a.LastModified != "" {
		h.Set("If-Modified-Since", a.LastModified)
	}
}

// validate completes a for a 304 response: it has the body of previous, with a new lifetime (RFC 9111 section 4.3.4).
func (f *Fetcher) validate(a *Answer, resp *http.Response, previous *Answer) {
	tag := resp.Header.Get("ETag")
	if previous == nil {
		f.fail(a, "http_protocol_error", errors.New("the origin answered 304 to a request without conditions"))
		return
	}
	if tag != "" && previous.ETag != "" && opaque(tag) != opaque(previous.ETag) {
		f.fail(a, "http_protocol_error", errors.New("the origin answered 304 with another ETag than was asked for"))
		return
	}
	h := updated(previous.Fields, resp.Header)
	a.Fields, a.Flags = fieldsOf(h), a.Flags|previous.Flags&WebPage
	a.Body, a.SHA256, a.Truncated = previous.Body, previous.SHA256, previous.Truncated
	a.ContentType = previous.ContentType
	a.ETag = cmp.Or(short(tag), previous.ETag)
	a.LastModified = cmp.Or(short(resp.Header.Get("Last-Modified")), previous.LastModified)
	f.setFound(a, h)
}

// opaque returns an entity tag for weak comparison (RFC 9110 section 8.8.3.2).
func opaque(tag string) string { return strings.TrimPrefix(tag, "W/") }

// lifetimeFields are the header fields that say for how long an answer may be used (RFC 9111 section 4.2).
var lifetimeFields = []string{"Age", "Cache-Control", "Date", "Expires"}

// maxField is the length in bytes of the longest field value that is kept.
const maxField = 1 << 10

// fieldsOf returns the lifetime fields of h as lines of HTTP/1.1.
func fieldsOf(h http.Header) string {
	kept := make(http.Header)
	for _, name := range lifetimeFields {
		if value := short(strings.Join(h.Values(name), ", ")); value != "" {
			kept.Set(name, value)
		}
	}
	var lines strings.Builder
	_ = kept.Write(&lines) // a Builder returns no errors
	return lines.String()
}

// parseFields is the inverse of fieldsOf. It returns the fields before the first line that is not a field.
func parseFields(lines string) http.Header {
	r := textproto.NewReader(bufio.NewReader(strings.NewReader(lines + "\r\n")))
	h, _ := r.ReadMIMEHeader()
	return http.Header(h)
}

// updated returns the lifetime fields of a stored answer, replaced by those of the 304 response that validates it (RFC
// 9111 section 3.2). Age and Date describe one response only.
func updated(stored string, fields http.Header) http.Header {
	h := parseFields(stored)
	h.Del("Age")
	h.Del("Date")
	for _, name := range lifetimeFields {
		if values := fields.Values(name); len(values) > 0 {
			h[name] = values
		}
	}
	return h
}

// short returns value, or "" if it is too long to be meant.
func short(value string) string {
	if len(value) > maxField {
		return ""
	}
	return value
}
