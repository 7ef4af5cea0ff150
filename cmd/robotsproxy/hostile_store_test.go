//go:build linux

package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// If a client requests many large files, state.db stays within store.max_size and keeps the files of another client:
// they are not fetched again after a restart.
func TestHostileFiles(t *testing.T) {
	const hosts, maxSize = 120, 10 << 20
	site := robotstest.New(t)
	var files atomic.Int64
	var names []string
	for i := range hosts {
		names = append(names, fmt.Sprintf("large-%d.example", i))
		site.SetRobots(names[i], robotstest.Robots{Handler: func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, "# %d\n%s", files.Add(1), strings.Repeat("#", 500_000))
		}})
	}
	s := newScene(t, site, fmt.Sprintf("store: {max_size: %dMiB}\n", maxSize>>20), append(newHosts(), names...)...)
	size := func() (bytes int64) {
		for _, name := range []string{"state.db", "state.db-wal"} {
			info, err := os.Stat(filepath.Join(s.server.dir, name))
			if err != nil {
				t.Fatal(err)
			}
			bytes += info.Size()
		}
		return bytes
	}
	visit := s.firstVisits(site)
	for i := range visits {
		if err := visit(i); err != nil {
			t.Fatal(err)
		}
	}
	one := &http.Client{Transport: s.transport("one")}
	for _, name := range names {
		if err := get(one, fmt.Sprintf("http://%s:%d/page/1", name, site.Port())); err != nil {
			t.Fatal(err)
		}
		if got := size(); got > maxSize+1<<20 {
			t.Fatalf("state.db and its log take %d bytes, want %d and a file at most", got, maxSize)
		}
	}
	t.Logf("state.db and its log take %d KiB of %d", size()>>10, maxSize>>10)
	if got := s.metric("robotsproxy_store_bytes"); int64(got) != size() {
		t.Errorf("robotsproxy_store_bytes is %d, want %d", got, size())
	}
	s.restart()
	site.Reset()
	visit = s.firstVisits(site)
	for i := range visits {
		if err := visit(i); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("new-%d.example", i)
		if paths := site.Paths(name); slices.Contains(paths, "/robots.txt") {
			t.Errorf("%s was asked for %v after the restart, want no robots.txt", name, paths)
		}
	}
}

// restart ends the program and starts it again with the same data.
func (s *scene) restart() {
	s.t.Helper()
	if err := s.server.stop(); err != nil {
		s.t.Fatal(err)
	}
	config := s.server.cmd.Args[slices.Index(s.server.cmd.Args, "--config")+1]
	server, err := startServer(s.server.dir, s.server.cmd.Env, "--config", config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.server = server
	s.t.Cleanup(func() {
		server.cmd.Process.Kill()
		server.cmd.Wait()
	})
}
