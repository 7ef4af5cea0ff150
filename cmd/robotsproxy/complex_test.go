package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// complexRobots is a file of 351 KB in which the verdict on a long path is given up.
var complexRobots = "User-agent: *\nDisallow: /private\n" + strings.Repeat("Allow: /*!\n", 31_936)

// check and check --batch refuse a path with a verdict that takes too many steps, with the reason in every format.
func TestCheckTooComplex(t *testing.T) {
	file := filepath.Join(t.TempDir(), "robots.txt")
	if err := os.WriteFile(file, []byte(complexRobots), 0o600); err != nil {
		t.Fatal(err)
	}
	long := "/" + strings.Repeat("a", 60<<10)
	question, err := json.Marshal(map[string]string{"robots": complexRobots, "ua": "a", "url": long})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		args  []string
		stdin string
		want  []string
		code  int
	}{
		{[]string{"check", "--robots", file, "/a"}, "", []string{"allowed  /a  no rule matches"}, 0},
		{[]string{"check", "--robots", file, long}, "", []string{"refused  /aaa", "too complex: it takes too many steps"}, 1},
		{[]string{"check", "--robots", file, "--explain", long}, "", []string{"refused", "why: the verdict takes too many steps, and was given up"}, 1},
		{[]string{"check", "--robots", file, "--explain", strings.Repeat("/.", 2000)}, "", []string{"refused", "why: the verdict takes too many steps, and was given up"}, 1},
		{[]string{"check", "--robots", file, "--format", "json", long}, "", []string{`"allowed":false`, `"too_complex":true`}, 1},
		{[]string{"check", "--batch"}, string(question), []string{`{"allowed":false,"line":0,"rule":"","crawl_delay":null,"sitemaps":[],"too_complex":true}`}, 0},
		{[]string{"lint", file}, "", []string{"[too-complex]"}, 0},
	} {
		cmd := exec.Command(binaryPath, row.args...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		cmd.Stdin = strings.NewReader(row.stdin)
		var out, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &stderr
		if err := cmd.Run(); cmd.ProcessState.ExitCode() != row.code {
			t.Errorf("%.80q: %v, want the status %d: %s", row.args, err, row.code, &stderr)
		}
		for _, want := range row.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%.80q: the output does not have %q: %.300s", row.args, want, out.String())
			}
		}
	}
}
