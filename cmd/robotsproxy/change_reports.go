package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/robotsproxy/robotsproxy/audit/proof"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/webhook"
	"github.com/robotsproxy/robotsproxy/robots"
)

// changeReports reports the changes of robots.txt files that decide recorded requests otherwise. An instance reports the
// changes that it has fetched. Those that share their files fetch each once, so there is one report.
type changeReports struct {
	log    *slog.Logger
	seen   chan robots.Change // changes that wait to be judged
	unsent chan *proof.Effect // reports that wait to be posted
	sender webhook.Sender

	altering, unjudged, posted, unposted atomic.Int64
}

// Numbers of changes and reports that may wait.
const (
	maxSeen   = 1000
	maxUnsent = 100
)

func newChangeReports(log *slog.Logger) *changeReports {
	return &changeReports{log: log, seen: make(chan robots.Change, maxSeen), unsent: make(chan *proof.Effect, maxUnsent)}
}

// add notes a change. It does not wait.
func (r *changeReports) add(c robots.Change) {
	log := r.log
	if c.Why != "" {
		log = log.With("why", c.Why)
	}
	log.Info("a robots.txt has changed", "origin", c.Origin.String(), "was", c.OldState, "is", c.NewState,
		"old_sha256", c.OldSHA256, "new_sha256", c.NewSHA256)
	select {
	case r.seen <- c:
	default:
		r.unjudged.Add(1)
	}
}

// reportChanges judges the changes, one after the other, until ctx ends.
func (c *components) reportChanges(ctx context.Context) {
	if c.kept == nil {
		return
	}
	for {
		select {
		case change := <-c.changes.seen:
			c.reportChange(ctx, change)
		case <-ctx.Done():
			return
		}
	}
}

func (c *components) reportChange(ctx context.Context, change robots.Change) {
	at := change.Time.Truncate(time.Microsecond) // as it is kept
	effects, err := proof.Effects(ctx, c.history(), c.kept, change.Origin, at)
	if err != nil && ctx.Err() == nil {
		c.changes.unjudged.Add(1)
		c.changes.log.Warn("a change of a robots.txt cannot be compared with the records",
			"origin", change.Origin.String(), "err", err)
	}
	for _, e := range effects {
		if e.Time.Equal(at) && e.Alters() { // others are reported after this one
			c.changes.report(e, c.control.config().Watch != config.Watch{})
		}
	}
}

// report logs e, and has it posted.
func (r *changeReports) report(e *proof.Effect, post bool) {
	r.altering.Add(1)
	log := r.log
	if len(e.Delays) > 0 {
		d := e.Delays[0]
		log = log.With("delay", fmt.Sprintf("%gs -> %gs for %s", d.Before, d.After, d.Agent))
	}
	log.Warn("a robots.txt has changed, and decides recorded requests otherwise", "host", e.Host, "origin", e.Origin,
		"would_refuse", e.Refused, "would_allow", e.Allowed, "decisions", e.Judged,
		"was", e.Before.State, "is", e.After.State, "old_sha256", e.Before.SHA256, "new_sha256", e.After.SHA256)
	if !post {
		return
	}
	select {
	case r.unsent <- e:
	default:
		r.failed(e, errors.New("too many reports wait"))
	}
}

func (r *changeReports) failed(e *proof.Effect, err error) {
	r.unposted.Add(1)
	r.log.Error("the webhook did not get a report", "host", e.Host, "err", err)
}

// postReports posts the reports until ctx ends.
func (c *components) postReports(ctx context.Context) {
	r := c.changes
	for {
		select {
		case e := <-r.unsent:
			to, err := webhookURL(c.control.config().Watch)
			if err == nil {
				err = r.sender.Send(ctx, to, e)
			}
			if err != nil {
				r.failed(e, err)
				continue
			}
			r.posted.Add(1)
		case <-ctx.Done():
			return
		}
	}
}

func webhookURL(cfg config.Watch) (string, error) {
	if cfg.WebhookFile == "" {
		return cfg.Webhook, nil
	}
	text, err := os.ReadFile(cfg.WebhookFile)
	if err != nil {
		return "", fmt.Errorf("reading watch.webhook_file: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
