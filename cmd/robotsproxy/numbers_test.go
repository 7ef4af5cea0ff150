package main

import (
	"bufio"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/redistest"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// numbersIn returns the numbers of instances in the ids of the records in dir, with the number of records of each.
func numbersIn(t *testing.T, dir string) map[int]int {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	counts, seen := make(map[int]int), make(map[audit.ID]bool)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var rec struct{ ID audit.ID }
		if err := json.Unmarshal(lines.Bytes(), &rec); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		if seen[rec.ID] {
			t.Errorf("two records have the id %v", rec.ID)
		}
		seen[rec.ID] = true
		counts[int(rec.ID%audit.Instances)]++
	}
	return counts
}

// visited requests a page through s and waits until its record is written.
func (f *fleet) visited(i int, target string) {
	f.t.Helper()
	f.get(f.through(i), "b.example", target)
	settle(f.t, target+" is recorded", func() bool {
		text, err := os.ReadFile(filepath.Join(f.instances[i].dir, "audit.jsonl"))
		return err == nil && strings.Contains(string(text), `"`+target+`"`)
	})
}

// Instances that share a Redis have different numbers in the ids of their records.
func TestInstancesHaveNumbers(t *testing.T) {
	f := newFleet(t, 4, redisConfig(redistest.Start(t), "spread"))
	all := make(map[int]int)
	for i, s := range f.instances {
		f.visited(i, "/page/1")
		for n := range numbersIn(t, s.dir) {
			all[n]++
		}
	}
	if len(all) != len(f.instances) {
		t.Errorf("%d instances have the numbers %v", len(f.instances), all)
	}
}

// So have two that share a data directory. A configured number takes precedence.
func TestProcessesOfOneDataDirHaveNumbers(t *testing.T) {
	f := &fleet{t: t, site: robotstest.New(t)}
	dir := filepath.Join(t.TempDir(), "data")
	for i, more := range []string{"", "", "audit: {instance: 1023}\n"} {
		config := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(config, []byte(siteConfig(f.site)+more), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := startServer(dir, os.Environ(), "--config", config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = s.cmd.Process.Kill()
			_ = s.cmd.Wait()
		})
		f.instances = append(f.instances, s)
		f.visited(i, []string{"/page/1", "/page/2", "/page/3"}[i])
	}
	want := map[int]bool{0: true, 1: true, 1023: true}
	got := make(map[int]bool)
	for n := range numbersIn(t, dir) {
		got[n] = true
	}
	if !maps.Equal(got, want) {
		t.Errorf("the numbers are %v, want %v", got, want)
	}
}
