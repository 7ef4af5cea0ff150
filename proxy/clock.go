package proxy

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/http1"
)

// errTooLong ends a request that took longer than Limits.RequestTimeout.
var errTooLong = errors.New("the request took longer than limits.request_timeout")

// clock ends an exchange that takes too long: it cancels the request's context, which frees what waits for the origin,
// and bounds what waits for the client.
type clock struct {
	ex    *exchange
	limit time.Duration

	mu    sync.Mutex // guards what follows
	timer *time.Timer
	over  bool // the exchange has ended: its connection may be another's by now
}

// startClock bounds ex from now on, where there is a limit. The clock must be stopped at the end.
func (ex *exchange) startClock(limit time.Duration) {
	if limit == 0 {
		return
	}
	ex.clock = &clock{ex: ex, limit: limit}
	ex.clock.timer = time.AfterFunc(limit, ex.clock.strike)
}

// pause stops the clock while the request waits for its turn, which has a bound of its own. A nil clock does nothing.
func (c *clock) pause() {
	if c != nil {
		c.timer.Stop()
	}
}

// restart begins the time anew.
func (c *clock) restart() {
	if c != nil {
		c.timer.Reset(c.limit)
	}
}

// strike ends the exchange. What is left to say to the client has the time of a farewell.
func (c *clock) strike() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.ex.cancel(errTooLong)
	client := http.NewResponseController(c.ex.writer)
	_ = client.SetReadDeadline(time.Now())
	_ = client.SetWriteDeadline(time.Now().Add(http1.LingerTime))
}

// stop ends the clock with its exchange.
func (c *clock) stop() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.timer.Stop()
}
