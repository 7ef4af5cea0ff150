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

// This file writes what "cache" shows for people.

func showFiles(w io.Writer, files []admin.File, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ORIGIN\tSTATE\tSTATUS\tAGE\tREFRESH\tSIZE\tSHA-256")
	for _, f := range files {
		if isMissing(f) {
			fmt.Fprintf(t, "%s\t%s\t-\t-\t-\t-\t-\n", f.Origin, f.State)
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", f.Origin, stateText(f), statusText(f.Status), since(f.Fetched, now), refreshText(f, now), f.Size, shortHash(f.SHA256))
	}
	return t.Flush()
}

// isLost reports whether f could not be had: there is not even a failure of its site to show.
func isMissing(f admin.File) bool { return f.Fetched.IsZero() }

func hasError(f admin.File) bool { return f.Error != "" }

// showTrouble says what is wrong with the files that tell picks.
func showErrors(w io.Writer, files []admin.File, tell func(admin.File) bool) {
	for _, f := range files {
		if tell(f) {
			fmt.Fprintf(w, "robotsproxy: %s: %s\n", f.Origin, safetext.Text(f.Error))
		}
	}
}

func showBody(w io.Writer, files []admin.FileDetails) error {
	if len(files) != 1 {
		return usage(fmt.Errorf("--body shows one file, and %d origins of this host are kept: name one, such as %s", len(files), files[0].Origin))
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
	line("state", "%s", stateText(f.File))
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
		line("trouble", "%s since %s%s: %s", f.Cause, f.Since.Format(time.RFC3339), inARow(f.Failures), safetext.Text(f.Error))
	}
	if f.SHA256 != "" {
		line("SHA-256", "%s", f.SHA256)
		line("size", "%d octets", f.Size)
	}
	for _, v := range f.Versions {
		line("version", "%s  %d octets  %s to %s", shortHash(v.SHA256), v.Size, v.FirstSeen.Format(time.RFC3339), v.LastSeen.Format(time.RFC3339))
	}
	for _, c := range f.Changes {
		line("change", "%s  %s %s -> %s %s", c.Time.Format(time.RFC3339), c.OldState, shortHash(c.OldSHA256), c.NewState, shortHash(c.NewSHA256))
	}
	return errors.Join(t.Flush(), showNumbered(w, f.Body))
}

// inARow counts failures, of which there is none where a host is only left alone.
func inARow(failures int) string {
	if failures == 0 {
		return ""
	}
	return fmt.Sprintf(", %d in a row", failures)
}

// lineEnds writes each way to end a line as one (RFC 9309 section 2.2, EOL).
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// showNumbered writes the file with the numbers of its lines, which are those of the rules in records and refusals.
func showNumbered(w io.Writer, body []byte) error {
	n := 0
	for line := range strings.Lines(lineEnds.Replace(string(body))) {
		n++
		if _, err := fmt.Fprintf(w, "%6d  %s\n", n, safetext.Text(strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", " "))); err != nil {
			return err
		}
	}
	return nil
}

// stateText is the state with what is worth knowing beside it: "unavailable (redirect-loop)".
func stateText(f admin.File) string {
	if f.Marks == "" || f.Marks == f.State {
		return f.State
	}
	return f.State + " (" + f.Marks + ")"
}

func statusText(status int) string {
	if status == 0 {
		return "-"
	}
	return fmt.Sprint(status)
}

// since is the time from one moment to another in a few characters: 35s, 4m10s, 3h20m, 12d.
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

// refreshText says when a file is asked for again: in the background, if it is in use, or by the first request after.
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
