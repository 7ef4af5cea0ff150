package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// check may ask about a private host, but a redirect of another site's robots.txt may not lead to one.
func TestCheckIsFreeForTheTypedHost(t *testing.T) {
	site := robotstest.New(t)
	other := fmt.Sprintf("http://b.example:%d/robots.txt", site.Port())
	site.SetRobots("a.example", robotstest.Robots{Redirect: "/moved"})
	site.SetPage("a.example", "/moved", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, disallowsPrivate) })
	site.SetRobots("b.example", robotstest.Robots{Body: disallowsPrivate})
	site.SetRobots("c.example", robotstest.Robots{Redirect: other})
	config := filepath.Join(t.TempDir(), "config.yaml")
	text := fmt.Sprintf("egress:\n  ports: [1-65535]\n  resolve: {a.example: 127.0.0.1, b.example: 127.0.0.1, c.example: 127.0.0.1}\n  ca_file: %s\n", site.CAFile())
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		hosts  []string
		status int
		want   string
	}{
		{"itself, and on to itself", []string{"a.example"}, 1, "refused "},
		{"on to another", []string{"c.example"}, 4, "unknown "},
		{"on to another that was typed too", []string{"b.example", "c.example"}, 1, "refused "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := []string{"check", "--config", config}
			for _, host := range tt.hosts {
				args = append(args, fmt.Sprintf("http://%s:%d/private", host, site.Port()))
			}
			site.Reset()
			var out, talk bytes.Buffer
			status := run(args, stdio{strings.NewReader(""), &out, &talk})
			if status != tt.status || !strings.Contains(out.String(), tt.want) {
				t.Errorf("exit status %d, want %d with %q: %s%s", status, tt.status, tt.want, out.String(), talk.String())
			}
			if asked := len(site.Paths("b.example")); tt.status == 4 && asked != 0 {
				t.Errorf("the private host was asked %d times", asked)
			}
		})
	}
}
