package main

import (
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
)

// What the log says of a change names the site, for people and for programs.
func TestLogOfAChange(t *testing.T) {
	o, err := origin.Parse("https://a.example:8443")
	if err != nil {
		t.Fatal(err)
	}
	for format, want := range map[config.LogFormat]string{config.LogText: "origin=https://a.example:8443", config.LogJSON: `"origin":"https://a.example:8443"`} {
		var log lockedBuffer
		logChange(newLog(&log, config.Log{Format: format}), robots.Change{Origin: o, OldState: "found", NewState: "stale"})
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s: the log lacks %s: %s", format, want, log.String())
		}
	}
}

// A cache that cannot be made leaves nothing that looks like one.
func TestNoFilesWithoutACache(t *testing.T) {
	f, err := newFiles(&config.Config{Robots: config.Robots{TTL: 48 * time.Hour}}, nil, nil, nil, nil)
	if f != nil || err == nil {
		t.Errorf("newFiles with a TTL of two days = %v, %v, want an error alone", f, err)
	}
}
