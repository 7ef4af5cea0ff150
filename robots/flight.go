package robots

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
)

// purpose is what a flight is to bring.
type purpose uint8

const (
	onExpiry purpose = iota // a Snapshot that has not expired
	early                   // one in the place of another that is about to expire; nobody waits for it
	anyway                  // one that the origin was asked for
	erase                   // none: what is kept is to be forgotten
	toJudge                 // a Snapshot that has not expired, for another flight, which such a one does not wait for
)

// errand is what a flight is sent for. Of an origin's errands one at a time is under way, and those who have the next join
// it; therefore only a flight writes to the memory and the Store. Beside it there may be one with the purpose toJudge: see
// writers.
type errand struct {
	origin  origin.Origin
	key     uint64
	asker   Asker
	purpose purpose
}

// landing is what a flight comes back with.
type landing struct {
	snap   *Snapshot
	asked  bool // the origin, and did not just look at what is kept
	erased bool
}

// fulfils reports whether who joined the flight has what he wanted.
func (l landing) fulfils(p purpose) bool {
	switch p {
	case erase:
		return l.erased
	case anyway:
		return l.asked
	default:
		return l.snap != nil
	}
}

// send waits until a flight for e has landed or ctx has ended. The flight is everybody's: that one caller leaves must not
// end it, so it does not see ctx.
func (c *Cache) send(ctx context.Context, e errand) (landing, error) {
	f := c.start(e, true)
	select {
	case <-f.done:
		return f.result(e.asker.Client)
	case <-ctx.Done():
		f.pass.leave(e.asker.Client)
		return landing{}, fmt.Errorf("robots: waiting for %s: %w", e.origin, ctx.Err())
	}
}

// await returns the Snapshot that e is for.
func (c *Cache) await(ctx context.Context, e errand) (*Snapshot, error) {
	for {
		l, err := c.send(ctx, e)
		switch {
		case l.erased: // the error, if there is one, is another's
		case err == errAgain:
		case err != nil:
			return nil, err
		case l.fulfils(e.purpose) && l.snap.countsFor(e.asker.Client):
			c.counts.served(l.snap)
			return l.snap, nil
		}
	}
}

// Purge forgets o, in memory and in the Store, and with it for how long it was unreachable. A fetch under way is waited
// for, since it would bring back what is to be forgotten. The error is that of the Store, or of ctx.
func (c *Cache) Purge(ctx context.Context, o origin.Origin) error {
	e := errand{origin: o, key: c.key(o), purpose: erase}
	for {
		l, err := c.send(ctx, e)
		if l.fulfils(erase) || ctx.Err() != nil || c.life.Err() != nil {
			return err
		}
	}
}

// fly runs f. What it returns is what all who wait get: ristretto may drop a Set, so nothing is ever read back from it here.
func (c *Cache) fly(ctx context.Context, f *flight) (l landing, err error) {
	e := f.errand
	if err := c.begin(); err != nil {
		return landing{}, fmt.Errorf("robots: fetching for %s: %w", e.origin, err)
	}
	defer c.busy.Done()
	defer func() {
		if v := recover(); v != nil {
			l, err = landing{erased: e.purpose == erase}, fmt.Errorf("robots: fetching for %s: panic: %v", e.origin, v)
		}
	}()
	if e.purpose == erase {
		return landing{erased: true}, c.erase(e)
	}
	f.purges = c.purges.Load()
	f.seen = c.inMemory(e.key, e.origin)
	before, enough := c.look(ctx, f)
	if enough {
		return landing{snap: before}, nil
	}
	if err := c.outages.of(e, time.Now()); err != nil {
		return c.outlast(f, before, err)
	}
	if err := c.enter(ctx, f.pass, e.origin); err != nil {
		return c.outlast(f, before, c.refused(e, err))
	}
	defer f.pass.end()
	c.writing.enter(e.origin)()                            // a flight that had the turn before may still write
	if now := c.inMemory(e.key, e.origin); now != f.seen { // another flight has been here
		f.seen = now
		if before, enough = c.look(ctx, f); enough {
			return landing{snap: before}, nil
		}
	}
	return c.ask(ctx, f, before)
}

func (c *Cache) refused(e errand, err error) error {
	if errors.Is(err, ErrBusy) {
		c.counts.busy.Add(1)
	}
	return fmt.Errorf("robots: fetching for %s: %w", e.origin, err)
}

// look returns what is kept, and whether that is enough for e. Also the memory is looked into again. Otherwise: A and B
// miss; A's flight lands and is forgotten; B, who was slower, begins another.
func (c *Cache) look(ctx context.Context, f *flight) (before *Snapshot, enough bool) {
	e := f.errand
	if before = c.inMemory(e.key, e.origin); before != nil {
		return before, before.enoughFor(e)
	}
	stored := c.loadInTurn(ctx, f)
	if stored == nil {
		return nil, false
	}
	if err := f.pass.compile(ctx, func() { stored.prepare() }); err != nil {
		return nil, false
	}
	if !stored.enoughFor(e) {
		return stored, false
	}
	c.counts.storeHits.Add(1)
	c.remember(e.key, stored)
	return stored, true
}

// loadInTurn returns what the Store has of f's origin. It returns nil if there is nothing, or if that takes too long.
func (c *Cache) loadInTurn(ctx context.Context, f *flight) (snap *Snapshot) {
	if !c.saver.trusts(f.origin) {
		return nil
	}
	turn, cancel := context.WithTimeout(ctx, storePatience)
	defer cancel()
	_ = f.pass.load(turn, func() { snap, _ = c.load(ctx, f.origin) }) // what fails was told, or ctx has ended
	return snap
}

func (s *Snapshot) enoughFor(e errand) bool {
	switch now := time.Now(); {
	case s == nil || e.purpose == anyway || !s.countsFor(e.asker.Client):
		return false
	case e.purpose == early:
		return s.freshAt(now) && now.Before(s.Renewal())
	default:
		return s.freshAt(now)
	}
}

// countsFor reports whether s counts for client. A fetch that ended since no caller waited for it is a failure for the client
// that began it: by leaving each time, it could have an origin asked without end. Other clients did not cause the failure,
// and may ask again.
func (s *Snapshot) countsFor(client string) bool {
	failure, ok := s.Err.(*unwantedError)
	return !ok || failure.client == client
}

// ask fetches e's file where before, which may be nil, was kept until now, and keeps what counts then.
func (c *Cache) ask(ctx context.Context, f *flight, before *Snapshot) (landing, error) {
	e := f.errand
	if snap := c.spare(f, before); snap != nil {
		return landing{snap: snap}, nil
	}
	c.counts.fetches.Add(1)
	f.pass.asked = true
	answer, err := c.options.Fetch(ctx, Request{Origin: e.origin, Asker: e.asker, Previous: before, NoPages: e.purpose == toJudge})
	if err != nil {
		c.space(f.pass, e.origin, nil)
		c.outages.note(e, err, time.Now())
		if cause := context.Cause(ctx); cause == errUnwanted || cause == errSlow {
			err = fmt.Errorf("robots: fetching for %s: %w", e.origin, cause)
		}
		return c.outlast(f, before, err)
	}
	c.counts.answered(answer)
	_, unwanted := answer.Err.(*unwantedError)
	if e.purpose == early && answer.Availability == Unreachable && (before.countsOn() || before != nil && unwanted) {
		c.space(f.pass, e.origin, before)
		return landing{snap: before}, nil
	}
	snap := weigh(before, answer, c.options.UnreachableAllows)
	c.space(f.pass, e.origin, snap.prepare())
	defer c.writing.enter(e.origin)() // before the turn is given back, so that the next flight finds the result
	f.pass.end()
	if e.purpose != toJudge || answer.Marks&RedirectRefused == 0 { // else another flight may follow that redirect
		c.keepLocked(f, snap, before)
	}
	return landing{snap: snap, asked: true}, nil
}

// countsOn reports whether s, which is no copy of rules, holds in spite of a failure: that we asked before its end must not
// close the site.
func (s *Snapshot) countsOn() bool { return s != nil && !s.isGood() && s.freshAt(time.Now()) }

// spare returns what counts while the host is paused, or nil where the origin must be asked all the same.
func (c *Cache) spare(f *flight, before *Snapshot) *Snapshot {
	e := f.errand
	now, until := time.Now(), c.options.Paused(e.origin.Host())
	switch {
	case before == nil || e.purpose == anyway || !now.Before(until):
		return nil
	case e.purpose == early && before.freshAt(now):
		return before
	}
	stale := before.wait(now, until, errPaused)
	if stale != nil {
		c.keep(f, stale.prepare(), before)
	}
	return stale
}

// outlast returns the older copy that counts until f has its turn, if err is that this comes later, or else err.
func (c *Cache) outlast(f *flight, before *Snapshot, err error) (landing, error) {
	var later *LaterError
	now := time.Now()
	if f.purpose == anyway || !errors.As(err, &later) || !later.At.After(now) || before == nil || before.freshAt(now) {
		return landing{}, err
	}
	stale := before.wait(now, later.At, later)
	if stale == nil {
		return landing{}, err
	}
	c.keep(f, stale.prepare(), before)
	return landing{snap: stale}, nil
}

// keep takes snap into the memory, has it saved, and reports a change if it differs from before. A flight that was
// overtaken by another one to the same origin, or by a purge, keeps nothing.
func (c *Cache) keep(f *flight, snap, before *Snapshot) {
	defer c.writing.enter(f.origin)()
	c.keepLocked(f, snap, before)
}

// keepLocked is keep for a caller that has entered writing.
func (c *Cache) keepLocked(f *flight, snap, before *Snapshot) {
	snap.Client = f.asker.Client
	other := c.inMemory(f.key, f.origin)
	if other != f.seen && other != nil && other.Fetched.After(snap.Fetched) || c.purges.Load() != f.purges {
		return
	}
	change := changeOf(before, snap)
	c.save(snap, change)
	c.remember(f.key, snap)
	if change != nil {
		c.counts.changes.Add(1)
		c.options.Changed(*change)
	}
}
