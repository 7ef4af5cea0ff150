package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

// This file has the text output of the command cache.

func showFiles(w io.Writer, files []admin.File, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ORIGIN\tSTATE\tSTATUS\tAGE\tREFRESH\tSIZE\tSHA-256")
	for _, f := range files {
		if isMissing(f) {
			fmt.Fprintf(t, "%s\t%s\t-\t-\t-\t-\t-\n", f.Origin, f.State)
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", f.Origin, stateText(f.State, f.Flags), statusText(f.Status),
			since(f.Fetched, now), refreshText(f, now), f.Size, shortHash(f.SHA256))
	}
	return t.Flush()
}

// isMissing reports whether f was never fetched, not even with a failure.
func isMissing(f admin.File) bool { return f.Fetched.IsZero() }

func hasError(f admin.File) bool { return f.Error != "" }

// showErrors writes the errors of the files that report selects.
func showErrors(w io.Writer, files []admin.File, report func(admin.File) bool) {
	for _, f := range files {
		if report(f) {
			fmt.Fprintf(w, "robotsproxy: %s: %s\n", f.Origin, safetext.Text(f.Error))
		}
	}
}

func showBody(w io.Writer, files []admin.FileDetails) error {
	if len(files) != 1 {
		return usage(fmt.Errorf("--body shows one file, and %d origins of this host are kept: name one, such as %s",
			len(files), files[0].Origin))
	}
	_, err := w.Write(files[0].Body)
	return err
}

func showDetails(w io.Writer, f admin.FileDetails, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(t, "  %s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(t, "%s/robots.txt\n", f.Origin)
	line("state", "%s", stateText(f.State, f.Flags))
	if f.Status != 0 {
		line("status", "%d", f.Status)
	}
	for i, u := range f.Redirects {
		line("redirect", "%d. %s", i+1, safetext.Text(u))
	}
	line("fetched", "%s (%s ago)", f.Fetched.Format(time.RFC3339), since(f.Fetched, now))
	if f.Expires != nil {
		line("expires", "%s", f.Expires.Format(time.RFC3339))
	}
	line("next refresh", "%s", refreshText(f.File, now))
	if f.Cause != "" {
		line("trouble", "%s since %s%s: %s", f.Cause,
			f.Since.Format(time.RFC3339), inARow(f.Failures), safetext.Text(f.Error))
	}
	if f.SHA256 != "" {
		line("SHA-256", "%s", f.SHA256)
		line("size", "%d bytes", f.Size)
	}
	for _, v := range f.Versions {
		line("version", "%s  %d bytes  %s to %s", shortHash(v.SHA256), v.Size,
			v.FirstSeen.Format(time.RFC3339), v.LastSeen.Format(time.RFC3339))
	}
	for _, c := range f.Changes {
		line("change", "%s  %s %s -> %s %s", c.Time.Format(time.RFC3339),
			c.OldState, shortHash(c.OldSHA256), c.NewState, shortHash(c.NewSHA256))
	}
	return errors.Join(t.Flush(), showNumbered(w, f.Body))
}

// inARow returns the number of consecutive failures, or "" for 0: a paused host has not failed.
func inARow(failures int) string {
	if failures == 0 {
		return ""
	}
	return fmt.Sprintf(", %d in a row", failures)
}

// lineEnds replaces all forms of EOL (RFC 9309 section 2.2) with LF.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// showNumbered writes the file with line numbers. Records and refusals name rules by the same numbers.
func showNumbered(w io.Writer, body []byte) error {
	n := 0
	for line := range strings.Lines(lineEnds.Replace(string(body))) {
		n++
		line = strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", " ")
		if _, err := fmt.Fprintf(w, "%6d  %s\n", n, safetext.Text(line)); err != nil {
			return err
		}
	}
	return nil
}

// stateText returns the state of a robots.txt with its marks: "unavailable (redirect-loop)".
func stateText(state, marks string) string {
	if marks == "" || marks == state {
		return state
	}
	return state + " (" + marks + ")"
}

func statusText(status int) string {
	if status == 0 {
		return "-"
	}
	return fmt.Sprint(status)
}

// since formats the time between two moments: 35s, 4m10s, 3h20m, 12d.
func since(from, to time.Time) string {
	d := max(0, to.Sub(from))
	switch {
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// refreshText returns when a file is fetched again: in the background if it is in use, else at the next request.
func refreshText(f admin.File, now time.Time) string {
	switch {
	case f.Expires == nil:
		return "never (your own file)"
	case f.NextRefresh != nil && f.NextRefresh.After(now):
		return "in " + since(now, *f.NextRefresh)
	}
	return "at the next request"
}

func shortHash(sha256 string) string {
	if sha256 == "" {
		return "-"
	}
	return sha256[:min(12, len(sha256))]
}
