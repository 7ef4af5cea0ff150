package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A web is many hosts, each with a Delay, of which a few are visited by all clients.
type web struct {
	t       *testing.T
	limiter *Limiter
	hosts   []*webHost
}

type webHost struct {
	site
	key   string
	delay time.Duration
	busy  bool // its requests are answered 503 now and then

	asleep []nap // since its host pushed back
}

type nap struct{ from, until time.Time }

const (
	webHosts   = 10_000
	webWanted  = 10 // the first ones, with a Delay of a second
	webClients = 1000
	webVisits  = 40 // of each client, a quarter of them to one host that is wanted
)

func newWeb(t *testing.T) *web {
	w := &web{t: t, limiter: newLimiter(t, Options{MaxConcurrent: 2})}
	delays := []time.Duration{0, 100 * time.Millisecond, time.Second, 30 * time.Second}
	for i := range webHosts {
		h := &webHost{key: fmt.Sprintf("host-%d.example", i), delay: delays[i%len(delays)], busy: i%50 == 49}
		if i < webWanted {
			h.delay = time.Second
		}
		h.site.limiter = w.limiter
		w.hosts = append(w.hosts, h)
	}
	return w
}

// client makes its visits one after another. One in eleven clients cancels most of its requests.
func (w *web) client(id int) {
	rng := rand.New(rand.NewPCG(uint64(id), 7))
	name := fmt.Sprint(id)
	for i := range webVisits {
		h := w.hosts[id%webWanted]
		if i%4 != 0 {
			h = w.hosts[webWanted+rng.IntN(webHosts-webWanted)]
		}
		patience := time.Duration(1<<62 - 1)
		if id%11 == 0 && rng.IntN(3) > 0 {
			patience = time.Duration(rng.IntN(120_000)) * time.Millisecond
		}
		w.visit(h, name, patience, rng)
	}
}

// visit tries until it is served, or for patience.
func (w *web) visit(h *webHost, client string, patience time.Duration, rng *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		err := h.visit(ctx, Request{Key: h.key, Client: client, Delay: h.delay, MaxWait: time.Hour}, time.Duration(rng.IntN(200))*time.Millisecond)
		var we *WaitError
		switch {
		case err == nil:
			h.answer(w.limiter, client, rng)
			return
		case errors.As(err, &we):
			time.Sleep(we.Wait.Round(time.Second) + time.Second)
		case errors.Is(err, context.DeadlineExceeded):
			return
		default:
			w.t.Errorf("Acquire for client %s on %s: %v", client, h.key, err)
			return
		}
	}
}

// answer makes a busy host push back sometimes.
func (h *webHost) answer(l *Limiter, client string, rng *rand.Rand) {
	if !h.busy || rng.IntN(3) > 0 {
		return
	}
	now := time.Now()
	l.Hear(h.key, client, Outcome{Status: 503, RetryAfter: minute})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asleep = append(h.asleep, nap{now, now.Add(minute)})
}

// reload calls Reload once a minute.
func (w *web) reload(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		if err := w.limiter.Reload(Options{MaxConcurrent: 2, MaxQueue: 1000 + i%2}); err != nil {
			w.t.Errorf("Reload: %v", err)
		}
		time.Sleep(minute)
	}
}

// TestWeb has a thousand clients on ten thousand hosts, with cancelled requests, reloads, and hosts that push back: no
// request starts too early or in a pause, no client sees more than one turn of each other, and the hosts that all
// clients visit are always in use.
func TestWeb(t *testing.T) {
	if testing.Short() {
		t.Skip("forty thousand visits")
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t)
		ctx, stop := context.WithCancel(t.Context())
		var clients, others sync.WaitGroup
		others.Go(func() { w.reload(ctx) })
		for id := range webClients {
			clients.Go(func() { w.client(id) })
		}
		clients.Wait()
		stop()
		time.Sleep(time.Hour)
		others.Wait()
		visits, used := 0, 1.0
		for i, h := range w.hosts {
			h.check(t)
			h.checkNaps(t)
			visits += len(h.visits)
			if i < webWanted {
				used = min(used, h.used())
				h.checkTurns(t)
			}
		}
		checkAtRest(t, w.limiter, visits)
		st := w.limiter.Stats()
		t.Logf("%d visits, %d cancelled, %d rejected, %d pauses; %d reservations, %d of them expired; a popular host was used for %.4f of the time at least", visits, st.Abandoned, st.Rejected, st.Paused, st.Reserved, st.Expired, used)
		if used < 0.97 || visits < webClients*webVisits*9/10 || st.Abandoned == 0 || st.Paused == 0 {
			t.Errorf("want a popular host to be used for 0.97 of the time at least, with cancelled requests and pauses")
		}
		time.Sleep(time.Hour)
		if got := sweepAll(w.limiter); got != 0 {
			t.Errorf("%d lanes an hour after the last request, want 0", got)
		}
	})
}

// checkNaps looks for requests that started while the host was paused.
func (h *webHost) checkNaps(t *testing.T) {
	for _, nap := range h.asleep {
		for i, v := range h.visits {
			if v.start.After(nap.from) && v.start.Before(nap.until) {
				t.Errorf("%s: request %d started at %v, in a pause from %v to %v", h.key, i, v.start, nap.from, nap.until)
			}
		}
	}
}

// checkTurns looks for clients that saw more turns of other clients than there are clients.
func (h *webHost) checkTurns(t *testing.T) {
	clients := make(map[string]bool)
	for _, v := range h.visits {
		clients[v.client] = true
	}
	for i, v := range h.visits {
		if v.grantsSinceAsked > len(clients) {
			t.Errorf("%s: request %d: client %s saw %d others go first, of %d", h.key, i, v.client, v.grantsSinceAsked, len(clients))
		}
	}
}

// used returns the part of the time with waiting requests that was used by requests in flight and their Delays.
func (h *webHost) used() float64 {
	var used, passed time.Duration
	for i, v := range h.visits[1:] {
		before := h.visits[i]
		if v.asked.After(before.end) {
			continue // nobody may have waited
		}
		used += before.end.Sub(before.start) + v.delay
		passed += v.start.Sub(before.start)
	}
	return used.Seconds() / passed.Seconds()
}
