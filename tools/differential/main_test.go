package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/rules"
)

// google is the dialect that agrees with Google's parser. It stands in for it, which not every machine can build.
var google = peer{name: "the dialect google", dialect: rules.DialectRFC9309, judge: dialect(rules.DialectGoogle), strict: true}

func TestAllKindsAreListed(t *testing.T) {
	for _, s := range sources("", 1000, 1) {
		c := comparison{peer: google, others: map[bool]int{}}
		if err := c.ask(s.questions); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		c.print(&out, s.name)
		if !c.listed() || c.verdicts < 5000 {
			t.Error(out.String())
		}
		if s.name == "wild files" && len(c.groups) < 6 {
			t.Errorf("only %d kinds of difference: the files are not wild\n%s", len(c.groups), &out)
		}
	}
}

// TestKinds checks the kind of each difference of the list, and that other differences are not listed.
func TestKinds(t *testing.T) {
	const star = "User-agent: *\n"
	tests := []struct {
		robots, agent, target string
		laxer                 bool
		kind                  string
	}{
		{star + "Disallow: /\n", "a", "/robots.txt", true, "/robots.txt"},
		{"\xFF" + star + "Disallow: /\n", "a", "/", false, "bytes before the first line"},
		{star + "Disallow: /a\x00b\n", "a", "/a", true, "a NUL"},
		{"User-agent: a Disallow: /\n", "a", "/", false, "records of one line"},
		{star + "Disallow: /d/\nAllow: /d/index.html\n", "a", "/d/", false, "an index page"},
		{"User-agent: a2\nAllow: /\n" + star + "Disallow: /\n", "a2", "/", true, "a token"},
		{star + "Disallow: /%61\n", "a", "/a", false, "normalisation"},
		{star + "Disallow: /a b\nAllow: /a*b*\n", "a", "/a b", false, "normalisation"},
	}
	for _, tt := range tests {
		c := comparison{peer: google, others: map[bool]int{}}
		q := question{[]byte(tt.robots), []string{tt.agent}, []string{tt.target}}
		if err := c.ask(func(yield func(question) bool) { yield(q) }); err != nil {
			t.Fatal(err)
		}
		if len(c.groups) != 1 || c.groups[0].kind.name != tt.kind || c.groups[0].laxer != tt.laxer || !c.listed() {
			t.Errorf("%.100q, %s, %.100q: %+v, want %s, laxer: %v", tt.robots, tt.agent, tt.target, c.groups, tt.kind, tt.laxer)
		}
	}
	for kind, robots := range map[string]string{
		"more than 500 KiB":          star + strings.Repeat("#\n", 256<<10) + "Disallow: /\n",
		"a line of more than 16 KiB": star + "Disallow: /" + strings.Repeat("a", 16<<10) + "\n",
		"a mark of UTF-16":           "\xFF\xFE" + star + "Disallow: /\n",
	} {
		if k := kindOf(difference{[]byte(robots), "a", "/", true}); k.name != kind || !k.listed(rules.DialectRFC9309, true) {
			t.Errorf("%.100q is of kind %q, want %q", robots, k.name, kind)
		}
	}
	for _, d := range []difference{
		{[]byte("User-agent: *\nDisallow: /\n"), "a", "/", true},
		{[]byte("User-agent: *\nDisallow: /*a$\n"), "a", "/a", true},
		{[]byte("User-agent: *\nAllow: /\nAllow: /index.html\n"), "a", "/", true},
	} {
		if k := kindOf(d); k.listed(rules.DialectRFC9309, d.laxer) {
			t.Errorf("%q, %s, %q is listed as %s", d.robots, d.agent, d.target, k.name)
		}
	}
}

// TestMinimise checks that nothing more can be removed.
func TestMinimise(t *testing.T) {
	d := difference{[]byte("# text\nUser-agent: x\nDisallow: /y\n\nUser-agent: *\nAllow: /b\nDisallow: /%61bc # text\n"), "a", "/abcd/e", false}
	got, err := d.minimise(dialect(rules.DialectRFC9309), google.judge)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.robots) > 30 || got.target != "/" && got.target != "/a" {
		t.Errorf("minimise() = %q, %q", got.robots, got.target)
	}
}

// TestReal checks the questions of real files.
func TestReal(t *testing.T) {
	folder := t.TempDir()
	const robots = "User-agent: NewsBot # news\nDisallow: /a/*.pdf$\nAllow: b # b\n"
	if err := os.WriteFile(filepath.Join(folder, "site.example"), []byte(robots), 0o600); err != nil {
		t.Fatal(err)
	}
	for q := range realFiles(folder) {
		if string(q.robots) != robots || strings.Join(q.agents, " ") != "SomeBot NewsBot" ||
			strings.Join(q.targets, " ") != "/ /robots.txt /some/page?id=1 /a/x.pdf /a/x.pdfy /b /by" {
			t.Errorf("%+v", q)
		}
		return
	}
	t.Error("no file")
}

// TestProgram checks the questions to another program, with Perl's parser.
func TestProgram(t *testing.T) {
	var out bytes.Buffer
	for _, p := range peers(t.Context(), &out, "", t.TempDir()) {
		if p.name != "WWW::RobotRules" {
			continue
		}
		got, err := p.judge([]byte("User-agent: *\nDisallow: /a\n"), "FooBot", []string{"/", "/a", "/b"})
		if err != nil || len(got) != 3 || !got[0] || got[1] || !got[2] {
			t.Errorf("%v, %v, want only /a disallowed", got, err)
		}
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal(out.String())
	}
	t.Skip("WWW::RobotRules is not installed")
}
