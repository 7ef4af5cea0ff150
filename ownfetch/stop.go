package ownfetch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/ratelimit"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// stopped returns the error of a request to a host that an operator has stopped, and records the stop. For a redirect
// to a page it is a RefusedError, and otherwise a LaterError, which says nothing about the file.
func (v *visit) stopped() error {
	host := v.hop.To.Host()
	d, stopped := v.fetches.options.Load().Policy.Stopped(host, time.Now())
	if !stopped {
		return nil
	}
	v.decide(d)
	if v.hop.Page {
		return v.refuse(time.Time{}, stoppedText, host) // not until the end of the stop, which may be lifted before
	}
	return errStopped(host)
}

const stoppedText = "the operator of the proxy has stopped %s"

func errStopped(host string) error { return &fetch.LaterError{Err: fmt.Errorf(stoppedText, host)} }

// sending is a request that waits for its place or for its answer.
type sending struct {
	host   string
	cancel context.CancelCauseFunc
	ended  chan struct{}
}

// sendings are the requests that a stop ends. The zero value is empty.
type sendings struct {
	mu  sync.Mutex // guards all
	all map[*sending]struct{}
}

// add adds a request to host, and returns its context. The caller must cancel ctx later, and call remove before that.
func (s *sendings) add(ctx context.Context, host string) (context.Context, *sending) {
	one := &sending{host: host, ended: make(chan struct{})}
	ctx, one.cancel = context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[*sending]struct{})
	}
	s.all[one] = struct{}{}
	return ctx, one
}

func (s *sendings) remove(one *sending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, one)
	close(one.ended)
}

func (s *sendings) list() []*sending {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*sending, 0, len(s.all))
	for one := range s.all {
		all = append(all, one)
	}
	return all
}

// Send sends an admitted request by t, unless an operator has stopped its host, and returns the answer. EndStopped ends
// a request that has none.
func (f *Fetches) Send(t http.RoundTripper, r *http.Request) (*http.Response, error) {
	o, err := origin.FromURL(r.URL)
	if err != nil {
		return nil, err
	}
	ctx, s := f.sendings.add(r.Context(), o.Host()) // before it looks for a stop: see EndStopped
	defer f.sendings.remove(s)
	if _, stopped := f.options.Load().Policy.Stopped(s.host, time.Now()); stopped {
		return nil, errStopped(s.host)
	}
	resp, err := t.RoundTrip(r.WithContext(ctx))
	if later := (*fetch.LaterError)(nil); err != nil && errors.As(context.Cause(ctx), &later) {
		return nil, later // EndStopped has ended it
	}
	return resp, err
}

// acquire waits for a place in the lane of v. EndStopped ends the wait.
func (v *visit) acquire(ctx context.Context, delay time.Duration) (ratelimit.Grant, error) {
	ctx, s := v.fetches.sendings.add(ctx, v.hop.To.Host())
	defer s.cancel(nil)
	defer v.fetches.sendings.remove(s)
	return v.options.Limiter.Acquire(ctx, v.asked(delay))
}

// EndStopped ends the requests to hosts that a Stop of the Policy holds for, unless they are answered. After it
// returns, no header of such a request is sent until the Stop ends. Call it after Reload.
//
// A request is in f.sendings before it looks for a stop, and EndStopped begins after the Policy is in force. So either
// the request sees the stop, or EndStopped sees the request.
func (f *Fetches) EndStopped() {
	p, now := f.options.Load().Policy, time.Now()
	var ended []*sending
	for _, s := range f.sendings.list() {
		if _, stopped := p.Stopped(s.host, now); stopped {
			s.cancel(errStopped(s.host))
			ended = append(ended, s)
		}
	}
	for _, s := range ended {
		<-s.ended
	}
}
