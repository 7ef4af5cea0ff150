package proxy

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// errTooLong ends a request that took longer than Limits.RequestTimeout.
var errTooLong = errors.New("the request took longer than limits.request_timeout")

// clock ends an exchange that takes too long: it cancels the request's context, which frees what waits for the origin,
// and bounds what waits for the client.
type clock struct {
	limit  time.Duration
	cancel context.CancelCauseFunc
	client *http.ResponseController

	mu    sync.Mutex // guards what follows
	timer *time.Timer
	over  bool // the exchange has ended: its connection may be another's by now
}

// startClock bounds ex from now on, where there is a limit. What it returns must be called at the end.
func (ex *exchange) startClock(limit time.Duration) (stop func()) {
	if limit == 0 {
		return func() {}
	}
	c := &clock{limit: limit, client: http.NewResponseController(ex.writer)}
	ex.ctx, c.cancel = context.WithCancelCause(ex.ctx)
	c.timer = time.AfterFunc(limit, c.strike)
	ex.clock = c
	return c.stop
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
	c.cancel(errTooLong)
	_ = c.client.SetReadDeadline(time.Now())
	_ = c.client.SetWriteDeadline(time.Now().Add(lingering))
}

func (c *clock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.timer.Stop()
	c.cancel(nil)
}
