package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/dnstest"
)

// The answer for a name is kept, and each dial judges its address anew.
func TestKeptNamesAreJudged(t *testing.T) {
	site, came := listenOn(t, "127.0.0.2:0")
	names := dnstest.New(t)
	names.Set("a.example", []string{"127.0.0.2"})
	g := New(Options{
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Resolver: names.Resolver(), KeepNames: time.Minute,
	})
	addr := fmt.Sprintf("a.example:%d", site.Addr().(*net.TCPAddr).Port)
	for range 3 {
		c, err := g.DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	g.Protect(site.Addr())
	if _, err := g.DialContext(t.Context(), "tcp", addr); !Prohibited(err) {
		t.Errorf("dialling an address that is prohibited now: %v", err)
	}
	if n := names.Questions("a.example"); n != 1 || came() > 3 {
		t.Errorf("%d questions and %d connections, want 1 and 3", n, came())
	}
	other := g.With(Options{Allow: g.options.Allow, KeepNames: time.Minute})
	if _, err := other.DialContext(t.Context(), "tcp", addr); !Prohibited(err) || names.Questions("a.example") != 2 {
		t.Errorf("another Guard: %v, after %d questions; want 2", err, names.Questions("a.example"))
	}
}

// A name that does not exist is asked for again after some seconds; another failure is not kept.
func TestKeptFailures(t *testing.T) {
	names := dnstest.New(t)
	g := New(Options{Resolver: names.Resolver(), KeepNames: time.Minute})
	for range 3 {
		var failure *net.DNSError
		if _, err := g.DialContext(t.Context(), "tcp", "gone.example:80"); !errors.As(err, &failure) || !failure.IsNotFound {
			t.Errorf("dialling a name that does not exist: %v", err)
		}
	}
	if n := names.Questions("gone.example"); n != 1 {
		t.Errorf("%d questions, want 1", n)
	}
	var dials atomic.Int64
	g = New(Options{KeepNames: time.Minute, Resolver: &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		dials.Add(1)
		return nil, errors.New("no network")
	}}})
	for range 2 {
		before := dials.Load()
		if _, err := g.DialContext(t.Context(), "tcp", "a.example:80"); err == nil || dials.Load() == before {
			t.Errorf("a failure of the network: %v, after %d dials", err, dials.Load()-before)
		}
	}
}

// A name whose addresses do not answer is looked up again, since its site may have moved.
func TestNamesThatDoNotAnswerAreForgotten(t *testing.T) {
	site, _ := listenOn(t, "127.0.0.2:0")
	names := dnstest.New(t)
	names.Set("moves.example", []string{"127.0.0.3"}, []string{"127.0.0.2"})
	g := New(Options{
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Resolver: names.Resolver(), KeepNames: time.Minute,
	})
	addr := fmt.Sprintf("moves.example:%d", site.Addr().(*net.TCPAddr).Port)
	if _, err := g.DialContext(t.Context(), "tcp", addr); err == nil {
		t.Fatal("127.0.0.3 answers")
	}
	c, err := g.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatalf("after the move: %v", err)
	}
	c.Close()
}

func TestLifetimeOfNames(t *testing.T) {
	kept := newNames(nil, time.Minute)
	least, most := time.Hour, time.Duration(0)
	for range 1000 {
		d := kept.lifetime(nil)
		least, most = min(least, d), max(most, d)
	}
	if least < time.Minute || most > 2*time.Minute || most-least < time.Minute/2 {
		t.Errorf("answers are kept for %v to %v, want 1m to 2m", least, most)
	}
	notFound, broken := &net.DNSError{IsNotFound: true}, &net.DNSError{IsTemporary: true}
	if a, b := kept.lifetime(notFound), kept.lifetime(broken); a != notFoundTTL || b != 0 {
		t.Errorf("failures are kept for %v and %v, want %v and 0", a, b, notFoundTTL)
	}
	if d := newNames(nil, 0).lifetime(notFound); d != 0 {
		t.Errorf("without a ttl a failure is kept for %v", d)
	}
}

// hanging returns a Resolver whose questions wait until release is called, and counts them.
func hanging() (_ *net.Resolver, asked *atomic.Int64, release func()) {
	released := make(chan struct{})
	asked = new(atomic.Int64)
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		asked.Add(1)
		select {
		case <-released:
		case <-ctx.Done():
		}
		return nil, errors.New("no network")
	}}, asked, sync.OnceFunc(func() { close(released) })
}

// Many callers share a question. One that leaves does not end it, the last one does.
func TestSharedQuestion(t *testing.T) {
	resolver, _, release := hanging()
	defer release()
	names := newNames(resolver, time.Minute)
	var all sync.WaitGroup
	contexts := make([]context.CancelFunc, 20)
	for i := range contexts {
		ctx, cancel := context.WithCancel(t.Context())
		contexts[i] = cancel
		all.Go(func() {
			if _, err := names.of(ctx, "a.example"); !errors.Is(err, context.Canceled) {
				t.Errorf("a caller that left got %v", err)
			}
		})
	}
	waiting := func() (asked *name, n int) {
		names.mu.Lock()
		defer names.mu.Unlock()
		if asked = names.known["a.example"]; asked != nil {
			n = asked.waiting
		}
		return asked, n
	}
	for _, n := waiting(); n < len(contexts); _, n = waiting() {
		time.Sleep(time.Millisecond)
	}
	asked, _ := waiting()
	for _, cancel := range contexts {
		cancel()
	}
	all.Wait()
	if now, _ := waiting(); now != nil {
		t.Error("the question goes on although all callers have left")
	}
	select {
	case <-asked.done: // its context has ended
	case <-time.After(10 * time.Second):
		t.Error("the look-up goes on although all callers have left")
	}
}

// The memory is bounded; questions under way and answers that are over make no difference.
func TestNamesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNames(nil, time.Minute)
		add := func(from, to int, expires time.Time) {
			for i := from; i < to; i++ {
				n.mu.Lock()
				n.makeRoom()
				n.known[fmt.Sprintf("%d.example", i)] = &name{expires: expires}
				n.mu.Unlock()
			}
		}
		add(0, maxNames/2, time.Now().Add(time.Second))
		add(maxNames/2, maxNames, time.Now().Add(time.Hour))
		time.Sleep(time.Minute)
		add(maxNames, maxNames+1, time.Now().Add(time.Hour))
		if got := len(n.known); got != maxNames/2+1 {
			t.Errorf("%d names are kept, want the %d that are not over", got, maxNames/2+1)
		}
		add(maxNames+1, 3*maxNames, time.Now().Add(time.Hour))
		if got := len(n.known); got > maxNames {
			t.Errorf("%d names are kept, want %d at most", got, maxNames)
		}
	})
}
