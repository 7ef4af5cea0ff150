package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/timelimit"
)

// A connection that is not made in time is a time-out of the network, and says after how long.
func TestConnectTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := timelimit.New(t.Context(), connectTimeout, errConnectTimeout)
		defer limit.End()
		g := New(Options{})
		g.dialer.ControlContext = func(ctx context.Context, _, _ string, _ syscall.RawConn) error {
			<-ctx.Done()
			return ctx.Err()
		}
		begin := time.Now()
		_, err := g.dialOne(limit, "tcp", netip.MustParseAddrPort("192.0.2.1:80"))
		var failure net.Error
		if !errors.As(err, &failure) || !failure.Timeout() || !strings.Contains(err.Error(), "no connection within 5s") {
			t.Errorf("dialling an address that does not answer: %v", err)
		}
		if took := time.Since(begin); took != connectTimeout {
			t.Errorf("it took %v, want %v", took, connectTimeout)
		}
	})
}

// hangs never connects; after d it fails, or connects to itself.
func hangs(d time.Duration, err error, closed *bool) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		c, _ := net.Pipe()
		return &noted{c, closed}, nil
	}
}

type noted struct {
	net.Conn
	closed *bool
}

func (c *noted) Close() error {
	*c.closed = true
	return c.Conn.Close()
}

func TestRace(t *testing.T) {
	bad, worse := errors.New("bad"), errors.New("worse")
	for name, row := range map[string]struct {
		first, second   time.Duration
		firstErr, other error
		want            time.Duration
		err             error
		winner          int
	}{
		"the first at once":      {first: 10 * time.Millisecond, second: time.Second, want: 10 * time.Millisecond, winner: 1},
		"the second after 300ms": {first: time.Second, second: 10 * time.Millisecond, want: 310 * time.Millisecond, winner: 2},
		"the first fails":        {first: 20 * time.Millisecond, firstErr: bad, second: time.Second, want: 1020 * time.Millisecond, winner: 2},
		"both fail":              {first: 20 * time.Millisecond, firstErr: bad, second: time.Second, other: worse, want: 1020 * time.Millisecond, err: bad},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var closed [2]bool
				begin := time.Now()
				c, err := race(t.Context(), hangs(row.first, row.firstErr, &closed[0]), hangs(row.second, row.other, &closed[1]))
				if err != row.err || time.Since(begin) != row.want {
					t.Errorf("race: %v after %v, want %v after %v", err, time.Since(begin), row.err, row.want)
				}
				synctest.Wait()
				if c == nil {
					return
				}
				if closed != [2]bool{} {
					t.Error("the connection is closed")
				}
				c.Close()
				if !closed[row.winner-1] {
					t.Errorf("the result is not that of %d", row.winner)
				}
			})
		})
	}
}
