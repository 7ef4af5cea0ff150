package auditview_test

import (
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit/proof"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
)

// Texts of sites and clients cannot write to the terminal.
func TestEffect(t *testing.T) {
	e := &proof.Effect{
		Origin: "http://a.example", Time: time.Date(2026, 11, 23, 19, 37, 0, 0, time.UTC), Before: proof.Text{State: "unavailable"},
		After: proof.Text{State: "found", SHA256: "beef"}, Diff: "--- unavailable\n+++ beef\n@@ -0,0 +1,1 @@\n+Disallow: /\x1b[2J\n",
		Judged: 1200, Refused: 1, Delays: []proof.DelayChange{{Agent: "NewsBot", After: 90}},
		Examples: []proof.Example{{Path: "/\x1b[2J", Agent: "NewsBot", Before: proof.Ruling{Allowed: true}, After: proof.Ruling{Line: 1, Rule: "Disallow: /\x1b[2J"}}},
	}
	var b strings.Builder
	if err := auditview.Effect(&b, auditview.Options{Format: auditview.Table}, e); err != nil {
		t.Fatal(err)
	}
	const want = `http://a.example  changed 2026-11-23 19:37:00  1 of 1,200 would now be refused
  unavailable before, found now
  --- unavailable
  +++ beef
  @@ -0,0 +1,1 @@
  +Disallow: /%1B[2J
  Delay of NewsBot: none before, 1 m 30 s now
  NewsBot  /%1B[2J  allowed before, refused by line 1  Disallow: /%1B[2J now
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	b.Reset()
	if err := auditview.Effect(&b, auditview.Options{Format: auditview.JSONL}, e); err != nil || strings.Contains(b.String(), "\x1b") || strings.Count(b.String(), "\n") != 1 {
		t.Errorf("%q, %v", b.String(), err)
	}
}
