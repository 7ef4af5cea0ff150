package redislease

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/robotsproxy/robotsproxy/ratelimit"
)

const host = "a.example"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newLimiter(tb testing.TB, o ratelimit.Options) *ratelimit.Limiter {
	tb.Helper()
	l, err := ratelimit.New(o)
	if err != nil {
		tb.Fatalf("New(%+v): %v", o, err)
	}
	return l
}

func acquire(t *testing.T, l *ratelimit.Limiter, r ratelimit.Request) ratelimit.Grant {
	t.Helper()
	g, err := l.Acquire(t.Context(), r)
	if err != nil {
		t.Fatalf("Acquire(%+v): %v", r, err)
	}
	return g
}
