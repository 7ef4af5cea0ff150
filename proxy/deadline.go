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

// deadline ends an exchange that takes longer than Limits.RequestTimeout. It cancels the request's context, which ends waits
// for the origin, and sets deadlines on the connection, which end waits for the client. The methods of a nil deadline do nothing.
type deadline struct {
	ex    *exchange
	limit time.Duration

	mu    sync.Mutex // guards timer and over
	timer *time.Timer
	over  bool // the exchange has ended: the connection may serve another request
}

// startDeadline starts the deadline of ex, unless limit is zero. The caller must stop it when the exchange ends.
func (ex *exchange) startDeadline(limit time.Duration) {
	if limit == 0 {
		return
	}
	ex.deadline = &deadline{ex: ex, limit: limit}
	ex.deadline.timer = time.AfterFunc(limit, ex.deadline.expire)
}

// pause stops the timer while the request waits for the pace, which has its own limit.
func (d *deadline) pause() {
	if d != nil {
		d.timer.Stop()
	}
}

// restart starts the timer again, with the whole limit.
func (d *deadline) restart() {
	if d != nil {
		d.timer.Reset(d.limit)
	}
}

// expire ends the exchange. It leaves http1.LingerTime for a last answer to the client.
func (d *deadline) expire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return
	}
	d.ex.cancel(errTooLong)
	client := http.NewResponseController(d.ex.response.ResponseWriter)
	_ = client.SetReadDeadline(time.Now())
	_ = client.SetWriteDeadline(time.Now().Add(http1.LingerTime))
}

func (d *deadline) stop() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	d.timer.Stop()
}
