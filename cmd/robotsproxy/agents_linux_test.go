package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Tools in the network of deploy/agents reach the site through the proxy only, so they obey its robots.txt, and the
// records show what they tried.
func TestAgents(t *testing.T) {
	long(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can connect two network namespaces")
	}
	for _, name := range []string{"bash", "unshare", "nsenter", "setpriv", "ip", "curl", "wget", "python3"} {
		program(name)(t)
	}
	if err := exec.Command("unshare", "-n", "true").Run(); err != nil {
		t.Skip("this system has no network namespaces for tests: ", err)
	}
	script, err := filepath.Abs("testdata/agents.sh")
	if err != nil {
		t.Fatal(err)
	}
	deploy, err := filepath.Abs("../../deploy")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "agents") // that of t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var said strings.Builder
	cmd := exec.CommandContext(ctx, "unshare", "-n", "bash", script, deploy)
	cmd.Dir, cmd.Stderr = dir, &said
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 77 {
		t.Skip("this system lacks a part of the kernel: ", &said)
	}
	const want = `page
page
page
curl: 403
wget: 8
python: 1
past the proxy: 7
records: 401
"GET /robots.txt HTTP/1.1"
"GET /page.html HTTP/1.1"
"GET /page.html HTTP/1.1"
"GET /page.html HTTP/1.1"
`
	if err != nil || string(out) != want {
		t.Errorf("tools in the network of deploy/agents: %v\n%s\nwant\n%s\n%s", err, out, want, &said)
	}
	list, err := exec.Command(binaryPath, "audit", "list", "--data-dir", filepath.Join(dir, "data"), "--decision", "deny", "--format", "jsonl").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, agent := range []string{"AgentCurl", "AgentWget", "Python-urllib"} {
		if strings.Count(string(list), `"agent":"`+agent+`"`) != 1 {
			t.Errorf("the records do not have one refused request of %s:\n%s", agent, list)
		}
	}
}
