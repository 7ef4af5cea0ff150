//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// screen is a terminal with robotsproxy top.
type screen struct {
	*os.File
	cmd  *exec.Cmd
	got  *lockedBuffer
	over chan struct{} // closed at the end of the output
}

// startTop runs top on a terminal of 80 by 24.
func startTop(t *testing.T, s *server, env ...string) *screen {
	t.Helper()
	cmd := exec.Command(binaryPath, "top", "--interval", "100ms", "--data-dir", s.dir, "--admin-listen", s.admin, "--by", "ops")
	cmd.Env = append(os.Environ(), append([]string{"TERM=xterm-256color", "COLORTERM=", "HOME=" + filepath.Dir(s.dir)}, env...)...)
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	c := &screen{terminal, cmd, &lockedBuffer{}, make(chan struct{})}
	go func() {
		defer close(c.over)
		_, _ = io.Copy(c.got, terminal) // fails at the end
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		terminal.Close()
		<-c.over
	})
	return c
}

// press writes keys to the terminal.
func (c *screen) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := c.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// wait waits until the output after its first n bytes has all texts, and returns its length.
func (c *screen) wait(t *testing.T, n int, texts ...string) int {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		got := c.got.String()
		missing := ""
		for _, text := range texts {
			if !strings.Contains(got[n:], text) {
				missing = text
			}
		}
		if missing == "" {
			return len(got)
		}
		if time.Now().After(deadline) {
			t.Fatalf("the terminal does not show %q: %q", missing, got[n:])
		}
	}
}

// colours are the sequences that set a colour of the text.
var colours = regexp.MustCompile(`\x1b\[[0-9;]*\b(3[0-7]|9[0-7]|38)\b[0-9;]*m`)

// The view on a terminal follows the proxy, is resized, stops a host, and leaves the terminal as it was.
func TestTopOnATerminal(t *testing.T) {
	site := robotstest.New(t)
	site.SetRobots("a.example", robotstest.Robots{Body: disallowsPrivate})
	s := serveFor(t, site, []string{"a.example", "b.example"}, "mode: report\n")
	s.get(t, fmt.Sprintf("http://a.example:%d/private/1", site.Port()))
	c := startTop(t, s)
	n := c.wait(t, 0, "\x1b[?1049h", "mode report", "requests/s", "a.example", "q quit")
	if !colours.MatchString(c.got.String()) {
		t.Error("the view has no colour")
	}
	s.get(t, fmt.Sprintf("http://b.example:%d/page/1", site.Port()))
	n = c.wait(t, n, "b.example")

	if err := pty.Setsize(c.File, &pty.Winsize{Rows: 8, Cols: 48}); err != nil {
		t.Fatal(err)
	}
	n = c.wait(t, n, "a.example")
	c.press(t, "?")
	n = c.wait(t, n, "any key goes back")
	c.press(t, "?h")
	n = c.wait(t, n, "a.example")

	c.press(t, "x")
	c.wait(t, n, "why stop a.example?")
	c.press(t, "owner \x1b[200~asked\n\x1b[201~\r")
	c.wait(t, n, "in force", "a.example is stopped on 1 of 1")
	out, err := exec.Command(binaryPath, "interventions", "--data-dir", s.dir, "--admin-listen", s.admin).Output()
	if err != nil || !regexp.MustCompile(`(?m)^a\.example +stopped .* ops +owner asked$`).Match(out) {
		t.Errorf("after the stop: %v\n%s", err, out)
	}

	c.press(t, "q")
	<-c.over
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("top ends with %v", err)
	}
	if got := c.got.String(); strings.LastIndex(got, "\x1b[?1049l") < strings.LastIndex(got, "\x1b[?1049h") || strings.LastIndex(got, "\x1b[?25h") < strings.LastIndex(got, "\x1b[?25l") {
		t.Errorf("the terminal is not as before: %q", got[max(0, len(got)-200):])
	}
}

// NO_COLOR and TERM=dumb hold, and a signal ends the view.
func TestTopOnOtherTerminals(t *testing.T) {
	site := robotstest.New(t)
	site.SetRobots("a.example", robotstest.Robots{Body: disallowsPrivate})
	s := serveFor(t, site, []string{"a.example"}, "")
	s.get(t, fmt.Sprintf("http://a.example:%d/private/1", site.Port()))

	c := startTop(t, s, "NO_COLOR=yes")
	c.wait(t, 0, "a.example", "q quit")
	if m := colours.FindString(c.got.String()); m != "" {
		t.Errorf("with NO_COLOR the terminal gets %q", m)
	}
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-c.over
	var exit *exec.ExitError
	if err := c.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
		t.Errorf("after SIGTERM: %v, want exit status %d", err, exitInterrupted)
	}
	if !strings.Contains(c.got.String(), "\x1b[?1049l") {
		t.Error("after SIGTERM the terminal is not as before")
	}

	c = startTop(t, s, "TERM=dumb", "NO_COLOR=1")
	c.wait(t, 0, "1 blocked, 0 delayed", "a.example")
	c.press(t, "\x03") // an interrupt, since the terminal is not in raw mode
	<-c.over
	if err := c.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
		t.Errorf("after an interrupt: %v, want exit status %d", err, exitInterrupted)
	}
	if strings.Contains(c.got.String(), "\x1b") {
		t.Errorf("TERM=dumb gets %q", c.got)
	}
}
