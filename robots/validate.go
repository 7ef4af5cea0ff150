package robots

import (
	"bufio"
	"cmp"
	"errors"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// asksAgain returns what is asked for by condition at the hop that snap has come to; nil if it is to be had anew.
// Validators belong to the URL that they came from, and so they are sent to that one, by the same way. What was cut is had
// anew, since more of it may be read today.
func (r Request) asksAgain(snap *Snapshot) *Snapshot {
	p := r.Previous
	if p == nil || p.Availability != Found || p.Truncated || p.ETag == "" && p.LastModified == "" || !slices.Equal(p.Redirects, snap.Redirects) {
		return nil
	}
	return p
}

// setConditions asks for s only if it is not what the origin has (RFC 9110 section 13.1).
func (s *Snapshot) setConditions(h http.Header) {
	if s.ETag != "" {
		h.Set("If-None-Match", s.ETag)
	}
	if s.LastModified != "" {
		h.Set("If-Modified-Since", s.LastModified)
	}
}

// revalidate completes snap for 304: previous counts on, for as long as the fields say now (RFC 9111 section 4.3.4).
func (f *Fetcher) revalidate(snap *Snapshot, resp *http.Response, previous *Snapshot) {
	switch tag := resp.Header.Get("ETag"); {
	case previous == nil:
		f.fail(snap, "http_protocol_error", errors.New("the origin answered 304 to a request without conditions"))
		return
	case tag != "" && previous.ETag != "" && opaque(tag) != opaque(previous.ETag):
		f.fail(snap, "http_protocol_error", errors.New("the origin answered 304 with another ETag than was asked for"))
		return
	}
	h := updated(previous.Fields, resp.Header)
	snap.Fields, snap.Marks = fieldsOf(h), snap.Marks|previous.Marks&WebPage
	if previous.Stale {
		snap.Marks &^= WebPage // what stood in the place of the copy
	}
	snap.Body, snap.SHA256, snap.Truncated, snap.Rules = previous.Body, previous.SHA256, previous.Truncated, previous.Rules
	snap.ContentType, snap.ETag = previous.ContentType, cmp.Or(short(resp.Header.Get("ETag")), previous.ETag)
	snap.LastModified = cmp.Or(short(resp.Header.Get("Last-Modified")), previous.LastModified)
	f.setFound(snap, h)
}

func (s *Snapshot) revalidated() bool {
	return s.Status == http.StatusNotModified && s.Availability == Found
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

// short returns the value of a field that has a sane length. A longer one means nothing.
func short(value string) string {
	if len(value) > maxField {
		return ""
	}
	return value
}
