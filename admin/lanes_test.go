package admin

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
)

// fixedLanes are always the same, whatever the window.
type fixedLanes []Lane

func (f fixedLanes) Lanes(time.Duration) []Lane { return slices.Clone(f) }
func (fixedLanes) Rate() float64                { return 1.5 }

// testLanes are a busy host, of the origin o, and one that is paused.
func testLanes(o origin.Origin) []Lane {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return []Lane{
		{
			Host: o.Host(), Origin: o, HostCounts: HostCounts{Requests: 5, Blocked: 2, Delayed: 1, Waited: 1128 * time.Millisecond, Bytes: 9},
			Last: now, Waiting: 3, Active: 1, Delay: 2, DelaySource: "crawl-delay", NextSlot: now.Add(time.Second),
		},
		{Host: "b.example", HostCounts: HostCounts{Requests: 7, Failed: 1}, PausedUntil: now.Add(time.Minute), PauseSource: "backoff"},
	}
}

func TestListLanes(t *testing.T) {
	origins := mustOrigins(t, "https://a.example")
	h := newHandler(t, Options{
		Lanes: fixedLanes(testLanes(origins[0])), Files: withOwn{Cache: newTestCache(t, origins...)}, History: past{noPast([]origin.Origin(origins))},
		Interventions: &orders{all: []policy.Intervention{{Kind: policy.Stop, Host: "a.example", Reason: "r", By: "b"}, {Kind: policy.Slow, Host: "*.c.example"}}},
	})
	list := func(query string) (l LaneList, text string) {
		w := ask(h, "GET", "/api/v1/hosts?"+query, "Authorization", "Bearer "+testToken)
		if w.Code != 200 {
			t.Fatalf("?%s: %d %s", query, w.Code, w.Body)
		}
		text = w.Body.String()
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatal(err)
		}
		return l, text
	}
	all, text := list("")
	if len(all.Hosts) != 2 || all.Hosts[0].Host != "b.example" || all.More || all.Rate != 1.5 || all.Window != 3600 {
		t.Errorf("without parameters: %s", text)
	}
	if total := all.Total; total.Hosts != 2 || total.Requests != 12 || total.Paused != 1 || total.WaitedSeconds != 1.128 {
		t.Errorf("the total is %+v", total)
	}
	a := all.Hosts[1]
	if a.WaitedSeconds != 1.128 || a.Waiting != 3 || a.Robots == nil || a.Robots.State != "found" || len(a.Interventions) != 1 || a.Interventions[0].Reason != "r" {
		t.Errorf("a.example is %+v", a)
	}
	if b := all.Hosts[0]; b.Robots != nil || len(b.Interventions) != 0 || !b.Last.IsZero() {
		t.Errorf("b.example is %+v", b)
	}
	for query, want := range map[string]string{
		"sort=blocked": "a.example b.example", "sort=host": "a.example b.example", "sort=paused": "b.example a.example", "sort=next": "a.example b.example",
		"sort=waiting&limit=1": "a.example more", "sort=waiting&limit=1&offset=1": "b.example", "offset=9": "", "host=A.EX": "a.example",
		"host=nothing": "", "window=5m": "b.example a.example",
	} {
		l, _ := list(query)
		var got []string
		for _, lane := range l.Hosts {
			got = append(got, lane.Host)
		}
		if l.More {
			got = append(got, "more")
		}
		if strings.Join(got, " ") != want {
			t.Errorf("?%s lists %v, want %s", query, got, want)
		}
	}
	for order := range laneOrders {
		list("sort=" + order)
	}
	for query, want := range map[string]string{
		"sort=blockd": "did you mean blocked?", "limit=0": "a number from 1 to 1000", "limit=1001": "a number from 1", "offset=-1": "a number from 0",
		"window=61m": "longer than an hour", "window=90s": "whole minutes", "hots=a": "did you mean host?",
	} {
		w := ask(h, "GET", "/api/v1/hosts?"+query, "Authorization", "Bearer "+testToken)
		if w.Code != 400 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("?%s = %d %s, want 400 with %q", query, w.Code, w.Body, want)
		}
	}
	if w := ask(h, "GET", "/api/v1/hosts"); w.Code != 401 {
		t.Errorf("without the token: %d, want 401", w.Code)
	}
	if w := ask(newHandler(t, Options{}), "GET", "/api/v1/hosts", "Authorization", "Bearer "+testToken); w.Code != 404 {
		t.Errorf("without Lanes: %d, want 404", w.Code)
	}
}
