package main

import (
	"cmp"
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/store"
)

// recordsFile returns the path of the records, or "-" for standard output.
func recordsFile(cfg *config.Config) string {
	return cmp.Or(cfg.Audit.JSONL, filepath.Join(cfg.DataDir, "audit.jsonl"))
}

// closeRecordsIn bounds how long a stop waits for records that cannot be written.
const closeRecordsIn = 5 * time.Second

// recordStoreFile returns the path of the database of the records.
func recordStoreFile(cfg *config.Config) string { return filepath.Join(cfg.DataDir, "audit.db") }

// newRecordStore opens the database of the records, which may be in postgres. It returns nil if none is configured.
func newRecordStore(cfg *config.Config, postgres *sharedDatabase) (audit.Store, error) {
	o := store.RecordsOptions{
		Path: recordStoreFile(cfg), Strict: cfg.Audit.Durability == config.DurabilityStrict, MaxSize: int64(cfg.Audit.MaxSize),
	}
	var kept *store.Records
	var err error
	switch cfg.Audit.Store {
	case config.AuditNone:
		return nil, nil
	case config.AuditPostgres:
		kept, err = postgres.Records(context.Background(), o)
	default:
		kept, err = store.OpenRecords(o)
	}
	if err != nil {
		return nil, err // an interface around a nil pointer is not nil
	}
	return kept, nil
}

// recordsPlace describes for people where the records are kept.
func recordsPlace(cfg *config.Config) string {
	switch cfg.Audit.Store {
	case config.AuditSQLite:
		return recordStoreFile(cfg)
	case config.AuditPostgres:
		return "in PostgreSQL"
	}
	return recordsFile(cfg)
}

func newRecords(cfg *config.Config, kept audit.Store, log *slog.Logger) (*audit.Recorder, error) {
	o := audit.RecorderOptions{
		Store: kept, Durability: audit.Durability(cfg.Audit.Durability), Buffer: cfg.Audit.Buffer,
		Continue: cfg.Audit.OnFailure == config.OnFailureContinue,
		Grace:    min(cfg.Grace, closeRecordsIn), Logger: log,
	}
	if cfg.Audit.JSONL != config.NoJSONL {
		var err error
		if o.Lines, err = audit.OpenLines(audit.LinesOptions{
			Path: recordsFile(cfg), MaxSize: int64(cfg.Audit.JSONLMaxSize), Keep: cfg.Audit.JSONLKeep, Logger: log,
		}); err != nil {
			return nil, err
		}
	}
	if o.Store == nil && o.Lines == nil {
		log.Warn("no request is recorded: audit.store and audit.jsonl are none")
	}
	return audit.NewRecorder(o), nil
}

// keeper is a database of records that must be pruned, and that counts lost records.
type keeper interface {
	Prune(ctx context.Context, o store.PruneOptions) (store.Pruned, error)
	AddLoss(ctx context.Context, l store.Loss) error
}

const (
	pruneRecordsEvery = time.Minute
	countLossesEvery  = 5 * time.Second
)

// keepRecords prunes the records by age and size, and writes down how many were lost, until ctx ends.
func (c *components) keepRecords(ctx context.Context, log *slog.Logger) {
	kept, ok := c.kept.(keeper)
	if !ok {
		return
	}
	prune, count := time.NewTicker(pruneRecordsEvery), time.NewTicker(countLossesEvery)
	defer prune.Stop()
	defer count.Stop()
	losses := losses{kept: kept, lost: func() int64 { return c.records.Stats().Lost }, since: time.Now()}
	var refused int64
	countAll := func(ctx context.Context) {
		losses.write(ctx)
		if now := c.server.Unrecorded(); now > refused {
			log.Warn("requests were refused because they could not be recorded", "requests", now-refused)
			refused = now
		}
	}
	pruneRecords(ctx, kept, &c.control.config().Audit, log)
	for {
		select {
		case <-prune.C:
			pruneRecords(ctx, kept, &c.control.config().Audit, log)
		case <-count.C:
			countAll(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			countAll(last)
			return
		}
	}
}

// pruneRecords removes records beyond the configured age and size.
func pruneRecords(ctx context.Context, kept keeper, cfg *config.Audit, log *slog.Logger) {
	o := store.PruneOptions{MaxSize: int64(cfg.MaxSize), Why: "audit.retention and audit.max_size"}
	if cfg.Retention > 0 {
		o.Before = time.Now().Add(-cfg.Retention)
	}
	p, err := kept.Prune(ctx, o)
	if err != nil && ctx.Err() == nil {
		log.Warn("old records cannot be removed", "err", err)
	}
	if p.Records > 0 {
		log.Info("old records were removed", "records", p.Records, "before", p.Before)
	}
}

// losses writes down how many records were lost, when the database can be written again.
type losses struct {
	kept  keeper
	lost  func() int64 // in total
	known int64        // of those, in the database
	since time.Time    // of the last call without a new loss
}

func (l *losses) write(ctx context.Context) {
	now, lost := time.Now(), l.lost()
	if lost > l.known {
		loss := store.Loss{Began: l.since, Ended: now, Records: lost - l.known}
		if l.kept.AddLoss(ctx, loss) != nil {
			return // the next call tries again
		}
		l.known = lost
	}
	l.since = now
}
