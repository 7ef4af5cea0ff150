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

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/store"
)

// sharedDatabase is the PostgreSQL database of several instances, with what this instance has there.
type sharedDatabase struct {
	*store.Postgres
	files  *store.SharedFiles
	number *store.Number // nil if another source gives it
}

// newPostgres opens the configured PostgreSQL. It returns nil if none is configured.
func newPostgres(cfg *config.Config, state *store.State, log *slog.Logger) (*sharedDatabase, error) {
	if cfg.Audit.Store != config.AuditPostgres {
		return nil, nil
	}
	dsn, err := readDSN(cfg)
	if err != nil {
		return nil, err
	}
	p, err := store.OpenPostgres(context.Background(), dsn)
	if err != nil {
		return nil, usage(fmt.Errorf("audit.dsn_file: %w", err))
	}
	return &sharedDatabase{Postgres: p, files: p.Share(state, sharedOptions(cfg, log, "PostgreSQL"))}, nil
}

// readDSN returns the content of audit.dsn_file.
func readDSN(cfg *config.Config) (string, error) {
	dsn, err := os.ReadFile(cfg.Audit.DSNFile)
	if err != nil {
		return "", usage(fmt.Errorf("reading audit.dsn_file: %w", err))
	}
	return strings.TrimSpace(string(dsn)), nil
}

// minutely returns a function that logs errors, at most one per minute.
func minutely(log *slog.Logger, text string) func(error) {
	var last atomic.Int64 // Unix time
	return func(err error) {
		now, then := time.Now().Unix(), last.Load()
		if now-then >= 60 && last.CompareAndSwap(then, now) {
			log.Warn(text, "err", err)
		}
	}
}

// takeNumber returns the number of this instance, which no other instance at this database has.
func (d *sharedDatabase) takeNumber(log *slog.Logger) (func() int, error) {
	failed := minutely(log, "the number of this instance is not renewed: without PostgreSQL for ten minutes, another may take it")
	number, err := d.Number(context.Background(), failed)
	if err != nil {
		return nil, err
	}
	d.number = number
	return number.Get, nil
}

// prune deletes old versions.
func (d *sharedDatabase) prune(ctx context.Context, log *slog.Logger) {
	if _, err := d.files.Prune(ctx, time.Now().Add(-versionRetention)); err != nil && ctx.Err() == nil {
		log.Warn("old robots.txt files cannot be dropped from PostgreSQL", "err", err)
	}
}

func (d *sharedDatabase) close() (err error) {
	if d.number != nil {
		err = d.number.Close()
	}
	return errors.Join(err, d.Close())
}
