package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/store"
)

// sharedFiles are the robots.txt files that several instances share: in PostgreSQL, or over Redis.
type sharedFiles interface {
	robots.SharedStore
	Watch(ctx context.Context, changed func(o origin.Origin, before time.Time), lost func())
}

// sharedOptions returns the options for sharing over a server with the given name.
func sharedOptions(cfg *config.Config, log *slog.Logger, server string) store.SharedOptions {
	return store.SharedOptions{
		ClaimTime: min(5*time.Second, cfg.Robots.Timeout),
		Failed:    minutely(log, server+" cannot be used: this instance fetches robots.txt files for itself"),
	}
}

// shareFiles sets how the instance shares its robots.txt files, if it does.
func (c *components) shareFiles(cfg *config.Config, log *slog.Logger) {
	switch {
	case c.postgres != nil:
		c.shared = c.postgres.files
	case c.redis != nil:
		c.shared = store.ShareOver(c.redis.Values(), c.state, sharedOptions(cfg, log, "Redis"))
	}
}

// keptFiles returns the store of the robots.txt files.
func (c *components) keptFiles() robots.Store {
	if c.shared != nil {
		return c.shared
	}
	return c.state
}

// pastFiles returns the store of the earlier robots.txt files.
func (c *components) pastFiles() admin.History {
	if c.postgres != nil {
		return c.postgres.files
	}
	return c.state
}

// history returns the earlier robots.txt files, with those that wait to be written.
func (c *components) history() history { return history{c.pastFiles(), c.files.Unsaved} }

// filesWatch makes a cache read the files again that other instances have fetched or purged. The zero value watches
// nothing.
type filesWatch struct {
	end     context.CancelFunc
	watched sync.WaitGroup
}

// begin watches files, unless they are nil.
func (w *filesWatch) begin(files sharedFiles, cache *robots.Cache) {
	if files == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.end = cancel
	w.watched.Go(func() { files.Watch(ctx, cache.Forget, cache.ForgetAll) })
}

// stop returns after the last call of the cache.
func (w *filesWatch) stop() {
	if w.end != nil {
		w.end()
		w.watched.Wait()
	}
}
