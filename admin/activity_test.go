package admin

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
)

func TestActivity(t *testing.T) {
	a := new(Activity)
	begin := time.Now()
	at := func(after time.Duration, r audit.Record) {
		r.Scheme, r.Port = "https", 443
		a.observe(&r, begin.Add(after))
	}
	sent := audit.Record{
		Host: "a.example", Decision: policy.Allow, SentAt: begin, Bytes: 10, PacingMode: "local", Waited: audit.Millis(2 * time.Second),
		DelayRequired: audit.Millis(3 * time.Second), DelaySource: "crawl-delay",
	}
	paused := sent
	paused.DelayRequired, paused.DelaySource, paused.Reason = audit.Millis(time.Hour), "retry-after", policy.ReasonUpstream
	at(0, sent)
	at(time.Minute, paused)
	at(2*time.Minute, audit.Record{Host: "a.example", Decision: policy.Deny, Reason: policy.ReasonRobots, Bytes: -1})
	at(30*time.Minute, audit.Record{Host: "b.example", Decision: policy.Throttle, Waited: audit.Millis(time.Hour)})
	at(31*time.Minute, audit.Record{Host: "b.example", Decision: policy.WouldDeny})
	at(31*time.Minute, audit.Record{Host: "b.example", Decision: policy.Error})
	at(31*time.Minute, audit.Record{Host: "c.example", Via: audit.Robots})
	at(31*time.Minute, audit.Record{})

	host := func(name string, last time.Duration, c HostCounts) HostActivity {
		o, err := origin.New("https", name, 443)
		if err != nil {
			t.Fatal(err)
		}
		return HostActivity{Host: name, HostCounts: c, Last: begin.Add(last), Origin: o}
	}
	b := host("b.example", 31*time.Minute, HostCounts{Requests: 3, Throttled: 1, WouldDeny: 1, Failed: 1})
	all := host("a.example", 2*time.Minute, HostCounts{Requests: 3, Blocked: 1, Delayed: 2, Failed: 1, Bytes: 20, Waited: 4 * time.Second})
	all.Delay, all.DelaySource = 3*time.Second, "crawl-delay"
	later := all
	later.HostCounts = HostCounts{Requests: 2, Blocked: 1, Delayed: 1, Failed: 1, Bytes: 10, Waited: 2 * time.Second}
	for _, test := range []struct {
		now, window time.Duration
		want        []HostActivity
	}{
		{31 * time.Minute, MaxWindow, []HostActivity{b, all}},
		{31 * time.Minute, 24 * time.Hour, []HostActivity{b, all}},
		{31 * time.Minute, 5 * time.Minute, []HostActivity{b}},
		{31 * time.Minute, 0, []HostActivity{host("b.example", 31*time.Minute, HostCounts{Requests: 2, WouldDeny: 1, Failed: 1})}},
		{60 * time.Minute, MaxWindow, []HostActivity{b, later}},
		{61 * time.Minute, MaxWindow, []HostActivity{b, host("a.example", 2*time.Minute, HostCounts{Requests: 1, Blocked: 1})}},
		{91 * time.Minute, MaxWindow, nil},
	} {
		got := a.hostsAt(test.window, begin.Add(test.now))
		if test.now == 61*time.Minute {
			got[1].Delay, got[1].DelaySource = 0, ""
		}
		if diff := cmp.Diff(test.want, got, cmp.Comparer(func(a, b origin.Origin) bool { return a == b })); diff != "" {
			t.Errorf("after %v, for %v (-want +got):\n%s", test.now, test.window, diff)
		}
	}
}

func TestActivityForgets(t *testing.T) {
	a := new(Activity)
	begin := time.Now()
	for i := range maxActive {
		a.observe(&audit.Record{Host: fmt.Sprintf("%d.example", i)}, begin)
	}
	a.observe(&audit.Record{Host: "0.example"}, begin)
	a.observe(&audit.Record{Host: "new.example"}, begin)
	all := a.hostsAt(MaxWindow, begin)
	if len(all) != maxActive || all[0].Host != "new.example" || all[1].Host != "0.example" || all[maxActive-1].Host != "2.example" {
		t.Errorf("%d hosts, from %s and %s to %s", len(all), all[0].Host, all[1].Host, all[len(all)-1].Host)
	}
	for i := range 1000 {
		a.observe(&audit.Record{Host: "0.example"}, begin.Add(time.Duration(i)*time.Minute))
	}
	if n := len(a.hosts["0.example"].Value.(*hostActivity).minutes); n != 60 {
		t.Errorf("%d minutes are kept, want 60", n)
	}
}

func TestRate(t *testing.T) {
	a := new(Activity)
	begin := time.Now()
	if got := a.rateAt(begin); got != 0 {
		t.Errorf("without requests the rate is %v", got)
	}
	for i := range 40 {
		for range 3 {
			a.observe(&audit.Record{Host: "a.example"}, begin.Add(time.Duration(i)*time.Second))
		}
	}
	for after, want := range map[time.Duration]float64{39 * time.Second: 3, 40 * time.Second: 3, 45 * time.Second: 1.5, 50 * time.Second: 0} {
		if got := a.rateAt(begin.Add(after)); got != want {
			t.Errorf("after %v the rate is %v, want %v", after, got, want)
		}
	}
}

func TestActivityConcurrently(t *testing.T) {
	a := new(Activity)
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			for i := range 500 {
				a.Observe(&audit.Record{Host: fmt.Sprintf("%d.example", (n+i)%7), Decision: policy.Allow})
				if i%50 == 0 {
					a.Hosts(MaxWindow)
					a.Rate()
				}
			}
		})
	}
	wg.Wait()
	var n int64
	for _, h := range a.Hosts(MaxWindow) {
		n += h.Requests
	}
	if n != 2000 {
		t.Errorf("%d requests are counted, want 2000", n)
	}
}

func BenchmarkActivity(b *testing.B) {
	a := new(Activity)
	r := records()[0]
	r.Scheme, r.Port = "https", 443
	b.ReportAllocs()
	for b.Loop() {
		a.Observe(r)
	}
}
