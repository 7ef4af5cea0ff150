package store

import (
	"context"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
)

// hourKey is the key of a row of hours. All but the hour are ids of names. Hours count from 1970; a negative number is that
// of a day, whose row has the sum of its hours.
type hourKey struct{ hour, decision, host, client, agent, reason, rule int64 }

type minuteKey struct{ minute, decision, reason int64 }

// tally is a sum over requests. waited is in microseconds.
type tally struct{ n, waited, bytes, failed, deviating int64 }

// counted is how a record was counted.
type counted struct {
	minute int64
	key    hourKey
	tally  tally
}

// counts are the changes to the tables of sums that a batch makes.
type counts struct {
	minutes map[minuteKey]int64
	hours   map[hourKey]tally
}

func newCounts() counts {
	return counts{minutes: make(map[minuteKey]int64), hours: make(map[hourKey]tally)}
}

// counted returns how e counts.
func (b *batch) counted(ctx context.Context, tx transaction, e *audit.Entry, day int64) (c counted, err error) {
	at := e.ID.Time()
	c.minute, c.key.hour = at.Unix()/60, hourOf(at)
	for _, each := range []struct {
		id   *int64
		text string
	}{
		{&c.key.decision, string(e.Decision)},
		{&c.key.host, e.Host},
		{&c.key.client, e.Client},
		{&c.key.agent, e.Agent},
		{&c.key.reason, string(e.Reason)},
		{&c.key.rule, audit.RuleText(e.RuleLine, e.Rule)},
	} {
		if *each.id, err = b.names.id(ctx, tx, name{each.text}, day); err != nil {
			return c, err
		}
	}
	c.tally = tally{n: 1, waited: int64(e.Waited) / 1000, bytes: e.Bytes}
	if e.Decision == policy.Error || e.Reason == policy.ReasonUpstream {
		c.tally.failed = 1
	}
	if e.Deviation != "" {
		c.tally.deviating = 1
	}
	return c, nil
}

// add adds sign times c.
func (s *counts) add(c counted, sign int64) {
	if c.tally.n == 0 {
		return // a request of the proxy
	}
	s.minutes[minuteKey{c.minute, c.key.decision, c.key.reason}] += sign
	s.addTally(c.key, c.tally, sign)
	c.key.hour = -c.key.hour / 24
	s.addTally(c.key, c.tally, sign)
}

func (s *counts) addTally(k hourKey, of tally, sign int64) {
	t := s.hours[k]
	t.n += sign * of.n
	t.waited += sign * of.waited
	t.bytes += sign * of.bytes
	t.failed += sign * of.failed
	t.deviating += sign * of.deviating
	s.hours[k] = t
}

const (
	addMinuteSQL = `INSERT INTO minutes (minute, decision, reason, n) VALUES (?, ?, ?, ?)
ON CONFLICT (minute, decision, reason) DO UPDATE SET n = minutes.n + excluded.n`
	addHourSQL = `INSERT INTO hours (hour, decision, host, client, agent, reason, rule, n, waited, bytes, failed, deviating)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (hour, decision, host, client, agent, reason, rule) DO UPDATE SET n = hours.n + excluded.n,
	waited = hours.waited + excluded.waited, bytes = hours.bytes + excluded.bytes, failed = hours.failed + excluded.failed,
	deviating = hours.deviating + excluded.deviating`
)

func (b *batch) writeCounts(ctx context.Context, tx transaction) error {
	if b.postgres != nil {
		return b.addCounts(ctx, tx.Tx)
	}
	for k, n := range b.counts.minutes {
		if n == 0 {
			continue
		}
		if _, err := tx.ExecContext(ctx, addMinuteSQL, k.minute, k.decision, k.reason, n); err != nil {
			return err
		}
	}
	for k, t := range b.counts.hours {
		if t == (tally{}) {
			continue
		}
		_, err := tx.ExecContext(ctx, addHourSQL, k.hour, k.decision, k.host, k.client, k.agent, k.reason, k.rule,
			t.n, t.waited, t.bytes, t.failed, t.deviating)
		if err != nil {
			return err
		}
	}
	return nil
}
