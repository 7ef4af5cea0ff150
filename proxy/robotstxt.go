package proxy

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

	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/rules"
)

// servesRobots reports whether the answer to ex is the very robots.txt that it was judged by: then a crawler sees what is
// enforced, and the origin is spared.
func (ex *exchange) servesRobots(req *http.Request) bool {
	snap := ex.judged.snap
	return ex.server.options.ServeRobots && ex.rec.Mode == policy.Enforce.String() && snap != nil && snap.Availability != robots.Unreachable &&
		ex.target == "/robots.txt" && (req.Method == http.MethodGet || req.Method == http.MethodHead)
}

// answerRobots answers a request for /robots.txt without asking the origin, and without a place in the lane.
func (ex *exchange) answerRobots(req *http.Request) *http.Response {
	resp := robotsResponse(req, ex.response.robots, ex.judged.Dialect, time.Now())
	ex.rec.Status = resp.StatusCode
	resp.Body = &body{ReadCloser: resp.Body, ex: ex, resp: resp}
	return resp
}

// robotsResponse is the kept robots.txt as an answer: the origin's own status and text, how old it is, and its hash. Of a page
// of another host it shows the rules alone, as a dialect reads them: clients may not be allowed to read that page.
func robotsResponse(req *http.Request, snap *robots.Snapshot, d rules.Dialect, now time.Time) *http.Response {
	h := http.Header{
		"Age":                      {strconv.Itoa(max(0, int(now.Sub(snap.Fetched).Seconds())))},
		"Robotsproxy-Robots-State": {snap.State()},
	}
	body := enforcedText(snap)
	if snap.FromPage() {
		body = describePage(h, snap, d)
	} else {
		describeFile(h, snap)
	}
	status := robotsStatus(snap)
	if status == http.StatusOK && notModified(req.Header, h) {
		h.Del("Content-Type")
		return kept(req, http.StatusNotModified, h, nil)
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	return kept(req, status, h, body)
}

// describeFile adds the fields of a robots.txt. The charset is the site's own: rules were read by it, and so must the
// crawler.
func describeFile(h http.Header, snap *robots.Snapshot) {
	h.Set("Content-Type", cmp.Or(snap.ContentType, "text/plain; charset=utf-8"))
	if snap.SHA256 != "" {
		h.Set("Robotsproxy-Robots-Sha256", snap.SHA256)
		h.Set("Etag", `"`+snap.SHA256+`"`)
	}
	if _, err := http.ParseTime(snap.LastModified); err == nil {
		h.Set("Last-Modified", snap.LastModified)
	}
}

// describePage returns the rules on a page, and adds the fields of that text. Those of the page would tell of it.
func describePage(h http.Header, snap *robots.Snapshot, d rules.Dialect) []byte {
	body := []byte(snap.RulesFor(d).Understood())
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Etag", fmt.Sprintf(`"%x"`, sha256.Sum256(body)))
	return body
}

// enforcedText is the text that counts. The last line of a file that was cut does not: what is left of it may say "Allow: /".
func enforcedText(snap *robots.Snapshot) []byte {
	if !snap.Truncated {
		return snap.Body
	}
	return snap.Body[:bytes.LastIndexAny(snap.Body, "\r\n")+1]
}

// robotsStatus is the status that the origin gave, or should have given for what its answer counts as.
func robotsStatus(snap *robots.Snapshot) int {
	switch {
	case snap.Availability == robots.Found:
		return http.StatusOK // a partial answer (206) counts as the file too
	case snap.Status < 400 || snap.Status > 499:
		return http.StatusNotFound // too many redirects count as unavailable (RFC 9309 section 2.3.1.2)
	}
	return snap.Status
}

// notModified evaluates the conditions of a GET or HEAD in their order: If-Modified-Since is heeded only where there is no
// If-None-Match (RFC 9110 section 13.2.2).
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

// matchesTag compares weakly, as If-None-Match does (RFC 9110 section 13.1.2). Our tags hold no comma, so that a list may
// be cut at each.
func matchesTag(list, tag string) bool {
	for each := range strings.SplitSeq(list, ",") {
		each = strings.TrimSpace(each)
		if each == "*" || tag != "" && strings.TrimPrefix(each, "W/") == tag {
			return true
		}
	}
	return false
}

func kept(req *http.Request, status int, h http.Header, body []byte) *http.Response {
	var content io.Reader = bytes.NewReader(body)
	if req.Method == http.MethodHead {
		content = http.NoBody
	}
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h,
		Body: io.NopCloser(content), ContentLength: int64(len(body)), Request: req,
	}
}
