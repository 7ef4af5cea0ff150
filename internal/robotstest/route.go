package robotstest

import (
	"net"
	"net/http"
	"strings"
	"time"
)

// place is where a handler stands: a host as SetPage takes it, and an escaped path.
type place struct{ host, path string }

const robotsPath = "/robots.txt"

// Robots says how a host answers for its robots.txt.
type Robots struct {
	Status   int              // If zero, 200, or 301 with Redirect.
	Body     string           // sent as text/plain unless Header says otherwise
	Header   http.Header      // fields added to the answer
	Delay    time.Duration    // how long the answer waits
	Redirect string           // If not empty, the value of Location.
	Handler  http.HandlerFunc // If not nil, answers (after Delay) in place of all the above.
}

// SetRobots sets the robots.txt of host, in the place of an earlier one. A host with a port ("a.example:8443") goes before
// the name alone; "" is every host without its own.
func (s *Site) SetRobots(host string, r Robots) { s.SetPage(host, robotsPath, r.serve) }

// SetPage has h answer for path on host, in the place of the built-in page or of an earlier h. Host is as in SetRobots.
// Path is escaped and without query; "" is every path without its own but /robots.txt.
func (s *Site) SetPage(host, path string, h http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers[place{strings.ToLower(host), path}] = h
}

// handle is the whole of the site.
func (s *Site) handle(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		panic(http.ErrAbortHandler)
	}
	defer s.running.Done()
	if s.recorder == nil {
		s.route(w, r)
		return
	}
	s.recorder.record(w, r, s.route)
}

func (s *Site) route(w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath()
	if h := s.handler(strings.ToLower(r.Host), path); h != nil {
		h(w, r)
		return
	}
	s.builtin(w, r, path)
}

// handler returns what SetPage set for path: that of the authority, of the host's name, or of all hosts; and if there is
// none, what it set in the same order for all paths.
func (s *Site) handler(authority, path string) http.HandlerFunc {
	s.mu.RLock()
	defer s.mu.RUnlock()
	paths := []string{path, ""}
	if path == robotsPath {
		paths = paths[:1]
	}
	for _, path := range paths {
		for _, host := range []string{authority, hostName(authority), ""} {
			if h := s.handlers[place{host, path}]; h != nil {
				return h
			}
		}
	}
	return nil
}

// hostName returns an authority's host without port, brackets and final dot, in lower case.
func hostName(authority string) string {
	host, _, err := net.SplitHostPort(authority)
	if err != nil {
		host = strings.Trim(authority, "[]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

func (rb Robots) serve(w http.ResponseWriter, r *http.Request) {
	if !pause(r, rb.Delay) {
		return
	}
	if rb.Handler != nil {
		rb.Handler(w, r)
		return
	}
	header, status := w.Header(), http.StatusOK
	header.Set("Content-Type", "text/plain; charset=utf-8")
	for name, values := range rb.Header {
		header[http.CanonicalHeaderKey(name)] = values
	}
	if rb.Redirect != "" {
		header.Set("Location", rb.Redirect)
		status = http.StatusMovedPermanently
	}
	if rb.Status != 0 {
		status = rb.Status
	}
	w.WriteHeader(status)
	write(w, rb.Body)
}

// pause waits for d, and reports false where the client left before.
func pause(r *http.Request, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	}
}
