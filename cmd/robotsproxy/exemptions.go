package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/ratelimit/redislease"
	"github.com/robotsproxy/robotsproxy/store"
)

// exemptions are those in force: of the configuration, and those that operators have added, which state.db keeps.
type exemptions struct {
	control *control
	state   *store.State
	log     *slog.Logger
	redis   *redislease.Client // nil without Redis
}

// OtherInstances returns how many instances share their pace with this one.
func (x *exemptions) OtherInstances() int {
	if x.redis == nil {
		return 0
	}
	return max(0, x.redis.Stats().Instances-1)
}

// All returns the exemptions of the configuration, then the added ones.
func (x *exemptions) All() []admin.Exemption {
	in, now := x.control.inForce.Load(), time.Now()
	var all []admin.Exemption
	for _, e := range in.cfg.Exemptions {
		all = append(all, admin.NewExemption(e, admin.SourceFile, now))
	}
	for _, e := range in.exemptions {
		all = append(all, shownExemption(e, now))
	}
	return all
}

func shownExemption(e store.Exemption, now time.Time) admin.Exemption {
	shown := admin.NewExemption(e.Exemption, admin.SourceStore, now)
	shown.ID, shown.Added = e.ID, e.Added
	return shown
}

// Parse checks a new exemption as the configuration does.
func (x *exemptions) Parse(entry map[string]string) (policy.Exemption, error) {
	return x.control.config().ParseExemption(entry, time.Now())
}

// Add stores e and puts it in force.
func (x *exemptions) Add(ctx context.Context, e policy.Exemption) (admin.Exemption, error) {
	var added store.Exemption
	_, err := x.control.order(func(in *inputs) (err error) {
		if added, err = x.state.AddExemption(ctx, e, time.Now()); err == nil {
			in.exemptions = append(slices.Clip(in.exemptions), added)
		}
		return err
	})
	if err != nil {
		return admin.Exemption{}, err
	}
	x.log.Info("an exemption was added", logged(e, added.ID)...)
	return shownExemption(added, time.Now()), nil
}

var errNoExemption = errors.New("no such exemption")

// Remove ends the added exemption with an ID.
func (x *exemptions) Remove(ctx context.Context, id int64) (admin.Exemption, bool, error) {
	var removed store.Exemption
	_, err := x.control.order(func(in *inputs) error {
		i := slices.IndexFunc(in.exemptions, func(e store.Exemption) bool { return e.ID == id })
		if i < 0 {
			return errNoExemption
		}
		removed = in.exemptions[i]
		in.exemptions = slices.Delete(slices.Clone(in.exemptions), i, i+1)
		return x.state.RemoveExemption(ctx, id)
	})
	switch {
	case err == errNoExemption:
		return admin.Exemption{}, false, nil
	case err != nil:
		return admin.Exemption{}, false, err
	}
	x.log.Info("an exemption was removed", logged(removed.Exemption, id)...)
	return shownExemption(removed, time.Now()), true, nil
}

// reportExpired logs each exemption when it expires, until ctx ends. An added one that has expired since the proxy ran
// last is logged at once; of those in the configuration, the start warns.
func (x *exemptions) reportExpired(ctx context.Context) {
	tick := time.NewTicker(time.Second) // and not a timer for the next end: the clock may be set, and exemptions change
	defer tick.Stop()
	reported := make(map[int64]bool)
	for before := time.Now(); ; {
		now := time.Now()
		in := x.control.inForce.Load()
		for _, e := range in.cfg.Exemptions {
			if e.Expired(now) && !e.Expired(before) {
				x.log.Warn(expiredText, logged(e, 0)...)
			}
		}
		for _, e := range in.exemptions {
			if e.Expired(now) && !e.Reported && !reported[e.ID] {
				reported[e.ID] = true
				x.log.Warn(expiredText, logged(e.Exemption, e.ID)...)
				x.markReported(ctx, e)
			}
		}
		before = now
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

const expiredText = "an exemption has expired and does not apply any more"

// logged returns e for the log. An exemption of the configuration has the ID 0.
func logged(e policy.Exemption, id int64) []any {
	pairs := []any{"exemption", e.String()}
	if e.Client != "" {
		pairs = append(pairs, "client", e.Client)
	}
	if !e.Until.IsZero() {
		pairs = append(pairs, "until", e.Until)
	}
	if id != 0 {
		pairs = append(pairs, "id", id)
	}
	return pairs
}

// markReported keeps that the log says that e has expired. If that fails, the next start logs it again.
func (x *exemptions) markReported(ctx context.Context, e store.Exemption) {
	if err := x.state.MarkReported(ctx, e.ID); err != nil {
		x.log.Warn("that an exemption has expired will be logged again at the next start", "id", e.ID, "err", err)
	}
}
