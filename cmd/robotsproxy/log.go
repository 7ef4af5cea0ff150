package main

import (
	"io"
	"log/slog"
	"os"

	"github.com/lmittmann/tint"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

// newLog returns the program's own log: coloured on a terminal, JSON where a program reads it, unless the operator
// says.
func newLog(w io.Writer, cfg config.Log) *slog.Logger {
	switch {
	case cfg.Format == config.LogText, cfg.Format == config.LogAuto && isTerminal(w):
		return newTextLog(w, cfg.Level, isTerminal(w) && os.Getenv("NO_COLOR") == "")
	default:
		return slog.New(slog.NewJSONHandler(safetext.JSONWriter(w), &slog.HandlerOptions{Level: cfg.Level, ReplaceAttr: readable}))
	}
}

func newTextLog(w io.Writer, level slog.Level, colour bool) *slog.Logger {
	return slog.New(tint.NewTextHandler(w, &tint.Options{Level: level, NoColor: !colour, TimeFormat: "15:04:05", ReplaceAttr: safe}))
}

// readable writes a duration as 1m30s, which slog would write as a number of nanoseconds.
func readable(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// safe makes a value of the log for people safe to show: tint itself lets ESC pass, for programs that colour their
// values.
func safe(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
		return a
	}
	switch a.Value.Kind() {
	case slog.KindString, slog.KindAny:
		a.Value = slog.StringValue(safetext.Lines(a.Value.String()))
	}
	return a
}

// isTerminal reports whether a reader or writer is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
