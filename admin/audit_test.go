package admin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/rules"
	"github.com/robotsproxy/robotsproxy/store"
)

var keptBody = []byte("User-agent: *\nDisallow: /p\n")

// keptRecords returns a store with n records of the last seconds, of which each third is refused, and their IDs.
func keptRecords(t *testing.T, n int) (*store.Records, []audit.ID) {
	t.Helper()
	records, err := store.OpenRecords(store.RecordsOptions{Path: filepath.Join(t.TempDir(), "audit.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := records.Close(); err != nil {
			t.Error(err)
		}
	})
	o, err := origin.Parse("https://a.example")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(keptBody)
	snap := &robots.Snapshot{Answer: robots.Answer{
		Origin: o, Availability: robots.Found, Status: 200, Body: keptBody, SHA256: hex.EncodeToString(sum[:]), Fetched: time.Now().Truncate(time.Microsecond),
	}}
	var (
		ids     audit.Sequence
		entries []audit.Entry
		all     []audit.ID
	)
	for i := range n {
		at := time.Now().Add(time.Duration(i-n) * time.Second).Truncate(time.Microsecond)
		r := audit.Record{
			ID: ids.Next(at), Time: at, Client: "news", Agent: "NewsBot", Host: "a.example", Scheme: "https", Port: 443, Path: fmt.Sprintf("/p%d\x1b", i), Via: audit.Plain,
		}
		d := policy.Decision{Outcome: policy.Allow}
		if i%3 == 0 {
			d.Outcome, d.Reason, d.Verdict = policy.Deny, policy.ReasonRobots, rules.Verdict{Line: 2, Rule: "Disallow: /p"}
		}
		r.SetDecision(d, snap)
		r.EndedAt, r.Status = at, 200
		entries, all = append(entries, audit.Entry{Record: r}), append(all, r.ID)
	}
	if err := records.Write(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	return records, all
}

var keptSHA256 = func() string { sum := sha256.Sum256(keptBody); return hex.EncodeToString(sum[:]) }()

// faulty are records that cannot be read beyond the first few, and that cannot be counted in time.
type faulty struct {
	audit.Reader
	readable int
}

func (f faulty) Records(context.Context, audit.Filter) iter.Seq2[*audit.Record, error] {
	return func(yield func(*audit.Record, error) bool) {
		for range f.readable {
			if !yield(&audit.Record{Path: strings.Repeat("p", 100)}, nil) {
				return
			}
		}
		yield(nil, errors.New("the disk is gone"))
	}
}

func (faulty) Sums(ctx context.Context, _ audit.Filter, _ ...audit.Dimension) ([]audit.Sum, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func askAudit(t *testing.T, h *Handler, path, accept string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest("GET", "http://localhost:3129/api/v1/audit"+path, nil)
	r.Header.Set("Authorization", "Bearer "+testToken)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestAuditQuestions(t *testing.T) {
	records, _ := keptRecords(t, 9)
	h := newHandler(t, Options{Records: records})
	for _, row := range []struct {
		path, accept string
		status       int
		kind, body   string // a part of it
	}{
		{"/records", "", 200, "application/json", `"path":"/p8\u001b"`},
		{"/records?decision=deny&limit=1", "", 200, "application/json", `"next":"`},
		{"/records?decision=deny,allow&decision=error&reason=robots", "", 200, "application/json", `"next":null}`},
		{"/records?host=b.example", "", 200, "application/json", `{"records":[],"next":null}`},
		{"/records?format=jsonl", "", 200, "application/jsonl", "}\n{"},
		{"/records", "text/html, text/csv;q=0.5", 200, "text/csv; charset=utf-8; header=present", "id,time,client"},
		{"/records?host=b.example&format=csv", "", 200, "text/csv; charset=utf-8; header=present", "id,time,client"},
		{"/records?limit=0", "", 400, "application/problem+json", "from 1 to 10000"},
		{"/records?limit=10001", "", 400, "application/problem+json", "from 1 to 10000"},
		{"/records?decison=deny", "", 400, "application/problem+json", "did you mean decision?"},
		{"/records?decision=denied", "", 400, "application/problem+json", "is not one of"},
		{"/records?since=soon", "", 400, "application/problem+json", "is no time"},
		{"/records?after=x", "", 400, "application/problem+json", "not an id"},
		{"/records?order=up", "", 400, "application/problem+json", "neither newest nor oldest"},
		{"/records?format=table", "", 400, "application/problem+json", "is not one of json"},
		{"/records/0000000000000", "", 404, "application/problem+json", "no record"},
		{"/records/x", "", 400, "application/problem+json", "not an id"},
		{"/top/hosts", "", 200, "application/json", `"host":"a.example","requests":9`},
		{"/top/rules?format=csv", "", 200, "text/csv; charset=utf-8; header=present", "host,rule,requests"},
		{"/top/host", "", 404, "application/problem+json", "did you mean hosts?"},
		{"/summary?by=client,host", "", 200, "application/json", `"rows":[`},
		{"/summary?by=x", "", 400, "application/problem+json", "is not one of"},
		{"/would-deny", "", 200, "application/json", "["},
		{"/usage?host=a.example", "", 200, "application/json", `{"host":"a.example","purpose":"","requests":9,"fetched":6,`},
		{"/usage?format=csv", "", 200, "text/csv; charset=utf-8; header=present", "host,purpose,requests,fetched"},
		{"/timeline?step=5m", "", 200, "application/json", `"step_seconds":300`},
		{"/timeline", "", 200, "application/json", `"step_seconds":720`},
		{"/timeline?step=90s", "", 400, "application/problem+json", "whole minutes"},
		{"/timeline?step=1m&since=30d", "", 400, "application/problem+json", "more than 10000 points"},
		{"/timeline?format=csv", "", 400, "application/problem+json", "is not one of json"},
		{"/spacing?host=a.example", "", 200, "application/json", `"lanes":[`},
		{"/files", "", 400, "application/problem+json", "not one host"},
		{"/files?host=*.example", "", 400, "application/problem+json", "not one host"},
		{"/changes?host=a.example", "", 200, "application/json", `"version": 1`},
		{"/changes?host=unknown.example", "", 200, "application/json", "[]"},
		{"/changes", "", 400, "application/problem+json", "not one host"},
		{"/spacing?format=csv", "", 200, "text/csv; charset=utf-8; header=present", "host,"},
		{"/files?host=a.example", "", 200, "application/json", keptSHA256},
		{"/bodies/" + keptSHA256, "", 200, "application/octet-stream", "User-agent: *\nDisallow: /p\n"},
		{"/bodies/" + strings.Repeat("0", 64), "", 404, "application/problem+json", "is kept"},
		{"/bodies/beef", "", 400, "application/problem+json", "64 hexadecimal digits"},
	} {
		w := askAudit(t, h, row.path, row.accept)
		if w.Code != row.status || w.Header().Get("Content-Type") != row.kind || !strings.Contains(w.Body.String(), row.body) {
			t.Errorf("%s = %d %s %.300s, want %d %s %s", row.path, w.Code, w.Header().Get("Content-Type"), w.Body, row.status, row.kind, row.body)
		}
	}
}

// The pages of a list have all records, each once, in order.
func TestAuditPages(t *testing.T) {
	records, want := keptRecords(t, 10)
	h := newHandler(t, Options{Records: records})
	for _, order := range []string{"newest", "oldest"} {
		var ids []audit.ID
		for after := ""; ; {
			var page struct {
				Records []struct{ ID audit.ID }
				Next    *string
			}
			w := askAudit(t, h, "/records?limit=3&order="+order+"&after="+after, "")
			if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil {
				t.Fatalf("%v in %s", err, w.Body)
			}
			for _, r := range page.Records {
				ids = append(ids, r.ID)
			}
			if page.Next == nil {
				break
			}
			after = *page.Next
		}
		if order == "newest" {
			slices.Reverse(ids)
		}
		if !slices.Equal(ids, want) {
			t.Errorf("%s: %v, want %v", order, ids, want)
		}
	}
}

func TestAuditExplains(t *testing.T) {
	records, ids := keptRecords(t, 1)
	id := ids[0].String()
	w := askAudit(t, newHandler(t, Options{Records: records}), "/records/"+id, "")
	var e struct {
		Record struct {
			ID   string
			Line int `json:"rule_line"`
		}
		Robots struct{ Body string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Record.ID != id || strings.Split(e.Robots.Body, "\n")[e.Record.Line-1] != "Disallow: /p" {
		t.Errorf("%d %s: %v", w.Code, w.Body, err)
	}
}

func TestAuditWithoutStore(t *testing.T) {
	w := askAudit(t, newHandler(t, Options{}), "/records", "")
	if w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "audit.store is none") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A question that takes too long ends with a problem, and a response that has begun breaks off.
func TestAuditFaults(t *testing.T) {
	h := newHandler(t, Options{Records: faulty{}, questionTime: 10 * time.Millisecond})
	if w := askAudit(t, h, "/records", ""); w.Code != 500 || !strings.Contains(w.Body.String(), "the disk is gone") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := askAudit(t, h, "/summary", ""); w.Code != 503 || !strings.Contains(w.Body.String(), "longer than 10ms") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for range questions {
		h.questions <- struct{}{}
	}
	if w := askAudit(t, h, "/summary", ""); w.Code != 503 || !strings.Contains(w.Body.String(), "ask again later") {
		t.Errorf("%d %s", w.Code, w.Body)
	}

	defer func() {
		if v := recover(); v != http.ErrAbortHandler {
			t.Errorf("a list that breaks off ends with %v", v)
		}
	}()
	askAudit(t, newHandler(t, Options{Records: faulty{readable: 500}}), "/records?limit=1000", "")
}
