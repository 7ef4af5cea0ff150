package robotstest

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// builtins are the pages of every host, by the first segment of the path. Each function gets the rest of the path.
var builtins = map[string]func(w http.ResponseWriter, r *http.Request, rest string){
	"robots.txt":      func(w http.ResponseWriter, r *http.Request, _ string) { http.NotFound(w, r) },
	"bytes":           serveBytes,
	"stream":          serveStream,
	"sse":             serveEvents,
	"ndjson":          serveNDJSON,
	"drip":            serveDrip,
	"endless":         func(w http.ResponseWriter, r *http.Request, _ string) { Endless(w, r) },
	"status":          serveStatus,
	"delay":           serveDelay,
	"redirect":        serveRedirect,
	"echo":            serveEcho,
	"ws":              serveWebSocket,
	"gzip":            serveGzip,
	"cookies":         serveCookies,
	"trailers":        serveTrailers,
	"hints":           serveHints,
	"truncate":        func(w http.ResponseWriter, r *http.Request, _ string) { Truncate(w, r) },
	"truncate-length": serveTruncateLength,
	"reset":           func(w http.ResponseWriter, r *http.Request, _ string) { Reset(w, r) },
	"garbage":         serveGarbage,
}

func (s *Site) builtin(w http.ResponseWriter, r *http.Request, path string) {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if serve := builtins[first]; serve != nil {
		serve(w, r, rest)
		return
	}
	switch first {
	case "":
		s.serveHome(w, r)
	case "page", "private":
		s.servePage(w, r, first, rest)
	default:
		http.NotFound(w, r)
	}
}

// Pages returns the targets that a crawl from "/" finds if it must not fetch /private/: "/" and every /page/K. They are
// the same for every host.
func (s *Site) Pages() []string { return append([]string{"/"}, s.numbered("page")...) }

// Private returns every /private/K. A crawl that may fetch them finds them all.
func (s *Site) Private() []string { return s.numbered("private") }

func (s *Site) numbered(kind string) []string {
	targets := make([]string, s.pages)
	for i := range targets {
		targets[i] = fmt.Sprintf("/%s/%d", kind, i+1)
	}
	return targets
}

// serveHome links to every page and to the odd private pages.
func (s *Site) serveHome(w http.ResponseWriter, _ *http.Request) {
	links := s.numbered("page")
	for i, target := range s.Private() {
		if i%2 == 0 {
			links = append(links, target)
		}
	}
	writeHTML(w, "Home", links)
}

// servePage links to the home page, to the next page and, from /page/K, to /private/K, so that crawls find the even
// ones.
func (s *Site) servePage(w http.ResponseWriter, r *http.Request, kind, rest string) {
	k, err := strconv.Atoi(rest)
	if err != nil || k < 1 || k > s.pages {
		http.NotFound(w, r)
		return
	}
	links := []string{"/", fmt.Sprintf("/page/%d", k%s.pages+1)}
	if kind == "page" {
		links = append(links, fmt.Sprintf("/private/%d", k))
	}
	writeHTML(w, fmt.Sprintf("%s %d", kind, k), links)
}

var htmlPage = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>{{.Title}}</title></head>
<body>
<h1>{{.Title}}</h1>
<ul>
{{range .Links}}<li><a href="{{.}}">{{.}}</a></li>
{{end}}</ul>
</body>
</html>
`))

func writeHTML(w http.ResponseWriter, title string, links []string) {
	var page bytes.Buffer
	err := htmlPage.Execute(&page, struct {
		Title string
		Links []string
	}{title, links})
	if err != nil {
		panic(err) // the template and its data are constant
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(page.Len()))
	write(w, page.String())
}

func serveStatus(w http.ResponseWriter, r *http.Request, rest string) {
	code, err := strconv.Atoi(rest)
	if err != nil || code < 200 || code > 999 {
		http.Error(w, "the path is /status/CODE, 200 to 999", http.StatusBadRequest)
		return
	}
	if after := r.URL.Query().Get("retry_after"); after != "" {
		w.Header().Set("Retry-After", after)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	write(w, fmt.Sprintf("status %d\n", code))
}

func serveDelay(w http.ResponseWriter, r *http.Request, rest string) {
	d, err := time.ParseDuration(rest)
	if err != nil {
		http.Error(w, "the path is /delay/DURATION: "+err.Error(), http.StatusBadRequest)
		return
	}
	if pause(r, d) {
		write(w, fmt.Sprintf("after %s\n", d))
	}
}

func serveRedirect(w http.ResponseWriter, r *http.Request, _ string) {
	query := r.URL.Query()
	code, err := number(query, "code", http.StatusFound)
	if err != nil || code < 300 || code > 399 || query.Get("to") == "" {
		http.Error(w, "the target is /redirect?to=URL&code=3xx", http.StatusBadRequest)
		return
	}
	w.Header().Set("Location", query.Get("to")) // unchanged; http.Redirect would make it absolute
	w.WriteHeader(code)
}

func serveGzip(w http.ResponseWriter, _ *http.Request, _ string) {
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	write(zip, strings.Repeat("the same line again\n", 100))
	_ = zip.Close() // writing to a buffer cannot fail
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Set("Content-Length", strconv.Itoa(packed.Len()))
	write(w, packed.String())
}

func serveCookies(w http.ResponseWriter, _ *http.Request, _ string) {
	w.Header().Add("Set-Cookie", "first=1; Path=/")
	w.Header().Add("Set-Cookie", "second=2; Path=/; HttpOnly")
	write(w, "two cookies\n")
}

func serveTrailers(w http.ResponseWriter, _ *http.Request, _ string) {
	w.Header().Set("Trailer", "Checksum")
	write(w, "a body\n")
	w.Header().Set("Checksum", "sum of a body")
}

func serveHints(w http.ResponseWriter, _ *http.Request, _ string) {
	w.Header().Set("Link", "</style.css>; rel=preload; as=style")
	w.WriteHeader(http.StatusEarlyHints)
	write(w, "hinted\n")
}

// number parses an integer parameter of the query, with a default.
func number(query url.Values, name string, otherwise int) (int, error) {
	if !query.Has(name) {
		return otherwise, nil
	}
	return strconv.Atoi(query.Get(name))
}

// write sends text. It ignores errors: the client may have disconnected.
func write(w io.Writer, text string) { _, _ = io.WriteString(w, text) }
