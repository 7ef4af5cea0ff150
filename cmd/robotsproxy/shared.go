package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/proxy"
	"github.com/robotsproxy/robotsproxy/ratelimit/redislease"
)

const (
	// acknowledgeTime is how long a command waits for the instances that share a Redis.
	acknowledgeTime = 5 * time.Second

	// liftedFor is how long the shared list remembers that an intervention was lifted or has ended, for instances that
	// could not reach Redis meanwhile.
	liftedFor = 30 * 24 * time.Hour
)

// sharedList is the list of interventions that the instances of one Redis share, as redislease.Document keeps it.
type sharedList struct {
	Interventions []sharedEntry `json:"interventions"` // one for each kind and host, in this order
}

// sharedEntry is an intervention, or says that it was lifted. Of two entries with one kind and host, the one with the
// later Since counts. Since of a lifted entry is when it was lifted.
type sharedEntry struct {
	policy.Intervention
	Lifted bool `json:"lifted,omitempty"`
}

func compareEntries(a, b sharedEntry) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Host, b.Host))
}

// supersedes reports whether e counts instead of old.
func (e *sharedEntry) supersedes(old *sharedEntry) bool {
	if !e.Since.Equal(old.Since) {
		return e.Since.After(old.Since)
	}
	if e.Lifted != old.Lifted {
		return old.Lifted // what is in doubt remains in force
	}
	return e.String() > old.String()
}

// forgotten reports whether the list need not remember e at now.
func (e *sharedEntry) forgotten(now time.Time) bool {
	ended := e.Until
	if e.Lifted {
		ended = e.Since
	}
	return !ended.IsZero() && now.Sub(ended) > liftedFor
}

// put adds e, unless the list has a later entry.
func (l *sharedList) put(e sharedEntry) {
	e.Since, e.Until = e.Since.UTC(), e.Until.UTC()
	n, found := slices.BinarySearchFunc(l.Interventions, e, compareEntries)
	switch {
	case !found:
		l.Interventions = slices.Insert(l.Interventions, n, e)
	case e.supersedes(&l.Interventions[n]):
		l.Interventions[n] = e
	}
}

// since returns the time of a change of e that is made at now: later than that of the entry before, even if the clock
// of its instance was ahead. State.db keeps microseconds.
func (l *sharedList) since(e sharedEntry, now time.Time) time.Time {
	now = now.Truncate(time.Microsecond)
	n, found := slices.BinarySearchFunc(l.Interventions, e, compareEntries)
	if found && !now.After(l.Interventions[n].Since) {
		return l.Interventions[n].Since.Add(time.Microsecond)
	}
	return now
}

// change replaces the interventions that are in force by those that with makes of them.
func (l *sharedList) change(with func([]policy.Intervention) []policy.Intervention, now time.Time) {
	before := l.inForce(now)
	after := with(slices.Clone(before))
	for _, i := range without(before, after) {
		e := sharedEntry{i, true}
		e.Since = l.since(e, now)
		l.put(e)
	}
	for _, i := range without(after, before) {
		e := sharedEntry{Intervention: i}
		e.Since = l.since(e, now)
		l.put(e)
	}
}

// without returns the interventions of all that others lacks.
func without(all, others []policy.Intervention) []policy.Intervention {
	return slices.DeleteFunc(slices.Clone(all), func(i policy.Intervention) bool {
		return slices.ContainsFunc(others, func(o policy.Intervention) bool {
			return o.String() == i.String() && o.Since.Equal(i.Since) && o.Until.Equal(i.Until)
		})
	})
}

// inForce returns the interventions that are in force at now. It leaves out those that another version of the program
// has made and that this one does not know.
func (l *sharedList) inForce(now time.Time) []policy.Intervention {
	var all []policy.Intervention
	for _, e := range l.Interventions {
		if !e.Lifted && !e.Expired(now) && e.Check() == nil {
			all = append(all, e.Intervention)
		}
	}
	slices.SortStableFunc(all, func(a, b policy.Intervention) int { return a.Since.Compare(b.Since) })
	return all
}

func (l *sharedList) encode(now time.Time) ([]byte, error) {
	l.Interventions = slices.DeleteFunc(l.Interventions, func(e sharedEntry) bool { return e.forgotten(now) })
	return json.Marshal(l)
}

func decodeSharedList(data []byte) (*sharedList, error) {
	var l, sorted sharedList
	if len(data) == 0 {
		return &l, nil
	}
	if err := json.Unmarshal(data, &l); err != nil {
		return nil, fmt.Errorf("the shared list of interventions: %w", err)
	}
	for _, e := range l.Interventions {
		sorted.put(e)
	}
	return &sorted, nil
}

// mergeSharedLists returns the later entries of both lists.
func mergeSharedLists(ours, theirs []byte) ([]byte, error) {
	l, err := decodeSharedList(theirs)
	if err != nil {
		return nil, err
	}
	own, err := decodeSharedList(ours)
	if err != nil {
		return nil, err
	}
	for _, e := range own.Interventions {
		l.put(e)
	}
	return l.encode(time.Now())
}

// share shares the interventions with the other instances of the Redis of client. It takes theirs before it returns.
func (is *interventions) share(client *redislease.Client, cfg *config.Config) error {
	var stored sharedList
	for _, i := range is.Interventions() {
		stored.put(sharedEntry{Intervention: i})
	}
	var data []byte
	if len(stored.Interventions) > 0 {
		var err error
		if data, err = stored.encode(time.Now()); err != nil {
			return err
		}
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	is.shared = client.OpenDocument(redislease.DocumentOptions{
		Name: fmt.Sprintf("%s/%d", host, os.Getpid()), Home: host + ":" + cfg.DataDir, Data: data,
		Merge: mergeSharedLists, Apply: is.applyShared,
	})
	return nil
}

// applyShared puts the list in force here. The Document calls it, for changes of this instance too.
func (is *interventions) applyShared(data []byte) error {
	l, err := decodeSharedList(data)
	if err != nil {
		return err
	}
	effect := is.effect
	is.effect = nil
	before, after := is.Interventions(), l.inForce(time.Now())
	ended, err := is.control.obey(after)
	if err != nil {
		return err
	}
	failure := is.save(context.Background(), after)
	if effect != nil { // Intervene and Lift log it
		effect.Answered, effect.Tunnels, effect.WebSockets = ended.Answered, ended.Tunnels, ended.WebSockets
		effect.NotStored = failure
		return nil
	}
	for _, i := range without(after, before) {
		logIntervention(is.log, "an intervention began on another instance", i)
	}
	for _, i := range without(before, after) {
		logIntervention(is.log, "an intervention was lifted on another instance", i)
	}
	return nil
}

// changeShared puts the interventions that with makes of the present ones in force on all instances. It waits for them.
func (is *interventions) changeShared(
	ctx context.Context, with func([]policy.Intervention) []policy.Intervention,
) (effect admin.InterventionEffect, err error) {
	ctx, cancel := context.WithTimeout(ctx, acknowledgeTime)
	defer cancel()
	delivery, err := is.shared.Update(ctx, func(data []byte) ([]byte, error) {
		l, err := decodeSharedList(data)
		if err != nil {
			return nil, err
		}
		now := time.Now()
		l.change(with, now)
		if data, err = l.encode(now); err != nil {
			return nil, err
		}
		is.effect = &effect
		return data, nil
	})
	if err != nil {
		return effect, err
	}
	n := &effect.Instances
	n.Acknowledged, n.Total = len(delivery.Acknowledged), len(delivery.Acknowledged)+len(delivery.Missing)
	for _, m := range delivery.Missing {
		n.Missing = append(n.Missing, safetext.Text(m.Name)+", last heard "+spell(max(time.Second, m.Silent.Round(time.Second)))+" ago")
	}
	if delivery.Err != nil {
		n.Error = strings.TrimPrefix(delivery.Err.Error(), "redislease: ")
	}
	return effect, nil
}

// obey puts interventions in force as intervene does, also in a process that another one has replaced: both share the
// list.
func (c *control) obey(all []policy.Intervention) (proxy.Ended, error) {
	c.ordering.Lock()
	defer c.ordering.Unlock()
	err := c.apply(func(in *inputs) error {
		in.interventions = all
		return nil
	})
	if err != nil {
		return proxy.Ended{}, err
	}
	return c.endStopped(), nil
}
