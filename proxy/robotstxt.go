package proxy

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
)

// servesRobots reports whether the answer to ex is the very robots.txt that it was judged by: then a crawler sees what is
// enforced, and the origin is spared.
func (p pipeline) servesRobots(req *http.Request, ex *exchange, snap *robots.Snapshot) bool {
	return p.options.ServeRobots && ex.rec.Mode == policy.Enforce.String() && snap != nil && snap.Availability != robots.Unreachable &&
		ex.target == "/robots.txt" && (req.Method == http.MethodGet || req.Method == http.MethodHead)
}

// robotsResponse is the kept robots.txt as an answer: the origin's own status and text, how old it is, and its hash.
func robotsResponse(req *http.Request, snap *robots.Snapshot, now time.Time) *http.Response {
	status := snap.Status
	if snap.Availability == robots.Unavailable && (status < 400 || status > 499) {
		status = http.StatusNotFound // too many redirects count as unavailable (RFC 9309 section 2.3.1.2)
	}
	h := http.Header{
		"Content-Type":   {"text/plain; charset=utf-8"},
		"Content-Length": {strconv.Itoa(len(snap.Body))},
		"Age":            {strconv.Itoa(max(0, int(now.Sub(snap.Fetched).Seconds())))},
	}
	if snap.SHA256 != "" {
		h.Set("Robotsproxy-Robots-Sha256", snap.SHA256)
	}
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h,
		Body: io.NopCloser(robotsBody(req, snap)), ContentLength: int64(len(snap.Body)), Request: req,
	}
}

func robotsBody(req *http.Request, snap *robots.Snapshot) io.Reader {
	if req.Method == http.MethodHead {
		return http.NoBody
	}
	return bytes.NewReader(snap.Body)
}
