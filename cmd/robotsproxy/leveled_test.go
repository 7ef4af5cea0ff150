package main

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/config"
)

// The level of a log can change, also for what was made from it before.
func TestLeveledLog(t *testing.T) {
	var b strings.Builder
	var level slog.LevelVar
	log := newLeveledLog(&b, &b, config.Log{Format: config.LogJSON, Level: slog.LevelInfo}, &level)
	made := log.With("a", 1).WithGroup("g")
	made.Debug("one")
	level.Set(slog.LevelDebug)
	made.Debug("two")
	level.Set(slog.LevelError)
	made.Warn("three")
	log.Error("four")
	if got := b.String(); strings.Contains(got, "one") || !strings.Contains(got, "two") || strings.Contains(got, "three") || !strings.Contains(got, "four") {
		t.Errorf("the log is\n%s", got)
	}
}
