package limit

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var discard = slog.New(slog.DiscardHandler)

func TestConns(t *testing.T) {
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	s := NewCounter[netip.Addr](discard, "client_addr", Bound{Max: 3}, Bound{Max: 2})
	first, second := s.Take(a, 1), s.Take(a, 1)
	if first == nil || second == nil || s.Take(a, 1) != nil {
		t.Fatalf("of two shares for one address: %v, %v", first, second)
	}
	if third := s.Take(b, 1); third == nil || s.Take(b, 1) != nil {
		t.Fatal("of three shares in all, the third or the fourth")
	}
	first.Release()
	first.Release() // the second call does nothing
	if s.Take(a, 1) == nil || s.Take(a, 1) != nil {
		t.Error("a share that was released twice counts twice")
	}
	if s.InUse() != 3 || s.Refused() != 3 {
		t.Errorf("%d in use, %d refused; want 3 and 3", s.InUse(), s.Refused())
	}
	if none := NewCounter[netip.Addr](discard, "client_addr", Bound{}, Bound{}); none.Take(a, 1) == nil || len(none.byClient) != 0 {
		t.Error("without limits there is no share, or addresses are remembered")
	}
}

func TestReleasedClientsAreForgotten(t *testing.T) {
	s := NewCounter[netip.Addr](discard, "client_addr", Bound{}, Bound{Max: 10})
	for i := range 1000 {
		s.Take(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 1).Release()
	}
	if len(s.byClient) != 0 {
		t.Errorf("%d addresses are remembered", len(s.byClient))
	}
}

// Each bound that is reached is logged once a minute, with its key.
func TestReachedBoundsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := NewCounter[netip.Addr](slog.New(slog.NewTextHandler(&log, nil)), "client_addr", Bound{Max: 3, Key: "limits.connections"}, Bound{Max: 2, Key: "limits.connections_per_client"})
		take := func(last byte) {
			for range 10 {
				s.Take(netip.AddrFrom4([4]byte{192, 0, 2, last}), 1)
			}
		}
		check := func(all, perClient int) {
			t.Helper()
			text := log.String()
			if a, c := strings.Count(text, "key=limits.connections limit=3"), strings.Count(text, "client_addr=192.0.2.1 key=limits.connections_per_client limit=2"); a != all || c != perClient {
				t.Errorf("logged %d and %d times, want %d and %d: %s", a, c, all, perClient, text)
			}
		}
		take(1)
		check(0, 1)
		take(2)
		check(1, 1)
		time.Sleep(time.Minute - 1)
		take(2)
		check(1, 1)
		time.Sleep(time.Nanosecond)
		take(2)
		check(2, 1)
	})
}

// TestAmounts checks that a share counts by its amount, for its client and for all, and that a refused one counts
// nothing.
func TestAmounts(t *testing.T) {
	q := NewCounter[string](discard, "client", Bound{Max: 10}, Bound{Max: 6})
	one := q.Take("one", 4)
	for _, row := range []struct {
		client string
		n      int
		taken  bool
	}{
		{"one", 3, false},
		{"one", 2, true},
		{"one", 1, false},
		{"other", 7, false},
		{"other", 4, true},
		{"other", 1, false}, // in all
		{"third", 0, true},
	} {
		if got := q.Take(row.client, row.n) != nil; got != row.taken {
			t.Errorf("Take(%q, %d) with %d in use: %v, want %v", row.client, row.n, q.InUse(), got, row.taken)
		}
	}
	one.Release()
	one.Release()
	if q.InUse() != 6 || q.byClient["one"] != 2 || q.Refused() != 4 {
		t.Errorf("%d in use, %d of them by one, %d refused; want 6, 2 and 4", q.InUse(), q.byClient["one"], q.Refused())
	}
}

// New bounds hold for what is taken from then on. What was taken without a bound for each client is never counted for
// one, also when it is released.
func TestSetMax(t *testing.T) {
	q := NewCounter[string](discard, "client", Bound{}, Bound{})
	before := q.Take("one", 5)
	q.SetMax(8, 2)
	for _, row := range []struct {
		n     int
		taken bool
	}{{3, false}, {2, true}, {1, false}} {
		if got := q.Take("one", row.n) != nil; got != row.taken {
			t.Errorf("Take(%d): %v, want %v", row.n, got, row.taken)
		}
	}
	if q.Take("other", 2) != nil {
		t.Error("more is taken than the bound for all")
	}
	before.Release()
	if q.InUse() != 2 || q.byClient["one"] != 2 {
		t.Errorf("%d in use, %d of one; want 2 and 2", q.InUse(), q.byClient["one"])
	}
	q.SetMax(0, 0)
	if q.Take("one", 100) == nil {
		t.Error("nothing is taken without bounds")
	}
}
