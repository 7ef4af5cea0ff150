package robotstest

import (
	"net"
	"net/http"
	"strings"
	"time"
)

// place is the key of a handler: a host as in SetPage, and an escaped path.
type place struct{ host, path string }

const robotsPath = "/robots.txt"

// Robots is the response of a host for its robots.txt.
type Robots struct {
	Status   int              // if zero, 200, or 301 with Redirect
	Body     string           // sent as text/plain unless Header has another type
	Header   http.Header      // added fields
	Delay    time.Duration    // before the response
	Redirect string           // if not empty, the value of Location
	Handler  http.HandlerFunc // if not nil, responds (after Delay) instead of the fields above
}

// SetRobots sets the robots.txt of host. It replaces an earlier one. A host with a port ("a.example:8443") takes
// precedence over the name alone; "" is the default for all hosts.
func (s *Site) SetRobots(host string, r Robots) { s.SetPage(host, robotsPath, r.serve) }

// SetPage makes h respond for path on host, instead of the built-in page or an earlier h. Host is as in SetRobots. Path
// is escaped and has no query; "" is the default for all paths except /robots.txt.
func (s *Site) SetPage(host, path string, h http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers[place{strings.ToLower(host), path}] = h
}

// handle handles all requests of the site.
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

// handler returns the handler that SetPage set for path: that of the authority, of the host name, or of all hosts. If
// none is set, it returns the default for all paths, in the same order.
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

// hostName returns the host of an authority without port, brackets and final dot, in lower case.
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

// pause waits for d. It reports false if the client disconnected first.
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
