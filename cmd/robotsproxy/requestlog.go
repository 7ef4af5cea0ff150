package main

import (
	"io"
	"log/slog"
	"os"

	"golang.org/x/term"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/requestlog"
)

// newRequestLog returns the log of requests. It writes columns to w if log writes text there, and else lines of log.
func newRequestLog(
	w io.Writer, cfg config.Log, log *slog.Logger, paused func(host string) requestlog.Pause,
) *requestlog.Log {
	o := requestlog.Options{Logger: log, Mode: requestMode(cfg.Requests), Paused: paused}
	if logsText(w, cfg) {
		o.Text, o.Colour, o.Width = w, hasColour(w), func() int { return columns(w) }
	}
	return requestlog.New(o)
}

func requestMode(m config.LogRequests) requestlog.Mode {
	switch m {
	case config.LogRefused:
		return requestlog.Refused
	case config.LogAll:
		return requestlog.All
	}
	return requestlog.Off
}

// columns returns the width of the terminal w, and 0 if it is unknown or w is not a terminal.
func columns(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}
