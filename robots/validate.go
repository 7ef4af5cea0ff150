package robots

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
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
	h := updated(previous.Header, resp.Header)
	snap.Header, snap.Marks = storable(h), snap.Marks|previous.Marks&WebPage
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

// updated returns the fields of a kept answer with those of the 304 that validates it in their place (RFC 9111 section
// 3.2). What describes the body, or the answer's way here, does not outlive its answer.
func updated(kept, fields http.Header) http.Header {
	h := maps.Clone(kept)
	if h == nil {
		h = http.Header{}
	}
	for _, name := range []string{"Age", "Date"} {
		h.Del(name)
	}
	for name, values := range fields {
		switch name {
		case "Content-Encoding", "Content-Length", "Content-Range", "Content-Type":
		default:
			h[name] = values
		}
	}
	return h
}

// maxFields is how many octets of an answer's fields are kept, and maxField how many of one that means something to us.
const (
	maxFields = 8 << 10
	maxField  = 1 << 10
)

// storable returns the fields that are kept: whole ones, as many as there is room for, and no secrets.
func storable(h http.Header) http.Header {
	kept, room := http.Header{}, maxFields
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if size := fieldSize(name, h[name]); size <= room && name != "Set-Cookie" {
			kept[name] = h[name]
			room -= size
		}
	}
	return kept
}

func fieldSize(name string, values []string) (n int) {
	for _, value := range values {
		n += len(name) + len(value)
	}
	return n
}

// short returns the value of a field that has a sane length. A longer one means nothing.
func short(value string) string {
	if len(value) > maxField {
		return ""
	}
	return value
}
