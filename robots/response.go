package robots

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/rules"
)

// Response answers req, a GET or HEAD of /robots.txt, with the file that s enforces: the origin's status and text, its
// age and its hash. If a redirect took the file from a page of another host, Response shows only the rules, as dialect
// d reads them, since the client may not be allowed to read that page. An s that is Unreachable has no file.
func (s *Snapshot) Response(req *http.Request, d rules.Dialect, now time.Time) *http.Response {
	h := http.Header{
		"Age":                      {strconv.Itoa(max(0, int(now.Sub(s.Fetched).Seconds())))},
		"Robotsproxy-Robots-State": {s.State()},
	}
	body := enforcedText(s)
	if s.FromPage() {
		body = describePage(h, s, d)
	} else {
		describeFile(h, s)
	}
	status := responseStatus(s)
	if status == http.StatusOK && notModified(req.Header, h) {
		h.Del("Content-Type")
		return fileResponse(req, http.StatusNotModified, h, nil)
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	return fileResponse(req, status, h, body)
}

// describeFile adds the fields of a robots.txt. The charset is the site's, as the rules were read with it.
func describeFile(h http.Header, s *Snapshot) {
	h.Set("Content-Type", cmp.Or(s.ContentType, "text/plain; charset=utf-8"))
	if s.SHA256 != "" {
		h.Set("Robotsproxy-Robots-Sha256", s.SHA256)
		h.Set("Etag", `"`+s.SHA256+`"`)
	}
	if _, err := http.ParseTime(s.LastModified); err == nil {
		h.Set("Last-Modified", s.LastModified)
	}
}

// describePage returns the rules on a page, and adds the fields of that text. The fields of the page would disclose it.
func describePage(h http.Header, s *Snapshot, d rules.Dialect) []byte {
	body := []byte(s.RulesFor(d).Understood())
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Etag", fmt.Sprintf(`"%x"`, sha256.Sum256(body)))
	return body
}

// enforcedText returns the text that is enforced. It excludes the last line of a file that was cut: "Allow: /images"
// may have become "Allow: /".
func enforcedText(s *Snapshot) []byte {
	if !s.Truncated {
		return s.Body
	}
	return s.Body[:bytes.LastIndexAny(s.Body, "\r\n")+1]
}

// responseStatus returns the origin's status, or the one that fits how RFC 9309 treats its answer.
func responseStatus(s *Snapshot) int {
	switch {
	case s.Availability == Found:
		return http.StatusOK // 206 counts as the file too
	case s.Status < 400 || s.Status > 499:
		return http.StatusNotFound // too many redirects count as unavailable (RFC 9309 section 2.3.1.2)
	}
	return s.Status
}

// notModified evaluates the conditions of a GET or HEAD. If-Modified-Since counts only without If-None-Match (RFC 9110
// section 13.2.2).
func notModified(asked, ours http.Header) bool {
	if tags := asked.Values("If-None-Match"); len(tags) > 0 {
		return matchesTag(strings.Join(tags, ","), ours.Get("Etag"))
	}
	since, err := http.ParseTime(asked.Get("If-Modified-Since"))
	if err != nil {
		return false
	}
	modified, err := http.ParseTime(ours.Get("Last-Modified"))
	return err == nil && !modified.After(since)
}

// matchesTag compares weakly, as If-None-Match does (RFC 9110 section 13.1.2). It splits the list at every comma: the
// tags of Response contain no comma.
func matchesTag(list, tag string) bool {
	for each := range strings.SplitSeq(list, ",") {
		each = strings.TrimSpace(each)
		if each == "*" || tag != "" && strings.TrimPrefix(each, "W/") == tag {
			return true
		}
	}
	return false
}

func fileResponse(req *http.Request, status int, h http.Header, body []byte) *http.Response {
	var content io.Reader = bytes.NewReader(body)
	if req.Method == http.MethodHead {
		content = http.NoBody
	}
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h,
		Body: io.NopCloser(content), ContentLength: int64(len(body)), Request: req,
	}
}
