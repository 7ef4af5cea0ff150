package robots

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
	"github.com/robotsproxy/robotsproxy/rules"
)

// join waits until a job for j has ended or ctx has. The job does not see ctx, since other callers may wait for it too.
// When late fires, join returns a *BusyError if the job waits for its turn; it sets late again if the job does not.
func (c *Cache) join(ctx context.Context, j job, late *time.Timer) (result, error) {
	f := c.start(j, true)
	for {
		select {
		case <-f.done:
			return f.outcome(j.asker.Client)
		case <-ctx.Done():
			f.pass.removeCaller(j.asker.Client)
			return result{}, fmt.Errorf("robots: waiting for %s: %w", j.origin, ctx.Err())
		case <-late.C:
			if err := f.pass.leaveLate(j.asker.Client); err != nil {
				return result{}, c.refused(j, err)
			}
			late.Reset(time.Second) // it may have to wait once more, after a redirect
		}
	}
}

// await returns the Snapshot for j.
func (c *Cache) await(ctx context.Context, j job) (*Snapshot, error) {
	late := time.NewTimer(max(time.Second, cmp.Or(j.asker.MaxWait, c.options.Load().MaxWait)))
	defer late.Stop()
	for {
		r, err := c.join(ctx, j, late)
		switch {
		case r.erased: // any error is that of the purge
		case err == errAgain:
		case err != nil:
			return nil, err
		case r.fulfils(j.purpose) && r.snap.countsFor(j.asker.Client):
			c.counts.served(r.snap)
			return r.snap, nil
		}
	}
}

// Purge removes o from the memory and the Store, with the time since which it is unreachable. It first waits for a
// fetch under way, which would bring back what is removed. It returns the error of the Store or of ctx.
func (c *Cache) Purge(ctx context.Context, o origin.Origin) error {
	j := job{origin: o, key: c.key(o), purpose: erase}
	for {
		r, err := c.join(ctx, j, new(time.Timer))
		if r.fulfils(erase) || ctx.Err() != nil || c.life.Err() != nil {
			return err
		}
	}
}

// do does the job of f. It returns what it fetched, and does not read it back from ristretto, which may drop a Set.
func (c *Cache) do(ctx context.Context, f *inflight) (r result, err error) {
	if err := c.begin(); err != nil {
		return result{}, fmt.Errorf("robots: fetching for %s: %w", f.origin, err)
	}
	defer c.busy.Done()
	defer func() {
		if v := recover(); v != nil {
			r, err = result{erased: f.purpose == erase}, fmt.Errorf("robots: fetching for %s: panic: %v", f.origin, v)
		}
	}()
	if f.purpose == erase {
		return result{erased: true}, c.erase(f.job)
	}
	f.purges = c.purges.Load()
	f.seen = c.inMemory(f.key, f.origin)
	before, enough := c.look(ctx, f)
	if enough {
		return result{snap: before}, nil
	}
	if err := c.outages.of(f.job, time.Now()); err != nil {
		return c.orOlder(f, before, err)
	}
	defer func() { c.endClaim(f.release) }()
	defer f.pass.end()
	before, enough, err = c.enterAlone(ctx, f, before)
	if err != nil {
		return c.orOlder(f, before, c.refused(f.job, err))
	}
	if enough {
		return result{snap: before}, nil
	}
	return c.ask(ctx, f, before)
}

func (c *Cache) refused(j job, err error) error {
	if errors.Is(err, ErrBusy) {
		c.counts.busy.Add(1)
	}
	return fmt.Errorf("robots: fetching for %s: %w", j.origin, err)
}

// look returns the Snapshot that is kept for f, and whether it is enough. It looks into the memory again, since this
// can happen: callers A and B find nothing there; the job of A ends and leaves the pool; B starts another job.
func (c *Cache) look(ctx context.Context, f *inflight) (before *Snapshot, enough bool) {
	if before = c.inMemory(f.key, f.origin); before != nil {
		return before, before.enoughFor(f.job)
	}
	stored := c.loadInTurn(ctx, f)
	if stored == nil {
		return nil, false
	}
	if err := f.pass.parse(ctx, func() { stored.prepare() }); err != nil {
		return nil, false
	}
	if !stored.enoughFor(f.job) {
		return stored, false
	}
	c.counts.storeHits.Add(1)
	c.rememberFor(f, stored)
	return stored, true
}

// loadInTurn returns the Snapshot of f's origin in the Store, or nil if there is none or if that takes too long.
func (c *Cache) loadInTurn(ctx context.Context, f *inflight) (snap *Snapshot) {
	if !c.saver.trusts(f.origin) {
		return nil
	}
	turn, cancel := context.WithTimeout(ctx, storePatience)
	defer cancel()
	_ = f.pass.load(turn, func() { snap, _ = c.load(ctx, f.origin) }) // load has reported its error, or ctx has ended
	return snap
}

func (s *Snapshot) enoughFor(j job) bool {
	switch now := time.Now(); {
	case s == nil || j.purpose == anyway || !s.countsFor(j.asker.Client):
		return false
	case j.purpose == early:
		return s.freshAt(now) && now.Before(s.Renewal())
	default:
		return s.freshAt(now)
	}
}

// countsFor reports whether s counts for client. A fetch that ended because no caller waited for it is a failure for
// the client that began it: without that, a client that always leaves could have an origin asked without end. Other
// clients did not cause the failure, and may ask again.
func (s *Snapshot) countsFor(client string) bool {
	failure, ok := s.Err.(*unwantedError)
	return !ok || failure.client == client
}

// ask fetches the file of f and keeps what counts then. Before was kept until now, and may be nil.
func (c *Cache) ask(ctx context.Context, f *inflight, before *Snapshot) (result, error) {
	if snap := c.spare(f, before); snap != nil {
		return result{snap: snap}, nil
	}
	c.counts.fetches.Add(1)
	f.pass.asked = true
	begin := time.Now()
	answer, err := c.options.Load().Fetch(ctx, f.request(before))
	if fetched := c.options.Load().Fetched; fetched != nil {
		fetched(answer, err, time.Since(begin))
	}
	if err != nil {
		c.space(f.pass, f.origin, nil)
		c.outages.note(f.job, err, time.Now())
		if cause := context.Cause(ctx); errors.As(cause, new(*fetch.GiveUpError)) {
			err = fmt.Errorf("robots: fetching for %s: %w", f.origin, cause)
		}
		return c.orOlder(f, before, err)
	}
	c.counts.answered(answer)
	_, unwanted := answer.Err.(*unwantedError)
	if f.purpose == early && answer.Availability == Unreachable && (before.countsOn() || before != nil && unwanted) {
		c.space(f.pass, f.origin, before)
		return result{snap: before}, nil
	}
	snap := supersede(before, f.snapshot(answer, before), c.options.Load().UnreachableAllows)
	c.space(f.pass, f.origin, snap.prepare())
	if f.purpose != toJudge || answer.Flags&RedirectRefused == 0 { // else another job may follow that redirect
		c.keep(f, snap, before)
	}
	return result{snap: snap, asked: true}, nil
}

// request returns the request of f, which is conditional if before can be validated.
func (f *inflight) request(before *Snapshot) fetch.Request {
	r := fetch.Request{Origin: f.origin, Asker: f.asker, NoPages: f.purpose == toJudge, Queue: f.pass}
	if before != nil {
		previous := before.Answer
		if before.Stale {
			previous.Flags &^= WebPage // of the web page that came after the copy
		}
		r.Previous = &previous
	}
	return r
}

// snapshot returns the Snapshot of answer, with the rules of before if answer has validated them.
func (f *inflight) snapshot(answer *Answer, before *Snapshot) *Snapshot {
	snap := &Snapshot{Answer: *answer}
	switch {
	case answer.Availability != Found:
		snap.Rules = &rules.Ruleset{}
	case answer.Validated() && before != nil:
		snap.Rules = before.Rules
	default:
		snap.Rules = f.pass.rules // nil if Fetch did not call Queue.Parse
	}
	return snap
}

// countsOn reports whether s, which has no rules, stays in use after a failed renewal: that we asked early must not
// close the site.
func (s *Snapshot) countsOn() bool { return s != nil && !s.isGood() && s.freshAt(time.Now()) }

// spare returns the Snapshot that counts while the host is paused, or nil if the origin must be asked all the same.
func (c *Cache) spare(f *inflight, before *Snapshot) *Snapshot {
	now, until := time.Now(), c.options.Load().Paused(f.origin.Host())
	switch {
	case before == nil || f.purpose == anyway || !now.Before(until):
		return nil
	case f.purpose == early && before.freshAt(now):
		return before
	}
	return c.extend(f, before, now, until, errPaused)
}

// orOlder returns the older copy that counts until f has its turn, if err is a *fetch.LaterError and there is such a
// copy, or else err.
func (c *Cache) orOlder(f *inflight, before *Snapshot, err error) (result, error) {
	var later *fetch.LaterError
	now := time.Now()
	if f.purpose == anyway || !errors.As(err, &later) || !later.At.After(now) || before == nil || before.freshAt(now) {
		return result{}, err
	}
	if stale := c.extend(f, before, now, later.At, later); stale != nil {
		return result{snap: stale}, nil
	}
	return result{}, err
}

// extend keeps before as a stale copy until the given time. It returns nil if before is too old for that.
func (c *Cache) extend(f *inflight, before *Snapshot, now, until time.Time, why error) *Snapshot {
	stale := before.extend(now, until, why)
	if stale != nil {
		c.keep(f, stale.prepare(), before)
	}
	return stale
}

// keep adds snap to the memory and to the Snapshots that are saved, and reports a change from before.
func (c *Cache) keep(f *inflight, snap, before *Snapshot) {
	if change := c.replace(f, snap, before); change != nil {
		c.counts.changes.Add(1)
		c.options.Load().Changed(*change)
	}
}

// replace puts snap in place of before and returns the change, or nil. It does nothing if a job that ended later has
// fetched a newer Snapshot, or after a purge.
func (c *Cache) replace(f *inflight, snap, before *Snapshot) *Change {
	c.writing.Lock()
	defer c.writing.Unlock()
	f.pass.end() // under the lock, so that the next job for the host finds snap
	snap.Client = f.asker.Client
	other := c.inMemory(f.key, f.origin)
	if other != f.seen && other != nil && other.Fetched.After(snap.Fetched) || c.purges.Load() != f.purges {
		return nil
	}
	change := changeOf(before, snap)
	c.save(&unsaved{snap, change, f.release})
	f.release = nil
	c.remember(f.key, snap)
	return change
}
