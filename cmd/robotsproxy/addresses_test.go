package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// TestSpellingsOfAnAddress checks that an IPv4 address, its IPv4-mapped form and its NAT64 form share what the
// configuration says of that address, and its lane.
func TestSpellingsOfAnAddress(t *testing.T) {
	site := robotstest.New(t)
	s := startSite(t, site, `
  resolve: {"64:ff9b::7f00:1": 127.0.0.1}
clients:
  - {name: mapped, cidr: ["::ffff:127.0.0.1/128"], product_token: LabBot}
hosts:
  - {host: "::ffff:127.0.0.1", delay: 300ms}
exemptions:
  - {host: 127.0.0.1, path: /private/, effect: deny, reason: contract, owner: ops}
  - {host: "::ffff:127.0.0.2", path: /private/, effect: deny, reason: contract, owner: ops}
  - {host: "64:ff9b::7f00:1", path: /nat64/, effect: deny, reason: contract, owner: ops}
`)
	spellings := []struct{ written, sent string }{
		{"127.0.0.1", "127.0.0.1"},
		{"127.0.0.1.", "127.0.0.1"},
		{"[::ffff:127.0.0.1]", "127.0.0.1"},
		{"[::FFFF:7f00:0001]", "127.0.0.1"},
		{"[64:ff9b::7f00:1]", "64:ff9b::7f00:1"},
		{"[64:ff9b::127.0.0.1]", "64:ff9b::7f00:1"},
	}
	for _, sp := range spellings {
		for _, path := range []string{"/private/x", "/nat64/x"} {
			answer := s.exchange(t, fmt.Sprintf("GET http://%s:%d%s HTTP/1.1\r\nHost: x\r\n\r\n", sp.written, site.Port(), path), "")
			if got := statuses(answer); got != "403" || !strings.Contains(answer, "Robotsproxy-Reason: exemption") {
				t.Errorf("%s%s: %s, want 403 by the exemption:\n%s", sp.written, path, got, answer)
			}
		}
	}
	if answer := s.exchange(t, fmt.Sprintf("GET http://127.0.0.2:%d/private/x HTTP/1.1\r\nHost: x\r\n\r\n", site.Port()), ""); statuses(answer) != "403" {
		t.Errorf("127.0.0.2: %s", answer)
	}
	for _, sp := range spellings {
		answer := s.exchange(t, fmt.Sprintf("GET http://%s:%d/page/1 HTTP/1.1\r\nHost: x\r\n\r\n", sp.written, site.Port()), "")
		if got := statuses(answer); got != "200" {
			t.Errorf("%s/page/1: %s, want 200:\n%s", sp.written, got, answer)
		}
		requests := site.Requests()
		if host := requests[len(requests)-1].Host; !strings.HasPrefix(strings.Trim(host, "[]"), sp.sent) {
			t.Errorf("%s: the site was asked for %s, want %s", sp.written, host, sp.sent)
		}
	}
	for i, rec := range s.records(t) {
		if rec.Client != "mapped" {
			t.Errorf("record %d is of the client %q, want mapped", i, rec.Client)
		}
		if rec.Path == "/page/1" && (rec.DelaySource != "floor" || rec.Gap == 0 && i > 2*len(spellings)+1) {
			t.Errorf("record %d: delay by %q, gap %v of %s, want a floor and a gap in the lane of 127.0.0.1", i, rec.DelaySource, rec.Gap, rec.Host)
		}
	}
}

// startSite starts the program in front of a site at 127.0.0.1. The configuration begins with the members of egress.
func startSite(t *testing.T, site *robotstest.Site, more string) *server {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	text := "egress:\n  allow_addresses: [127.0.0.0/8]\n  ca_file: " + site.CAFile() + more
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := startServer(filepath.Join(dir, "data"), os.Environ(), "--config", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stop() })
	return s
}

// records stops the program and returns its records of clients' requests.
func (s *server) records(t *testing.T) []audit.Record {
	t.Helper()
	return slices.DeleteFunc(s.allRecords(t), func(rec audit.Record) bool { return rec.Via == audit.Robots })
}

// allRecords is records with those of the proxy's requests for robots.txt.
func (s *server) allRecords(t *testing.T) []audit.Record {
	t.Helper()
	if err := s.stop(); err != nil {
		t.Fatalf("the proxy ended with %v:\n%s", err, s.log)
	}
	data, err := os.ReadFile(filepath.Join(s.dir, "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var all []audit.Record
	for line := range strings.Lines(string(data)) {
		var rec audit.Record
		if err := json.Unmarshal([]byte(line), &rec); err != nil {
			t.Fatal(err)
		}
		all = append(all, rec)
	}
	return all
}

// ofClients returns the records of clients' requests.
func ofClients(records []audit.Record) []audit.Record {
	return slices.DeleteFunc(records, func(rec audit.Record) bool { return rec.Via == audit.Robots })
}
