package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
)

// kept is a Reader of a few records, in order of their IDs.
type kept struct {
	records []audit.Record
	err     error // after the records
}

const keptSHA256 = "f3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// newKept returns n records of the last minutes, of which each third is refused.
func newKept(n int) *kept {
	k := &kept{}
	var ids audit.Sequence
	for i := range n {
		at := time.Now().Add(time.Duration(i-n) * time.Second)
		r := audit.Record{
			ID: ids.Next(at), Time: at, Client: "news", Agent: "NewsBot", Host: "a.example", Scheme: "https", Path: fmt.Sprintf("/p%d\x1b", i),
			Via: audit.Plain, Decision: policy.Allow, RobotsSHA256: keptSHA256, Status: 200, EndedAt: at,
		}
		if i%3 == 0 {
			r.Decision, r.Reason, r.RuleLine, r.Rule, r.Status = policy.Deny, policy.ReasonRobots, 2, "Disallow: /p", 403
		}
		k.records = append(k.records, r)
	}
	return k
}

func (k *kept) Record(_ context.Context, id audit.ID) (*audit.Record, error) {
	for _, r := range k.records {
		if r.ID == id {
			return &r, nil
		}
	}
	return nil, audit.ErrNoRecord
}

func (k *kept) Records(ctx context.Context, f audit.Filter) iter.Seq2[*audit.Record, error] {
	return func(yield func(*audit.Record, error) bool) {
		all, n := slices.Clone(k.records), 0
		if f.Newest {
			slices.Reverse(all)
		}
		for _, r := range all {
			beyond := f.After == 0 || f.Newest && r.ID < f.After || !f.Newest && r.ID > f.After
			if !beyond || !f.Selects(&r) {
				continue
			}
			if n++; f.Limit > 0 && n > f.Limit || !yield(&r, nil) {
				return
			}
		}
		if k.err != nil {
			yield(nil, cmp.Or(ctx.Err(), k.err))
		}
	}
}

func (k *kept) Sums(ctx context.Context, f audit.Filter, by ...audit.Dimension) ([]audit.Sum, error) {
	if k.err != nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	sum := audit.Sum{Waited: time.Second}
	for range by {
		sum.Values = append(sum.Values, "a.example")
	}
	for _, r := range k.records {
		if f.Selects(&r) {
			sum.Requests++
		}
	}
	return []audit.Sum{sum}, nil
}

func (k *kept) Timeline(_ context.Context, f audit.Filter, step time.Duration) ([]audit.Point, error) {
	return []audit.Point{{Time: f.Since.Truncate(step), Decisions: map[policy.Outcome]int64{policy.Allow: 2}}}, nil
}

func (k *kept) File(context.Context, *audit.Record) (*audit.File, error) {
	f := k.file()
	return &f, nil
}

func (k *kept) file() audit.File {
	o, _ := origin.Parse("https://a.example")
	return audit.File{
		Answer: robots.Answer{Origin: o, Status: 200, SHA256: keptSHA256, Body: []byte("User-agent: *\nDisallow: /p\n")}, State: "found", Size: 26,
	}
}

func (k *kept) Files(_ context.Context, host string) ([]audit.File, error) {
	if host != "a.example" {
		return nil, nil
	}
	return []audit.File{k.file()}, nil
}

func (k *kept) Body(_ context.Context, sum string) ([]byte, error) {
	if sum != keptSHA256 {
		return nil, audit.ErrNoFile
	}
	return k.file().Body, nil
}

func (k *kept) Policy(context.Context, string) ([]byte, error) { return nil, audit.ErrNoPolicy }

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
	h := newHandler(t, Options{Records: newKept(9)})
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
		{"/timeline?step=5m", "", 200, "application/json", `"step_seconds":300`},
		{"/timeline", "", 200, "application/json", `"step_seconds":720`},
		{"/timeline?step=90s", "", 400, "application/problem+json", "whole minutes"},
		{"/timeline?step=1m&since=30d", "", 400, "application/problem+json", "more than 10000 points"},
		{"/timeline?format=csv", "", 400, "application/problem+json", "is not one of json"},
		{"/spacing?host=a.example", "", 200, "application/json", `"lanes":[`},
		{"/files", "", 400, "application/problem+json", "host is needed"},
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
	k := newKept(10)
	h := newHandler(t, Options{Records: k})
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
		want := make([]audit.ID, 0, len(k.records))
		for _, r := range k.records {
			want = append(want, r.ID)
		}
		if !slices.Equal(ids, want) {
			t.Errorf("%s: %v, want %v", order, ids, want)
		}
	}
}

func TestAuditExplains(t *testing.T) {
	k := newKept(1)
	id := k.records[0].ID.String()
	w := askAudit(t, newHandler(t, Options{Records: k}), "/records/"+id, "")
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
	k := newKept(0)
	k.err = errors.New("the disk is gone")
	h := newHandler(t, Options{Records: k, questionTime: 10 * time.Millisecond})
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

	begun := newKept(500)
	begun.err = errors.New("the disk is gone")
	defer func() {
		if v := recover(); v != http.ErrAbortHandler {
			t.Errorf("a list that breaks off ends with %v", v)
		}
	}()
	askAudit(t, newHandler(t, Options{Records: begun}), "/records?limit=1000", "")
}
