package main

import (
	"io"
	"log/slog"
	"os"

	"github.com/lmittmann/tint"

	"github.com/robotsproxy/robotsproxy/config"
)

// newLog returns the program's own log: coloured on a terminal, JSON where a program reads it, unless the operator says.
func newLog(w io.Writer, cfg config.Log) *slog.Logger {
	switch {
	case cfg.Format == config.LogText, cfg.Format == config.LogAuto && isTerminal(w):
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: cfg.Level, NoColor: !isTerminal(w) || os.Getenv("NO_COLOR") != "", TimeFormat: "15:04:05"}))
	default:
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: cfg.Level, ReplaceAttr: readable}))
	}
}

// readable writes a duration as 1m30s, which slog would write as a number of nanoseconds.
func readable(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
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
