package policy

import (
	"fmt"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/rules"
)

func TestRequestRate(t *testing.T) {
	for _, row := range []struct {
		name, lines string
		options     Options
		want        string // delay and source, at noon in UTC
	}{
		{"one in five seconds", "Request-rate: 1/5", Options{}, "5s request-rate"},
		{"thirty a minute", "Request-rate: 30/1m", Options{}, "2s request-rate"},
		{"one an hour", "Request-rate: 1/1h", Options{}, "1h0m0s request-rate"},
		{"the Crawl-delay is larger", "Request-rate: 1/5\nCrawl-delay: 6", Options{}, "6s crawl-delay"},
		{"the Crawl-delay is smaller", "Request-rate: 1/5\nCrawl-delay: 4", Options{}, "5s request-rate"},
		{"the floor is larger", "Request-rate: 1/5", Options{Hosts: []Host{{Pattern: "*", Delay: time.Minute}}}, "1m0s floor"},
		{"clamped", "Request-rate: 1/1h", Options{MaxCrawlDelay: time.Minute}, "1m0s request-rate"},
		{"in its hours", "Request-rate: 1/5 1200-1400", Options{}, "5s request-rate"},
		{"before its hours", "Request-rate: 1/5 1201-1400", Options{}, "0s "},
		{"after its hours", "Request-rate: 1/5 1100-1200\nCrawl-delay: 1", Options{}, "1s crawl-delay"},
		{"garbage", "Request-rate: 5", Options{}, "0s "},
		{"another agent's", "\nUser-agent: NewsBot\nRequest-rate: 1/5", Options{}, "0s "},
	} {
		t.Run(row.name, func(t *testing.T) {
			p, err := New(row.options)
			if err != nil {
				t.Fatal(err)
			}
			d := p.Decide(Request{Origin: mustOrigin(t, "http://a.example"), Target: "/"}, found("User-agent: *\nDisallow:\n"+row.lines+"\n"), now)
			if got := fmt.Sprintf("%v %s", d.Delay, d.DelaySource); got != row.want {
				t.Errorf("for %q the delay is %q, want %q", row.lines, got, row.want)
			}
		})
	}
}

func TestDuringHours(t *testing.T) {
	for _, row := range []struct {
		hours, at string
		want      bool
	}{
		{"0600-0845", "05:59", false},
		{"0600-0845", "06:00", true},
		{"0600-0845", "08:44", true},
		{"0600-0845", "08:45", false},
		{"2300-0100", "22:59", false},
		{"2300-0100", "23:30", true},
		{"2300-0100", "00:59", true},
		{"2300-0100", "01:00", false},
		{"0000-2400", "23:59", true},
		{"0700-0700", "12:00", true},
	} {
		rate, ok := rules.Parse([]byte("User-agent: *\nRequest-rate: 1/5 "+row.hours), rules.Options{}).Agent("x").RequestRate()
		if !ok {
			t.Fatalf("%s are no hours", row.hours)
		}
		at, err := time.Parse("15:04", row.at)
		if err != nil {
			t.Fatal(err)
		}
		east := time.FixedZone("UTC+10", 10*60*60) // hours are in UTC
		at = time.Date(2026, 12, 31, at.Hour(), at.Minute(), 59, 0, time.UTC).In(east)
		if got := during(rate.During, at); got != row.want {
			t.Errorf("during(%s, %s) = %t, want %t", row.hours, row.at, got, row.want)
		}
	}
}
