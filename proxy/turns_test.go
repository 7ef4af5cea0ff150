package proxy

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/rules"
)

// TestTurns checks that a client has one turn at a time, that another client waits for one decision at most, and that nothing
// is left of a client that waited in vain.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newDecisionSlots()
		turns.slots = make(chan struct{}, 1)
		order := make(chan string, 10)
		take := func(ctx context.Context, client string) (leave func()) {
			leave, err := turns.take(ctx, client)
			if err != nil {
				order <- client + " gone"
				return func() {}
			}
			order <- client
			return leave
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		first := take(t.Context(), "one")
		for range 3 {
			go func() { take(t.Context(), "one")() }()
		}
		synctest.Wait()
		go take(ctx, "one")
		go take(ctx, "third")
		synctest.Wait()
		cancel(errors.New("left"))
		synctest.Wait()
		go func() { take(t.Context(), "other")() }()
		synctest.Wait()
		first()
		synctest.Wait()
		close(order)
		var all []string
		for client := range order {
			all = append(all, client)
		}
		got := strings.Join(all, ", ")
		if want := "one, one gone, third gone, other, one, one, one"; got != want && got != "one, third gone, one gone, other, one, one, one" {
			t.Errorf("the turns went to %s, want %s", got, want)
		}
		if len(turns.clients) != 0 || len(turns.slots) != 0 {
			t.Errorf("%d clients and %d slots are left", len(turns.clients), len(turns.slots))
		}
	})
}

func TestCostly(t *testing.T) {
	snapshot := func(body string) *robots.Snapshot {
		return &robots.Snapshot{Availability: robots.Found, Rules: rules.Parse([]byte(body), rules.Options{})}
	}
	const small = "User-agent: *\nDisallow: /private\n"
	large, long := small+strings.Repeat("Allow: /*!\n", 31_936), "/"+strings.Repeat("a", 60_000)
	for _, row := range []struct {
		name   string
		snap   *robots.Snapshot
		target string
		agent  string
		want   bool
	}{
		{"no file", nil, long, long, false},
		{"a small file", snapshot(small), "/a/b?c", "NewsBot/1.0", false},
		{"a small file and a long path", snapshot(small), long, "NewsBot/1.0", true},
		{"a large file", snapshot(large), "/a/b?c", "NewsBot/1.0", true},
		{"a large file and a long User-Agent", snapshot(large), "/a", long, true},
	} {
		j := judgement{snap: row.snap, request: policy.Request{Target: row.target, UserAgent: row.agent}}
		if got := j.costly(); got != row.want {
			t.Errorf("%s: costly() = %v, want %v", row.name, got, row.want)
		}
	}
}
