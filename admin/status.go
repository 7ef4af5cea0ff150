package admin

import (
	"io"
	"net/http"
	"os"
	"time"
)

// State describes the running proxy.
type State struct {
	Listen  string // address for clients
	Mode    string // global mode
	Active  int    // requests in progress
	Waiting int    // of these, requests that wait for their host's pace
	Tunnels int    // open tunnels and WebSockets
	Records RecordCounts
	Fetches int // of robots.txt files, that wait to begin

	Unsigned []string // the sections sign without a key that is valid, in words
}

// RecordCounts are the numbers of records since the start.
type RecordCounts struct {
	Written int64 `json:"written"`
	Waiting int   `json:"waiting"` // complete, and not yet written
	Lost    int64 `json:"lost"`    // of requests that went on unrecorded
	Refused int64 `json:"refused"` // requests that were refused because they could not be recorded
}

// Status is the response body of /api/v1/status.
type Status struct {
	Version  string    `json:"version"`
	PID      int       `json:"pid"`
	Started  time.Time `json:"started"`
	Uptime   float64   `json:"uptime_seconds"`
	Ready    bool      `json:"ready"`
	NotReady string    `json:"not_ready,omitempty"` // reason
	Listen   string    `json:"listen"`
	Mode     string    `json:"mode"`
	Active   int       `json:"active_requests"`
	Waiting  int       `json:"waiting_requests"`
	Tunnels  int       `json:"tunnels"`
	Unsigned []string  `json:"unsigned,omitempty"` // the sections sign without a key that is valid, in words

	Records RecordCounts `json:"records"`
	Counts  []Count      `json:"counts"`
}

func (h *Handler) status(*http.Request) (any, error) { return h.statusAt(time.Now()) }

func (h *Handler) statusAt(now time.Time) (*Status, error) {
	counts, err := h.options.Metrics.counts()
	if err != nil {
		return nil, err
	}
	state := h.options.State()
	s := &Status{
		Version: h.options.Version,
		PID:     os.Getpid(),
		Started: h.started.UTC().Truncate(time.Second),
		Uptime:  inSeconds(now.Sub(h.started).Round(time.Millisecond)),
		Ready:   true,
		Listen:  state.Listen,
		Mode:    state.Mode,
		Active:  state.Active,
		Waiting: state.Waiting,
		Tunnels: state.Tunnels, Unsigned: state.Unsigned,
		Records: state.Records,
		Counts:  counts,
	}
	if err := h.options.Ready(); err != nil {
		s.Ready, s.NotReady = false, err.Error()
	}
	return s, nil
}

// indexPage has no script and no style, so the Content-Security-Policy need not allow them.
const indexPage = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>robotsproxy</title>
</head>
<body>
<h1>robotsproxy</h1>
<p>This is the operator's listener. Crawlers use the other one.</p>
<dl>
<dt><a href="/healthz">/healthz</a></dt><dd>200 while the process answers</dd>
<dt><a href="/readyz">/readyz</a></dt><dd>200 while traffic may be sent, 503 while it may not</dd>
<dt><a href="/ca.pem">/ca.pem</a></dt><dd>the certificate that clients must trust if HTTPS is intercepted</dd>
<dt><a href="/proxy.pac">/proxy.pac</a></dt><dd>the PAC script that sends browsers to the proxy</dd>
<dt><a href="/metrics">/metrics</a></dt><dd>for Prometheus</dd>
<dt>/api/v1/status</dt><dd>decisions since the start; needs the token: <code>curl -H "Authorization: Bearer TOKEN"</code></dd>
<dt>/api/v1/cache</dt><dd>the stored robots.txt files; needs the token; <code>robotsproxy cache</code> uses it</dd>
</dl>
</body>
</html>
`

func index(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	io.WriteString(w, indexPage)
}
