package egress

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/timelimit"
)

const (
	connectTimeout = 5 * time.Second
	// fallbackDelay is the time after which the addresses of the other family are tried too (RFC 8305 section 5).
	fallbackDelay = 300 * time.Millisecond
)

// errConnectTimeout is the cause of a dial that ended because of connectTimeout.
var errConnectTimeout = &timeoutError{"no connection within " + connectTimeout.String()}

// timeoutError is a net.Error.
type timeoutError struct{ text string }

func (e *timeoutError) Error() string { return e.text }
func (*timeoutError) Timeout() bool   { return true }
func (*timeoutError) Temporary() bool { return true }

// dial connects to one of the addresses of a name, at least one: to those of the family that the resolver put first, and
// a moment later to the others too. It tries only those that are permitted, and each of them is judged once more when it
// is dialled. The error is that of the first address that failed, but one that is Exhausted comes first, or a
// *ProhibitedError if none is permitted.
func (g *Guard) dial(ctx context.Context, network string, all []netip.AddrPort) (net.Conn, error) {
	permitted := slices.DeleteFunc(slices.Clone(all), func(ap netip.AddrPort) bool { return g.check(ap) != nil })
	if len(permitted) == 0 {
		return nil, &net.OpError{Op: "dial", Net: network, Err: g.check(all[0])}
	}
	limit := timelimit.New(ctx, connectTimeout, errConnectTimeout)
	defer limit.End()
	first, other := families(permitted)
	if len(other) == 0 {
		return g.dialEach(limit, network, first)
	}
	return race(limit,
		func(ctx context.Context) (net.Conn, error) { return g.dialEach(ctx, network, first) },
		func(ctx context.Context) (net.Conn, error) { return g.dialEach(ctx, network, other) },
	)
}

// families returns the addresses of the family of the first one, and the others.
func families(all []netip.AddrPort) (first, other []netip.AddrPort) {
	for _, ap := range all {
		if ap.Addr().Is4() == all[0].Addr().Is4() {
			first = append(first, ap)
		} else {
			other = append(other, ap)
		}
	}
	return first, other
}

// dialEach dials one address after the other. Each gets an equal part of the time that is left.
func (g *Guard) dialEach(ctx context.Context, network string, all []netip.AddrPort) (net.Conn, error) {
	var failure error
	left := connectTimeout
	for i, ap := range all {
		part := left / time.Duration(len(all)-i)
		limit := timelimit.New(ctx, part, errConnectTimeout)
		c, err := g.dialOne(limit, network, ap)
		limit.End()
		left -= part - limit.Left()
		if err == nil {
			return c, nil
		}
		failure = reported(failure, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, failure
}

// dialOne dials ap. ctx may end because of errConnectTimeout.
func (g *Guard) dialOne(ctx context.Context, network string, ap netip.AddrPort) (net.Conn, error) {
	c, err := g.dialer.DialContext(ctx, network, ap.String())
	if err != nil && context.Cause(ctx) == error(errConnectTimeout) {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: net.TCPAddrFromAddrPort(ap), Err: errConnectTimeout}
	}
	return c, err
}

// race calls first, and second after fallbackDelay or when first has failed. It returns the result of the one that
// succeeds first, or the error of the one that failed first; but one that is Exhausted comes first.
func race(ctx context.Context, first, second func(context.Context) (net.Conn, error)) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result)
	lost := make(chan struct{}) // closed when the race is over
	defer close(lost)
	run := func(dial func(context.Context) (net.Conn, error)) {
		c, err := dial(ctx)
		select {
		case results <- result{c, err}:
		case <-lost:
			if c != nil {
				c.Close()
			}
		}
	}
	go run(first)
	timer := time.NewTimer(fallbackDelay)
	defer timer.Stop()
	var failure error
	running, begun := 1, false
	for {
		select {
		case <-timer.C:
		case r := <-results:
			if r.err == nil {
				return r.conn, nil
			}
			running--
			failure = reported(failure, r.err)
		}
		if !begun {
			begun = true
			running++
			go run(second)
		}
		if running == 0 {
			return nil, failure
		}
	}
}
