package admin

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/origin"
)

// apiExamples are requests to each operation of the API. TestOpenAPI checks them and their responses by
// docs/openapi.yaml.
var apiExamples = []struct {
	method, path, body string
	status             int
}{
	{"GET", "/status", "", 200},
	{"POST", "/drain", "", 200},
	{"GET", "/cache", "", 200},
	{"GET", "/cache/file?host=a.example", "", 200},
	{"GET", "/cache/file?host=b.example", "", 404},
	{"GET", "/cache/version?host=a.example&sha256=beef", "", 200},
	{"GET", "/cache/changes?host=a.example&since=24h", "", 200},
	{"GET", "/cache/changes?host=a.example&since=soon", "", 400},
	{"GET", "/cache/changes?host=b.example", "", 404},
	{"POST", "/cache/refresh?host=a.example", "", 200},
	{"POST", "/cache/refresh?host=a.example:80", "", 400},
	{"POST", "/cache/purge?host=a.example", "", 200},
	{"POST", "/reload", "", 200},
	{"GET", "/interventions", "", 200},
	{"POST", "/interventions", `{"kind": "stop", "host": "a.example", "reason": "r", "by": "b", "for_seconds": 60}`, 200},
	{"POST", "/interventions", `{"kind": "slow", "host": "*.example", "delay_seconds": 1.5, "reason": "r", "by": "b"}`, 200},
	{"POST", "/interventions", `{"kind": "stop", "host": "a.example", "by": "b"}`, 400},
	{"GET", "/interventions", "", 200},
	{"DELETE", "/interventions", "", 400},
	{"DELETE", "/interventions?host=b.example", "", 404},
	{"DELETE", "/interventions?host=a.example&by=b&reason=r", "", 200},
	{"GET", "/exemptions", "", 200},
	{"POST", "/exemptions", `{"host": "a.example", "effect": "deny", "reason": "r", "owner": "o"}`, 200},
	{"POST", "/exemptions", `{"host": "bad.example", "effect": "deny", "reason": "r", "owner": "o"}`, 400},
	{"DELETE", "/exemptions?id=7", "", 200},
	{"DELETE", "/exemptions?id=8", "", 404},
	{"POST", "/upgrade", "", 200},
	{"GET", "/hosts", "", 200},
	{"GET", "/hosts?window=5m&host=EXAMPLE&sort=waiting&limit=1&offset=1", "", 200},
	{"GET", "/hosts?sort=colour", "", 400},
	{"GET", "/audit/records?since=24h&decision=deny&limit=2", "", 200},
	{"GET", "/audit/records?format=jsonl", "", 200},
	{"GET", "/audit/records?limit=0", "", 400},
	{"GET", "/audit/records/{id of a record}", "", 200},
	{"GET", "/audit/records/0000000000000", "", 404},
	{"GET", "/audit/top/rules", "", 200},
	{"GET", "/audit/summary?by=client,host", "", 200},
	{"GET", "/audit/would-deny", "", 200},
	{"GET", "/audit/usage?limit=5", "", 200},
	{"GET", "/audit/timeline?step=5m", "", 200},
	{"GET", "/audit/spacing?host=a.example", "", 200},
	{"GET", "/audit/changes?host=a.example", "", 200},
	{"GET", "/audit/files?host=a.example", "", 200},
	{"GET", "/audit/bodies/" + keptSHA256, "", 200},
}

// newAPIHandler returns a Handler with all operations of the API.
func newAPIHandler(t *testing.T, records audit.Reader) *Handler {
	t.Helper()
	origins := mustOrigins(t, "https://a.example")
	return newHandler(t, Options{
		Drain:   func() Drain { return Drain{Active: 3, Tunnels: 1, Seconds: 30} },
		Files:   withOwn{Cache: newTestCache(t, origins...)},
		History: past{noPast([]origin.Origin(origins))},
		Reload:  func() ([]Change, error) { return []Change{{"log.level", "log.level: info -> debug", false}}, nil },
		Upgrade: func() (Upgrade, error) { return Upgrade{PID: 2, Version: "1.0", OldPID: 1}, nil },

		Interventions: &orders{},
		Exemptions:    oneExemption{},
		Lanes:         fixedLanes(testLanes(mustOrigins(t, "https://a.example")[0])),
		Records:       records,
	})
}

// The document lists exactly the operations of the API, and each has an example that succeeds.
func TestOpenAPI(t *testing.T) {
	loader := openapi3.NewLoader()
	doc, err := loader.LoadFromFile("../docs/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	doc.Servers = openapi3.Servers{{URL: "http://localhost:3129" + apiPrefix}}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}

	openapi3filter.RegisterBodyDecoder("application/jsonl", openapi3filter.PlainBodyDecoder)
	records, ids := keptRecords(t, 1)
	h := newAPIHandler(t, records)
	var described, served []string
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			described = append(described, method+" "+path)
		}
	}
	for _, r := range h.apiRoutes() {
		served = append(served, r.pattern)
	}
	slices.Sort(described)
	slices.Sort(served)
	if !slices.Equal(described, served) {
		t.Errorf("docs/openapi.yaml describes\n%s\nand the API has\n%s", strings.Join(described, "\n"), strings.Join(served, "\n"))
	}

	succeeded := map[string]bool{}
	for _, example := range apiExamples {
		example.path = strings.ReplaceAll(example.path, "{id of a record}", ids[0].String())
		r := httptest.NewRequest(example.method, "http://localhost:3129"+apiPrefix+example.path, strings.NewReader(example.body))
		r.Header.Set("Authorization", "Bearer "+testToken)
		if example.body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		route, params, err := router.FindRoute(r)
		if err != nil {
			t.Errorf("%s %s: %v", example.method, example.path, err)
			continue
		}
		input := &openapi3filter.RequestValidationInput{
			Request: r, PathParams: params, Route: route,
			Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
		}
		if err := openapi3filter.ValidateRequest(t.Context(), input); err != nil && example.status < 400 {
			t.Errorf("%s %s: %v", example.method, example.path, err)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != example.status {
			t.Errorf("%s %s = %d %s, want %d", example.method, example.path, w.Code, w.Body, example.status)
		}
		if w.Code < http.StatusBadRequest {
			succeeded[route.Method+" "+route.Path] = true
		}
		if err := openapi3filter.ValidateResponse(t.Context(), &openapi3filter.ResponseValidationInput{
			RequestValidationInput: input, Status: w.Code, Header: w.Header(),
			Body: io.NopCloser(bytes.NewReader(w.Body.Bytes())),
		}); err != nil {
			t.Errorf("the response of %s %s: %v", example.method, example.path, err)
		}
	}
	for _, operation := range described {
		if !succeeded[operation] {
			t.Errorf("apiExamples has no example of %s that succeeds", operation)
		}
	}
}
