package top

import (
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
	"github.com/robotsproxy/robotsproxy/policy"
)

func textOptions() auditview.Options { return auditview.Options{Zone: time.UTC} }

func TestWrite(t *testing.T) {
	now := time.Date(2026, 3, 1, 14, 32, 7, 0, time.UTC)
	s := &Sample{Time: now, Status: admin.Status{Mode: "report", Waiting: 1200}}
	s.Window, s.Rate = 3600, 4.25
	s.Total = admin.LaneTotal{Hosts: 1, HostCounts: admin.HostCounts{Requests: 1}}
	write := func() string {
		var text strings.Builder
		if err := s.Write(&text, textOptions()); err != nil {
			t.Fatal(err)
		}
		return text.String()
	}
	want := "2026-03-01 14:32:07  4.2 requests/s; 1 request to 1 host in the last 1 h: 0 blocked, 0 delayed, 0 failed. 1,200 wait; 0 hosts paused. Mode report.\n"
	if got := write(); got != want {
		t.Errorf("without hosts:\n%swant\n%s", got, want)
	}
	s.Total = admin.LaneTotal{Hosts: 3, HostCounts: admin.HostCounts{Requests: 1204, Blocked: 10, WouldDeny: 2, Delayed: 3, Failed: 1}, Paused: 1}
	s.Interventions = []admin.Intervention{{Kind: policy.Slow, Host: "*.example", Delay: 30, Reason: "agreement 44", Until: now}}
	s.Hosts = []admin.Lane{
		{Host: "a.example", HostCounts: admin.HostCounts{Requests: 1200, Blocked: 10}, Waiting: 5, Active: 1, Delay: 1.5, WaitedSeconds: 70.04, NextSlot: now.Add(1400 * time.Millisecond)},
		{Host: "b.example", PausedUntil: now.Add(time.Minute), PauseSource: "backoff", NextSlot: now.Add(time.Minute), Interventions: s.Interventions},
	}
	s.More = true
	want = "2026-03-01 14:32:07  4.2 requests/s; 1,204 requests to 3 hosts in the last 1 h: 12 blocked, 3 delayed, 1 failed. 1,200 wait; 1 host paused. Mode report.\n" +
		"In force: *.example slow 30 s until " + now.Local().Format("15:04") + " (agreement 44).\n" +
		"host\trequests\tblocked\tfailed\tqueue\tactive\tdelay\tnext\twaited\tstate\n" +
		"a.example\t1,200\t10\t0\t5\t1\t1.5 s\t1 s\t1 m 10 s\t\n" +
		"b.example\t0\t0\t0\t0\t0\t-\t1 m\t-\tslow 30 s, paused 1 m, 429 or 503\n" +
		"and 1 more host\n"
	if got := write(); got != want {
		t.Errorf("with hosts:\n%swant\n%s", got, want)
	}
}
