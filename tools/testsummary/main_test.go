package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const sample = `package sample

import "testing"

func TestPasses(t *testing.T) { t.Log("passes") }

func TestSkipped(t *testing.T) { t.Skip("a program is not here") }

func TestOther(t *testing.T) {
	t.Run("part", func(t *testing.T) { t.Skip("a program is not here") })
}
`

// TestSummary compares the output with that of go test for a package that passes, one that fails, and one that cannot be
// built.
func TestSummary(t *testing.T) {
	const skipped = "skipped: a program is not here\n\tsample TestSkipped\n\tsample TestOther/part\n"
	for _, row := range []struct {
		name, more, want, last string
		passes                 bool
	}{
		{"passes", "", skipped, "ok  \tsample\t", true},
		{"fails", "func TestFails(t *testing.T) { t.Error(\"a fault\") }\n", "sample_test.go:12: a fault\n", "FAIL", false},
		{"is not built", "var x int = \"\"\n", "sample_test.go:12:13: cannot use", "FAIL", false},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"go.mod": "module sample\n", "sample_test.go": sample + row.more} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("go", "test", "-json", "-count=1", "./...")
		cmd.Dir = dir
		events, _ := cmd.Output() // it fails if a test fails
		var out strings.Builder
		s := &summary{out: &out, logs: make(map[string][]string), skipped: make(map[string][]string), running: make(map[string]bool)}
		if err := s.read(strings.NewReader(string(events))); err != nil {
			t.Fatal(err)
		}
		s.end()
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if !strings.Contains(out.String(), row.want) || !strings.HasPrefix(lines[len(lines)-1], row.last) {
			t.Errorf("%s: the output lacks %q, or does not end with %q:\n%s", row.name, row.want, row.last, &out)
		}
		if passes := !s.failed && s.packages == 1; passes != row.passes {
			t.Errorf("%s: passes is %v, want %v", row.name, passes, row.passes)
		}
		if strings.Contains(out.String(), "main_test.go: passes") || strings.Count(out.String(), "skipped: ") > 1 {
			t.Errorf("%s: %s", row.name, &out)
		}
	}
}

// A go test that was killed is a failure, although all tests that have ended have passed.
func TestKilled(t *testing.T) {
	const events = `{"Action":"start","Package":"a"}
{"Action":"start","Package":"b"}
{"Action":"pass","Package":"a"}
`
	var out strings.Builder
	s := &summary{out: &out, running: make(map[string]bool)}
	if err := s.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	s.end()
	if want := "FAIL\tb [not ended]\nFAIL\n"; !s.failed || out.String() != want {
		t.Errorf("failed is %v, and the output is %q, want %q", s.failed, &out, want)
	}
}
