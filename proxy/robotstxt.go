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

// servesRobots reports whether the proxy answers a request for /robots.txt with the file that it was judged by. A crawler then
// sees the rules that are enforced, and the origin gets one request less.
func (ex *exchange) servesRobots(req *http.Request) bool {
	snap := ex.judged.snap
	return ex.server.options.ServeRobots && ex.rec.Mode == policy.Enforce.String() && snap != nil && snap.Availability != robots.Unreachable &&
		(req.Method == http.MethodGet || req.Method == http.MethodHead)
}

// answerRobots answers a request for /robots.txt without asking the origin, and without a place in the lane.
func (ex *exchange) answerRobots(req *http.Request) *http.Response {
	resp := robotsResponse(req, ex.response.robots, ex.judged.Dialect, time.Now())
	ex.rec.Status = resp.StatusCode
	resp.Body = &body{ReadCloser: resp.Body, ex: ex, resp: resp}
	return resp
}

// robotsResponse is the kept robots.txt as an answer: the origin's status and text, its age and its hash. Of a file that a
// redirect took from a page of another host it shows only the rules, as dialect d reads them, since the client may not be
// allowed to read that page.
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
		return robotsAnswer(req, http.StatusNotModified, h, nil)
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	return robotsAnswer(req, status, h, body)
}

// describeFile adds the fields of a robots.txt. The charset is the site's, as the rules were read with it.
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

// describePage returns the rules on a page, and adds the fields of that text. The fields of the page would disclose it.
func describePage(h http.Header, snap *robots.Snapshot, d rules.Dialect) []byte {
	body := []byte(snap.RulesFor(d).Understood())
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Etag", fmt.Sprintf(`"%x"`, sha256.Sum256(body)))
	return body
}

// enforcedText returns the text that is enforced. It excludes the last line of a file that was cut: "Allow: /images" may have
// become "Allow: /".
func enforcedText(snap *robots.Snapshot) []byte {
	if !snap.Truncated {
		return snap.Body
	}
	return snap.Body[:bytes.LastIndexAny(snap.Body, "\r\n")+1]
}

// robotsStatus returns the origin's status, or the one that fits how RFC 9309 treats its answer.
func robotsStatus(snap *robots.Snapshot) int {
	switch {
	case snap.Availability == robots.Found:
		return http.StatusOK // 206 counts as the file too
	case snap.Status < 400 || snap.Status > 499:
		return http.StatusNotFound // too many redirects count as unavailable (RFC 9309 section 2.3.1.2)
	}
	return snap.Status
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

// matchesTag compares weakly, as If-None-Match does (RFC 9110 section 13.1.2). It splits the list at every comma: the tags of
// robotsResponse contain no comma.
func matchesTag(list, tag string) bool {
	for each := range strings.SplitSeq(list, ",") {
		each = strings.TrimSpace(each)
		if each == "*" || tag != "" && strings.TrimPrefix(each, "W/") == tag {
			return true
		}
	}
	return false
}

func robotsAnswer(req *http.Request, status int, h http.Header, body []byte) *http.Response {
	var content io.Reader = bytes.NewReader(body)
	if req.Method == http.MethodHead {
		content = http.NoBody
	}
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h,
		Body: io.NopCloser(content), ContentLength: int64(len(body)), Request: req,
	}
}
