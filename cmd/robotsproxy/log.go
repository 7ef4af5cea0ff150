package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

// newLog returns the program's log. In the format auto it is text on a terminal, coloured unless NO_COLOR is set, and
// JSON elsewhere.
func newLog(w io.Writer, cfg config.Log) *slog.Logger { return newLogThrough(w, w, cfg) }

// newLogThrough is newLog for a w that passes on to another writer, which may be a terminal.
func newLogThrough(w, to io.Writer, cfg config.Log) *slog.Logger {
	if logsText(to, cfg) {
		return newTextLog(w, cfg.Level, hasColour(to))
	}
	o := &slog.HandlerOptions{Level: cfg.Level, ReplaceAttr: readable}
	return slog.New(slog.NewJSONHandler(safetext.JSONWriter(w), o))
}

// leveled is a slog.Handler whose level can change. The level of the Handler in it must be lower.
type leveled struct {
	slog.Handler
	level *slog.LevelVar
}

func (h leveled) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= h.level.Level() && h.Handler.Enabled(ctx, l)
}

func (h leveled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return leveled{h.Handler.WithAttrs(attrs), h.level}
}

func (h leveled) WithGroup(name string) slog.Handler {
	return leveled{h.Handler.WithGroup(name), h.level}
}

// newLeveledLog is newLogThrough with a level that can change. It sets the level to that of cfg.
func newLeveledLog(w, to io.Writer, cfg config.Log, level *slog.LevelVar) *slog.Logger {
	level.Set(cfg.Level)
	cfg.Level = slog.LevelDebug
	return slog.New(leveled{newLogThrough(w, to, cfg).Handler(), level})
}

// heldWriter holds what is written until release, so that the banner is the first text of serve.
type heldWriter struct {
	to io.Writer

	mu       sync.Mutex // guards the fields below, and writes
	held     bytes.Buffer
	released bool
}

func (w *heldWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.released {
		return w.to.Write(p)
	}
	return w.held.Write(p)
}

// release writes first and the held text in one write, and lets later writes pass.
func (w *heldWriter) release(first string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.released = true
	_, _ = io.WriteString(w.to, first+w.held.String()) // as for every message, an error cannot be reported
	w.held.Reset()
}

// logsText reports whether the log in w is text, and not JSON.
func logsText(w io.Writer, cfg config.Log) bool {
	return cfg.Format == config.LogText || cfg.Format == config.LogAuto && isTerminal(w)
}

// hasColour reports whether text in w has colours.
func hasColour(w io.Writer) bool { return isTerminal(w) && os.Getenv("NO_COLOR") == "" }

func newTextLog(w io.Writer, level slog.Level, colour bool) *slog.Logger {
	o := &tint.Options{Level: level, NoColor: !colour, TimeFormat: "15:04:05", ReplaceAttr: safe}
	return slog.New(tint.NewTextHandler(w, o))
}

// readable formats a duration as 1m30s. The JSON handler of slog writes it as a number of nanoseconds.
func readable(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// safe escapes a value of the text log. tint writes ESC unchanged, for programs that colour their values.
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
	return ok && term.IsTerminal(int(f.Fd()))
}
