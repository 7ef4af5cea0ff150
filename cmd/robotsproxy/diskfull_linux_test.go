//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
	"github.com/robotsproxy/robotsproxy/policy"
)

// A disk that is full refuses requests beyond the buffer, or lets them go on, as configured. When it has room again,
// requests go on without a restart, and each that was sent or refused with a reason of its own is recorded.
func TestDiskFull(t *testing.T) {
	long(t)
	for _, tt := range []struct {
		durability, onFailure string
		loses                 bool
	}{
		{"grouped", "refuse", false},
		{"strict", "refuse", false},
		{"grouped", "continue", true},
	} {
		t.Run(tt.durability+" "+tt.onFailure, func(t *testing.T) {
			d := newFullDisk(t, fmt.Sprintf("audit: {durability: %s, on_failure: %s, buffer: 5}\n", tt.durability, tt.onFailure))
			d.get("before", 200)
			d.fill()
			if tt.loses {
				d.loseSome()
			} else {
				d.awaitRefusal()
			}
			d.free()
			settle(t, "answered", func() bool { status, _ := d.ask("after"); return status == 200 })
			settle(t, "written", func() bool { return metric(t, d.server, "robotsproxy_audit_waiting") == 0 })
			d.lost = metric(t, d.server, "robotsproxy_audit_lost_total")
			if status, _ := d.server.command(t, "status"); strings.Contains(status, "refused because they could not be recorded") == tt.loses {
				t.Errorf("status:\n%s", status)
			}
			if (d.lost > 0) != tt.loses {
				t.Errorf("%d records are lost", d.lost)
			}
			if err := d.server.stop(); err != nil {
				t.Errorf("stop: %v\n%s", err, d.server.log)
			}
			d.check()
		})
	}
}

// fullDisk is a program whose data folder is a small file system of its own.
type fullDisk struct {
	t      *testing.T
	site   *robotstest.Site
	dir    string
	server *server
	client *http.Client
	lost   int
}

func newFullDisk(t *testing.T, config string) *fullDisk {
	d := &fullDisk{t: t, site: robotstest.New(t), dir: filepath.Join(t.TempDir(), "data")}
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", d.dir, "tmpfs", 0, "size=16m,mode=0700"); err != nil {
		t.Skip("mounting a small file system: " + err.Error())
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(d.dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	var err error
	path := writeFile(t, t.TempDir(), "config.yaml", siteConfig(d.site)+config)
	if d.server, err = startServer(d.dir, append(os.Environ(), "HOME="+t.TempDir()), "--config", path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.server.cmd.Process.Kill(); d.server.cmd.Wait() })
	d.client = &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: d.server.proxy})}}
	t.Cleanup(d.client.CloseIdleConnections)
	return d
}

func (d *fullDisk) ask(query string) (status int, reason string) {
	d.t.Helper()
	resp, err := d.client.Get(fmt.Sprintf("http://a.example:%d/page/1?n=%s", d.site.Port(), query))
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header.Get("Robotsproxy-Reason")
}

func (d *fullDisk) get(query string, want int) {
	d.t.Helper()
	if status, reason := d.ask(query); status != want {
		d.t.Errorf("%s: status %d (%s), want %d", query, status, reason, want)
	}
}

// fill leaves no room for the records.
func (d *fullDisk) fill() {
	d.t.Helper()
	settle(d.t, "the records before", func() bool { return metric(d.t, d.server, "robotsproxy_audit_waiting") == 0 })
	f, err := os.Create(filepath.Join(d.dir, "filler"))
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 1<<20); len(block) > 0; {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			block = block[:len(block)/2]
		} else if err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d *fullDisk) free() {
	d.t.Helper()
	if err := os.Remove(filepath.Join(d.dir, "filler")); err != nil {
		d.t.Fatal(err)
	}
}

// awaitRefusal sends requests until no more records may wait. The database and its log have some room left.
func (d *fullDisk) awaitRefusal() {
	d.t.Helper()
	for i := range 50_000 {
		switch status, reason := d.ask(fmt.Sprintf("full-%d", i)); {
		case status == 200:
			continue
		case status != 503 || reason != string(policy.ReasonAuditUnavailable):
			d.t.Fatalf("request %d: status %d, reason %q", i, status, reason)
		}
		for range 5 {
			d.get("refused", 503)
		}
		return
	}
	d.t.Fatal("no request is refused on a full disk")
}

// loseSome sends requests until some of them are not recorded.
func (d *fullDisk) loseSome() {
	d.t.Helper()
	for i := range 50_000 {
		d.get(fmt.Sprintf("full-%d", i), 200)
		if i%100 == 0 && metric(d.t, d.server, "robotsproxy_audit_lost_total") > 0 {
			return
		}
	}
	d.t.Fatal("no record is lost on a full disk")
}

// check compares what the site got with the records in the database and in the lines.
func (d *fullDisk) check() {
	d.t.Helper()
	recorded := make(map[string]bool)
	for _, r := range storedRecords(d.t, d.dir) {
		recorded[r.Query] = r.Decision == policy.Allow
	}
	missing, sent := 0, 0
	for _, r := range d.site.Requests() {
		_, query, ok := strings.Cut(r.Target, "?")
		if !ok {
			continue
		}
		sent++
		if !recorded[query] {
			missing++
		}
	}
	if missing != d.lost {
		d.t.Errorf("%d of %d requests that were sent are not recorded, want %d", missing, sent, d.lost)
	}
	lines, err := os.ReadFile(filepath.Join(d.dir, "audit.jsonl"))
	if n := strings.Count(string(clientRecords(lines)), `"decision":"allow"`); err != nil || n != sent-d.lost {
		d.t.Errorf("%d lines of %d requests, %v", n, sent, err)
	}
	if n := strings.Count(d.server.log.String(), "requests were refused because they could not be recorded"); n > 0 != (d.lost == 0) {
		d.t.Errorf("the log counts refused requests %d times:\n%s", n, d.server.log)
	}
	for _, text := range []string{"records cannot be written", "records are written again"} {
		if n := strings.Count(d.server.log.String(), text); n < 1 || n > 2 {
			d.t.Errorf("the log says %d times that %s:\n%s", n, text, d.server.log)
		}
	}
}
