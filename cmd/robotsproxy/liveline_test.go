package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
)

// The line is drawn if it has changed, cut at the width, and cleared before other output and at the end.
func TestLiveLine(t *testing.T) {
	var b bytes.Buffer
	l := newLiveLine(&b)
	l.columns = func() int { return 12 }
	check := func(want string) {
		t.Helper()
		if got := b.String(); got != want {
			t.Errorf("the terminal got %q, want %q", got, want)
		}
		b.Reset()
	}
	l.draw("")
	check("")
	l.draw("2 requests")
	check("\r\x1b[K2 requests\r")
	l.draw("2 requests")
	check("")
	l.draw("3 requests for \x1b[31mé")
	check("\r\x1b[K3 requests \r")
	fmt.Fprintln(l, "WRN something")
	check("\r\x1b[KWRN something\n")
	fmt.Fprintln(l, "WRN again")
	check("WRN again\n")
	l.draw("4 requests")
	check("\r\x1b[K4 requests\r")
	l.draw("")
	check("\r\x1b[K")
}

// Without a terminal nothing is drawn.
func TestNoLiveLine(t *testing.T) {
	var b bytes.Buffer
	l := newLiveLine(&b)
	l.start(func() string { t.Error("the text is asked for"); return "x" })
	time.Sleep(1100 * time.Millisecond)
	l.stop()
	if b.Len() > 0 {
		t.Errorf("%q is written", &b)
	}
}

// The line names the host with the longest wait, and why it waits.
func TestStatusText(t *testing.T) {
	sum := newSummary()
	sum.observe(&audit.Record{Host: "a.example", Decision: policy.Deny, Reason: policy.ReasonRobots, DelaySource: "crawl-delay"})
	if n, blocked := sum.progress(); n != 1 || blocked != 1 {
		t.Errorf("%d requests and %d blocked, want 1 and 1", n, blocked)
	}
	for want, got := range map[string]string{
		" (Crawl-delay 2.5)": sum.delayText("a.example", 2500*time.Millisecond),
		" (delay 1.128)":     sum.delayText("b.example", 1128*time.Millisecond),
		" (delay 5)":         sum.delayText("b.example", 5*time.Second),
		"":                   sum.delayText("a.example", 0),
	} {
		if got != want {
			t.Errorf("the delay is %q, want %q", got, want)
		}
	}
	if got := spell(1128 * time.Millisecond); got != "1.128 s" {
		t.Errorf("a delay of 1.128 s is %q", got)
	}
	if strings.Contains(seconds(time.Hour), "e") {
		t.Error("an hour has an exponent")
	}
}
