package main

import (
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/config"
)

// TestColouredLogIsSafe checks that the only terminal escapes are those of colours.
func TestColouredLogIsSafe(t *testing.T) {
	var b strings.Builder
	log := newTextLog(&b, slog.LevelInfo, true)
	log.With("rule", hostileTexts[0]).Error("seen", "err", errors.New(hostileTexts[0]))
	if shown := regexp.MustCompile(`\x1b\[\d*m`).ReplaceAllString(b.String(), ""); unsafe(shown) != "" || shown == b.String() || strings.Contains(b.String(), "\x1b[31m\x1b]") {
		t.Errorf("the log shows %s:\n%q", unsafe(shown), b.String())
	}
}

// TestLogIsSafe checks that text from sites cannot act on a terminal.
func TestLogIsSafe(t *testing.T) {
	for _, format := range []config.LogFormat{config.LogText, config.LogJSON} {
		for _, text := range hostileTexts {
			var b strings.Builder
			log := newLog(&b, config.Log{Format: format, Level: slog.LevelInfo})
			log.With("rule", text).Info("seen", "err", errors.New(text), "any", struct{ S string }{text}, slog.Group("g", "s", text))
			if bad := unsafe(b.String()); bad != "" || strings.Count(b.String(), "\n") != 1 || !strings.Contains(b.String(), "seen") {
				t.Errorf("the log in %s shows %s:\n%q", format, bad, b.String())
			}
		}
	}
}
