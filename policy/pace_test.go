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

func TestVisitingHours(t *testing.T) {
	hours := func(from, to string) rules.Hours {
		h, ok := rules.Parse([]byte("User-agent: *\nVisit-time: "+from+"-"+to), rules.Options{}).Agent("x").VisitTime()
		if !ok {
			t.Fatalf("%s-%s is no Visit-time", from, to)
		}
		return h
	}
	for _, row := range []struct{ from, to, at, opens, closes, again string }{
		{"0600", "0845", "05:59", "31 06:00", "31 08:45", "01 06:00"},
		{"0600", "0845", "06:00", "", "31 08:45", "01 06:00"},
		{"0600", "0845", "08:44", "", "31 08:45", "01 06:00"},
		{"0600", "0845", "08:45", "01 06:00", "01 08:45", "02 06:00"},
		{"2300", "0100", "22:59", "31 23:00", "01 01:00", "01 23:00"},
		{"2300", "0100", "23:30", "", "01 01:00", "01 23:00"},
		{"2300", "0100", "00:59", "", "31 01:00", "31 23:00"},
		{"2300", "0100", "01:00", "31 23:00", "01 01:00", "01 23:00"},
		{"0000", "2400", "23:59", "", "", ""},
		{"0700", "0700", "12:00", "", "", ""},
	} {
		at, err := time.Parse("15:04", row.at)
		if err != nil {
			t.Fatal(err)
		}
		east := time.FixedZone("UTC+10", 10*60*60) // whatever the machine's zone, hours are UTC
		at = time.Date(2026, 12, 31, at.Hour(), at.Minute(), 59, 0, time.UTC).In(east)
		written := func(t time.Time) string {
			if t.IsZero() {
				return ""
			}
			return t.UTC().Format("02 15:04")
		}
		h := hours(row.from, row.to)
		from := opens(h, at)
		to, again := closes(h, from, at)
		if written(from) != row.opens || written(to) != row.closes || written(again) != row.again {
			t.Errorf("%s-%s at %s: opens %q, closes %q, and opens again %q; want %q, %q, %q",
				row.from, row.to, row.at, written(from), written(to), written(again), row.opens, row.closes, row.again)
		}
	}
}

func TestVisitTimeIsOptIn(t *testing.T) {
	snap := found("User-agent: *\nDisallow:\nVisit-time: 0600-0845\n")
	for obey, want := range map[bool]time.Time{false: {}, true: time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)} {
		p, err := New(Options{VisitTime: obey})
		if err != nil {
			t.Fatal(err)
		}
		d := p.Decide(Request{Origin: mustOrigin(t, "http://a.example"), Target: "/"}, snap, now)
		if !d.Opens.Equal(want) || d.Closes.IsZero() == obey || d.Reopens.IsZero() == obey || d.Action != Forward {
			t.Errorf("VisitTime %t: Decide = %+v, want Opens %v", obey, d, want)
		}
	}
}
