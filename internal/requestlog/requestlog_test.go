package requestlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
)

// buffer is a terminal.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// take returns the lines since the last call, without their times.
func (b *buffer) take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var lines []string
	for line := range strings.Lines(b.b.String()) {
		lines = append(lines, strings.TrimSuffix(line[kindAt:], "\n"))
	}
	b.b.Reset()
	return lines
}

func newText(o Options) (*Log, *buffer) {
	var b buffer
	o.Text, o.Logger = &b, slog.New(slog.NewTextHandler(&b, nil))
	return New(o), &b
}

func checkLines(t *testing.T, b *buffer, want ...string) {
	t.Helper()
	synctest.Wait()
	got := b.take()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the lines are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// deny returns the record of a request that a rule disallows.
func deny(agent, host, path string, line int) *audit.Record {
	return &audit.Record{
		Time: time.Now(), EndedAt: time.Now(), Client: "local", Agent: agent, Method: "GET", Scheme: "http", Host: host, Port: 80, Path: path,
		Decision: policy.Deny, Reason: policy.ReasonRobots, RuleLine: line, Rule: "Disallow: /private/", Status: 403,
	}
}

// The first refusal of an agent, host and rule has a line, and the number of the others one a minute.
func TestRepetitionsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newText(Options{Mode: Refused})
		l.Observe(deny("NewsBot", "a.example", "/private/x", 3))
		checkLines(t, b, "blocked   NewsBot         a.example/private/x         line 3: Disallow: /private/")
		for i := range 211 {
			l.Observe(deny("NewsBot", "a.example", fmt.Sprintf("/private/%d", i), 3))
		}
		checkLines(t, b)
		time.Sleep(30 * time.Second)
		l.Observe(deny("PriceWatch", "a.example", "/private/x", 3))
		l.Observe(deny("NewsBot", "b.example", "/private/x", 3))
		l.Observe(deny("NewsBot", "a.example", "/private/x", 4))
		checkLines(t, b,
			"blocked   PriceWatch      a.example/private/x         line 3: Disallow: /private/",
			"blocked   NewsBot         b.example/private/x         line 3: Disallow: /private/",
			"blocked   NewsBot         a.example/private/x         line 4: Disallow: /private/")
		time.Sleep(31 * time.Second)
		checkLines(t, b, "blocked   NewsBot         a.example/private/210       line 3: Disallow: /private/  (+211 more)")
		l.Observe(deny("NewsBot", "a.example", "/private/y", 3))
		time.Sleep(58 * time.Second)
		checkLines(t, b)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		checkLines(t, b, "blocked   NewsBot         a.example/private/y         line 3: Disallow: /private/  (+1 more)")
		l.Observe(deny("NewsBot", "a.example", "/private/z", 3))
		checkLines(t, b)
	})
}

// A key without repetitions is forgotten after a period, and new again.
func TestKeysAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newText(Options{Mode: Refused})
		defer l.Close()
		for range 2 {
			l.Observe(deny("NewsBot", "a.example", "/private/x", 3))
			checkLines(t, b, "blocked   NewsBot         a.example/private/x         line 3: Disallow: /private/")
			time.Sleep(62 * time.Second)
		}
		synctest.Wait() // for the goroutine that writes the lines
		if n := len(l.repeats.lines); n != 0 {
			t.Errorf("%d keys are kept, want 0", n)
		}
	})
}

// Hosts, agents and rules without end have a bounded number of lines, and every refusal is counted.
func TestKeysAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newText(Options{Mode: Refused})
		const all = 3 * maxKeys
		for i := range all {
			l.Observe(deny("NewsBot", fmt.Sprintf("%d.example", i), "/private/x", 3))
			synctest.Wait() // none is dropped
		}
		if n, lines := len(l.repeats.lines), len(b.take()); n != maxKeys || lines != maxKeys {
			t.Errorf("%d keys and %d lines, want %d", n, lines, maxKeys)
		}
		l.Observe(deny("NewsBot", "another.example", "/private/x", 3))
		time.Sleep(62 * time.Second)
		checkLines(t, b, fmt.Sprintf("refused   other clients, hosts and rules  (+%d more)", all-maxKeys+1))
		l.Close()
	})
}

func TestKindsOfLines(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		name   string
		record audit.Record
		want   string
	}{
		{
			"a listed client",
			audit.Record{Client: "news", Agent: "NewsBot", Decision: policy.Deny, Reason: policy.ReasonEgress, Error: "egress: 10.0.0.1:80 is prohibited"},
			"blocked   news            https://x                   egress: 10.0.0.1:80 is prohibited",
		},
		{
			"no agent",
			audit.Record{Client: "local", Decision: policy.Deny, Reason: policy.ReasonExemption},
			"blocked   local           https://x                   exemption",
		},
		{
			"a list of hosts",
			audit.Record{Agent: "A", Decision: policy.Deny, Reason: policy.ReasonHost, Rule: "deny_hosts: *.example"},
			"blocked   A               https://x                   deny_hosts: *.example",
		},
		{
			"report",
			audit.Record{Agent: "A", Decision: policy.WouldDeny, Reason: policy.ReasonReport, RuleLine: 2, Rule: "Disallow: /", SentAt: now},
			"would block  A               https://x                   line 2: Disallow: /",
		},
		{
			"pace",
			audit.Record{Agent: "A", Decision: policy.Throttle, Reason: policy.ReasonPace, Status: 429, RetryAfter: 12},
			"throttled  A               https://x                   429 pace, Retry-After 12 s",
		},
		{
			"overload",
			audit.Record{Decision: policy.Error, Reason: policy.ReasonOverload, Status: 503},
			"refused   -               https://x                   overload",
		},
		{
			"unreachable",
			audit.Record{Agent: "A", Decision: policy.Error, Reason: policy.ReasonRobotsUnreachable, Status: 503, Error: "dial tcp 10.0.0.1:80: connect: timed out", RetryAfter: 70},
			"unreachable  a.example:8443  robots.txt: timed out; requests get 503, next try in 1 m 10 s",
		},
		{
			"an error page",
			audit.Record{Decision: policy.Deny, Reason: policy.ReasonRobotsUnreachable, Status: 503, RobotsStatus: 500},
			"unreachable  a.example:8443  robots.txt: the origin answered 500; requests get 503",
		},
		{
			"pushed back",
			audit.Record{Decision: policy.Allow, Status: 429, SentAt: now},
			"paused    a.example:8443  429, Retry-After 1 m; 9 requests wait",
		},
		{"the client left", audit.Record{Decision: policy.Error, Reason: policy.ReasonClientLeft}, ""},
		{"forwarded", audit.Record{Decision: policy.Allow, Status: 403, SentAt: now}, ""},
		{"a robots.txt", audit.Record{Via: audit.Robots, Decision: policy.Deny, Reason: policy.ReasonRobots}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, b := newText(Options{Mode: Refused, Paused: func(host string) Pause {
					return Pause{Until: time.Now().Add(time.Minute), Source: "retry-after", Waiting: 9}
				}})
				defer l.Close()
				r := tt.record
				r.Scheme, r.Host, r.Port, r.EndedAt = "https", "a.example", 8443, time.Now()
				l.Observe(&r)
				want := strings.Replace(tt.want, "https://x     ", "a.example:8443", 1)
				if want == "" {
					checkLines(t, b)
					return
				}
				checkLines(t, b, want)
			})
		})
	}
}

// Mode All has a line for each request, and SetMode acts at once.
func TestModes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newText(Options{})
		defer l.Close()
		r := deny("NewsBot", "a.example", "/private/x", 3)
		l.Observe(r)
		checkLines(t, b)
		l.SetMode(All)
		r.Query, r.EndedAt = "token=***", r.Time.Add(1500*time.Millisecond)
		ok := audit.Record{Client: "news", Method: "CONNECT", Host: "b.example", Port: 443, Scheme: "https", Decision: policy.Allow, Status: 200, Bytes: 1234, Waited: audit.Millis(2 * time.Second), Time: r.Time, EndedAt: r.EndedAt}
		for range 2 {
			l.Observe(r)
			l.Observe(&ok)
		}
		lines := []string{
			"deny         NewsBot         GET      http://a.example/private/x?token=***  403  line 3: Disallow: /private/  0 B  1.5 s",
			"allow        news            CONNECT  b.example  200  1234 B  waited 2 s  1.5 s",
		}
		checkLines(t, b, append(lines, lines...)...)
		l.SetMode(Off)
		l.Observe(r)
		checkLines(t, b)
	})
}

// Nothing that a client or a site sends affects the terminal, or makes a second line.
func TestHostileText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newText(Options{Mode: All, Colour: true, Width: func() int { return 100 }})
		defer l.Close()
		const hostile = "\x1b]0;x\x07\r\n\u202e\xff"
		for _, mode := range []Mode{All, Refused} {
			l.SetMode(mode)
			r := deny(hostile, hostile, "/"+hostile+strings.Repeat("ü\n", 10_000), 3)
			r.Rule, r.Error, r.Method, r.Query = strings.Repeat(hostile, 1000), hostile, hostile, hostile
			l.Observe(r)
			synctest.Wait()
			lines := b.take()
			if len(lines) != 1 {
				t.Fatalf("%d lines: %q", len(lines), lines)
			}
			line := strings.NewReplacer("\x1b[31m", "", "\x1b[0m", "").Replace(lines[0])
			if strings.ContainsFunc(line, func(c rune) bool { return !unicode.IsPrint(c) }) || len([]rune(line)) > 100 {
				t.Errorf("the line is %q", line)
			}
		}
	})
}

// With a Logger and no Text, each line is one JSON object with the names of records.
func TestLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b buffer
		l := New(Options{Mode: Refused, Logger: slog.New(slog.NewJSONHandler(&b, nil))})
		l.Observe(deny("NewsBot", "a.example", "/private/x", 3))
		l.Observe(deny("NewsBot", "a.example", "/private/y", 3))
		l.Close()
		var lines []map[string]any
		for d := json.NewDecoder(&b.b); d.More(); {
			var line map[string]any
			if err := d.Decode(&line); err != nil {
				t.Fatal(err)
			}
			lines = append(lines, line)
		}
		if len(lines) != 2 || lines[0]["more"] != nil || lines[1]["more"] != 1.0 {
			t.Fatalf("the lines are %v", lines)
		}
		for name, want := range map[string]any{
			"msg": "blocked", "client": "local", "agent": "NewsBot", "url": "http://a.example/private/x", "host": "a.example",
			"status": 403.0, "reason": "robots", "rule_line": 3.0, "rule": "Disallow: /private/", "decision": "deny",
		} {
			if got := lines[0][name]; got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
	})
}

// stuck is a terminal that takes nothing.
type stuck chan struct{}

func (s stuck) Write(p []byte) (int, error) { <-s; return len(p), nil }

// A terminal that takes nothing delays neither a request nor the end for long, and the lost lines are counted.
func TestStuckTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		terminal := make(stuck)
		l := New(Options{Mode: All, Text: terminal, Logger: slog.New(slog.NewTextHandler(terminal, nil))})
		began := time.Now()
		for range 2 * maxEvents {
			l.Observe(deny("NewsBot", "a.example", "/private/x", 3))
		}
		if took := time.Since(began); took != 0 || l.dropped.Load() < maxEvents-1 {
			t.Errorf("Observe took %v, and %d lines were dropped", took, l.dropped.Load())
		}
		if err := l.Close(); err == nil || time.Since(began) != closeWithin {
			t.Errorf("Close returned %v after %v", err, time.Since(began))
		}
		close(terminal)
	})
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0 ms", 0: "0 ms", 35 * time.Millisecond: "35 ms", 1490 * time.Millisecond: "1.5 s", 3 * time.Second: "3 s",
		59600 * time.Millisecond: "1 m", 70 * time.Second: "1 m 10 s", time.Hour: "1 h", 125 * time.Minute: "2 h 5 m",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%v) = %q, want %q", d, got, want)
		}
	}
}

// A request without a line costs next to nothing.
func TestObserveAllocatesNothing(t *testing.T) {
	l, _ := newText(Options{Mode: Refused})
	defer l.Close()
	r := &audit.Record{Decision: policy.Allow, Status: 200}
	if n := testing.AllocsPerRun(100, func() { l.Observe(r) }); n != 0 {
		t.Errorf("Observe allocates %v times", n)
	}
}
