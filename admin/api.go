package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

// A route is one operation of the API. docs/openapi.yaml describes each.
type route struct {
	pattern string                           // method and path below apiPrefix, for http.ServeMux
	answer  func(*http.Request) (any, error) // the body of the response, as JSON, or an error: see apiError
	serve   http.HandlerFunc                 // in place of answer
}

// apiPrefix precedes every path of the API. A path without the version, such as /api/status, means the current version.
const (
	apiPrefix   = "/api/v1"
	unversioned = "/api"
)

// apiRoutes returns the operations of the API.
func (h *Handler) apiRoutes() []route {
	routes := append([]route{{pattern: "GET /status", answer: h.status}}, h.auditRoutes()...)
	if h.options.Drain != nil {
		routes = append(routes, route{pattern: "POST /drain", answer: h.drain})
	}
	if h.options.Files != nil {
		routes = append(routes, h.fileRoutes()...)
	}
	if h.options.Exemptions != nil {
		routes = append(routes, h.exemptionRoutes()...)
	}
	if h.options.Reload != nil {
		routes = append(routes, route{pattern: "POST /reload", answer: h.reload})
	}
	if h.options.Interventions != nil {
		routes = append(routes, h.interventionRoutes()...)
	}
	if h.options.Lanes != nil {
		routes = append(routes, route{pattern: "GET /hosts", answer: h.listLanes})
	}
	if h.options.Upgrade != nil {
		routes = append(routes, route{pattern: "POST /upgrade", answer: h.upgrade})
	}
	return routes
}

// serveAPI adds the operations of the API to mux. They all need the token.
func (h *Handler) serveAPI(mux *http.ServeMux) {
	for _, route := range h.apiRoutes() {
		method, path, _ := strings.Cut(route.pattern, " ")
		handler := http.Handler(route.serve)
		if route.serve == nil {
			handler = asJSON(route.answer)
		}
		handler = h.Protected(handler)
		mux.Handle(method+" "+apiPrefix+path, handler)
		mux.Handle(method+" "+unversioned+path, handler)
	}
}

// apiError is an error with an HTTP status for the response: 400 if the request is invalid, 404 if its subject is not
// found, 409 if the state of the proxy does not permit it, 422 if the configuration that it should read is wrong. The status of all other errors is 500.
type apiError struct {
	status int
	err    error
}

func (e *apiError) Error() string { return e.err.Error() }

func (e *apiError) Unwrap() error { return e.err }

// problem is the body of an error (RFC 9457).
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

func writeProblem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	writeJSON(w, problem{http.StatusText(status), status, detail})
}

// writeJSON writes v as JSON without control characters. Only the connection can fail, and the client notices that.
func writeJSON(w io.Writer, v any) {
	_ = json.NewEncoder(safetext.JSONWriter(w)).Encode(v)
}

func writeError(w http.ResponseWriter, err error) {
	writeProblem(w, StatusOf(err), err.Error())
}

// StatusOf returns the HTTP status for an error of the functions of this package that the API calls.
func StatusOf(err error) int {
	var known *apiError
	if errors.As(err, &known) {
		return known.status
	}
	return http.StatusInternalServerError
}

// asJSON responds with the result of answer.
func asJSON(answer func(*http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, err := answer(r)
		if err != nil {
			writeError(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		writeJSON(w, v)
	})
}

// maxBody is the maximum size of a request's body, in bytes.
const maxBody = 1 << 20

// readBody decodes the body of r, one JSON value without unknown fields, into v. An empty body leaves v unchanged.
func readBody(r *http.Request, v any) error {
	d := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxBody))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, err = d.Token(); err == nil {
			err = errors.New("it has more than one value")
		}
	}
	if err == io.EOF {
		return nil
	}
	return &apiError{http.StatusBadRequest, fmt.Errorf("reading the body of the request as JSON: %w", err)}
}
