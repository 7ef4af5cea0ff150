package main

import (
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/admin"
)

// Failures are counted for a site that failed, and not for one that is paused.
func TestTroubleText(t *testing.T) {
	since := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for failures, want := range map[int]string{
		0: "destination_unavailable since 2026-11-01T00:00:00Z: why\n",
		3: "destination_unavailable since 2026-11-01T00:00:00Z, 3 in a row: why\n",
	} {
		var text strings.Builder
		f := admin.File{State: "stale", Fetched: since, Expires: &since, Cause: "destination_unavailable", Since: &since, Failures: failures, Error: "why"}
		if err := showDetails(&text, admin.FileDetails{File: f}, since); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text.String(), want) {
			t.Errorf("%d failures are shown as\n%s\nwant %s", failures, &text, want)
		}
	}
}

// Without a response no status is shown.
func TestSourceText(t *testing.T) {
	at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	next := at.Add(time.Minute)
	for status, want := range map[int]string{
		0:   "  http://a.example/robots.txt: unreachable, fetched 5s ago, asked for again in 55s\n",
		503: "  http://a.example/robots.txt: unreachable, status 503, fetched 5s ago, asked for again in 55s\n",
	} {
		a := answer{RobotsURL: "http://a.example/robots.txt", RobotsState: "unreachable", RobotsStatus: status, RobotsFetchedAt: &at, NextRefresh: &next}
		if got := a.source(at.Add(5 * time.Second)); got != want {
			t.Errorf("status %d: %q, want %q", status, got, want)
		}
	}
}
