package main

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/ratelimit/redislease"
	"github.com/robotsproxy/robotsproxy/store"
)

// interventions puts the operator's interventions in force, and keeps them in state.db.
type interventions struct {
	control *control
	state   *store.State
	log     *slog.Logger

	mu sync.Mutex // orders the changes, which the store gets after they are in force

	shared *redislease.Document      // nil without Redis; orders the changes instead of mu, and guards effect
	effect *admin.InterventionEffect // of the change of this instance that is applied next; nil: it is another one's
}

// Interventions returns the interventions that are in force.
func (is *interventions) Interventions() []policy.Intervention {
	return current(is.control.interventions(), time.Now())
}

// current returns the interventions that have not ended at now.
func current(all []policy.Intervention, now time.Time) []policy.Intervention {
	return slices.DeleteFunc(slices.Clone(all), func(i policy.Intervention) bool { return i.Expired(now) })
}

// Intervene puts i in force, in place of that of the same kind and host. When it returns, nothing more is sent to a host
// that i stops.
func (is *interventions) Intervene(ctx context.Context, i policy.Intervention) (admin.InterventionEffect, error) {
	effect, err := is.change(ctx, func(all []policy.Intervention) []policy.Intervention {
		same := func(old policy.Intervention) bool { return old.Kind == i.Kind && old.Host == i.Host }
		return append(slices.DeleteFunc(all, same), i)
	})
	if err == nil {
		logIntervention(is.log, "an intervention began", i, "answered", effect.Answered, "tunnels", effect.Tunnels, "websockets", effect.WebSockets)
	}
	return effect, err
}

// Lift ends the interventions of these hosts or patterns. who says who lifts them, and why.
func (is *interventions) Lift(ctx context.Context, hosts []string, who string) (admin.InterventionEffect, error) {
	var lifted []policy.Intervention
	effect, err := is.change(ctx, func(all []policy.Intervention) []policy.Intervention {
		return slices.DeleteFunc(all, func(i policy.Intervention) bool {
			named := slices.Contains(hosts, i.Host)
			if named {
				lifted = append(lifted, i)
			}
			return named
		})
	})
	if err == nil {
		for _, i := range lifted {
			logIntervention(is.log, "an intervention was lifted", i, "lifted_by", who)
		}
	}
	return effect, err
}

// change puts the interventions that with makes of the present ones in force, and stores them. If they cannot be
// stored, they are in force nevertheless, until the next start.
func (is *interventions) change(
	ctx context.Context, with func([]policy.Intervention) []policy.Intervention,
) (effect admin.InterventionEffect, err error) {
	if is.shared != nil {
		return is.changeShared(ctx, with)
	}
	is.mu.Lock()
	defer is.mu.Unlock()
	all := with(is.Interventions())
	ended, err := is.control.intervene(all)
	if err != nil {
		return effect, err
	}
	effect.Answered, effect.Tunnels, effect.WebSockets = ended.Answered, ended.Tunnels, ended.WebSockets
	effect.Instances = admin.InstanceCount{Total: 1, Acknowledged: 1}
	effect.NotStored = is.save(ctx, all)
	return effect, nil
}

// save stores the interventions that are in force. It returns why it cannot, empty if it can.
func (is *interventions) save(ctx context.Context, all []policy.Intervention) (failure string) {
	if err := is.state.ReplaceInterventions(context.WithoutCancel(ctx), all); err != nil {
		is.log.Error("the last intervention is in force, and a restart forgets it", "err", err)
		return err.Error()
	}
	return ""
}

// storedInterventions returns the interventions that are in force when the proxy starts.
func storedInterventions(state *store.State, log *slog.Logger) ([]policy.Intervention, error) {
	all, err := state.Interventions(context.Background())
	for _, i := range all {
		logIntervention(log, "an intervention is still in force", i)
	}
	return all, err
}

func logIntervention(log *slog.Logger, message string, i policy.Intervention, more ...any) {
	if !i.Until.IsZero() {
		log = log.With("until", i.Until)
	}
	log.With("intervention", i.String()).Info(message, more...)
}
