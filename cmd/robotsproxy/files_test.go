package main

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
	"github.com/robotsproxy/robotsproxy/store"
)

// The log of a change names the site, in text and in JSON, and the reason if there is one.
func TestLogOfAChange(t *testing.T) {
	o, err := origin.Parse("https://a.example:8443")
	if err != nil {
		t.Fatal(err)
	}
	for format, want := range map[config.LogFormat]string{config.LogText: "origin=https://a.example:8443", config.LogJSON: `"origin":"https://a.example:8443"`} {
		var log lockedBuffer
		newChangeReports(newLog(&log, config.Log{Format: format})).add(robots.Change{Origin: o, OldState: "found", NewState: "stale"})
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s: the log lacks %s: %s", format, want, log.String())
		}
		if strings.Contains(log.String(), "why") {
			t.Errorf("%s: the log has a reason where there is none: %s", format, log.String())
		}
		newChangeReports(newLog(&log, config.Log{Format: format})).add(robots.Change{Origin: o, Why: "it answers 403"})
		if !strings.Contains(log.String(), "it answers 403") {
			t.Errorf("%s: the log does not say why: %s", format, log.String())
		}
	}
}

// If the cache cannot be created, newFiles returns nil and an error.
func TestNoFilesWithoutACache(t *testing.T) {
	noOption := func(*fetch.Options, *robots.CacheOptions) {}
	f, err := newFiles(&config.Config{Robots: config.Robots{TTL: 48 * time.Hour}}, nil, nil, nil, nil, nil, noOption)
	if f != nil || err == nil {
		t.Errorf("newFiles with a TTL of two days = %v, %v, want an error alone", f, err)
	}
}

// A disk that always fails is logged once per minute, with a message that fits reads and writes.
func TestLogOfAStoreThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lockedBuffer
		failed := storeFailed(newLog(&log, config.Log{Format: config.LogText}))
		for range 100 {
			failed(errors.New("loading the snapshot of http://a.example"))
			time.Sleep(time.Second)
		}
		if got := strings.Count(log.String(), "loading the snapshot of http://a.example"); got != 2 {
			t.Errorf("100 faults in 100 s are logged %d times, want 2: %s", got, log.String())
		}
	})
}

// Files that could not be written to state.db are listed with those in it, once, and within the limit.
func TestHistoryListsWhatIsUnsaved(t *testing.T) {
	state, err := store.Open(store.Options{Path: filepath.Join(t.TempDir(), "state.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	var all []origin.Origin
	for _, name := range []string{"http://a.example", "http://a.example:8080", "https://b.example"} {
		o, err := origin.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	kept, lost, other := all[0], all[1], all[2]
	now := time.Now()
	if err := state.Save(t.Context(), &robots.Snapshot{Answer: robots.Answer{Origin: kept, Availability: robots.Unavailable, Status: 404, Fetched: now, Expires: now}}, nil); err != nil {
		t.Fatal(err)
	}
	h := history{state, func() []origin.Origin { return []origin.Origin{other, lost, kept} }}
	for _, row := range []struct {
		host  string
		limit int
		want  []origin.Origin
	}{
		{"", 9, all},
		{"", 2, []origin.Origin{kept, lost}},
		{"a.example", 9, []origin.Origin{kept, lost}},
		{"c.example", 9, nil},
	} {
		got, err := h.Origins(t.Context(), row.host, row.limit)
		if err != nil || !slices.Equal(got, row.want) {
			t.Errorf("Origins(%q, %d) = %v, %v, want %v", row.host, row.limit, got, err, row.want)
		}
	}
}
