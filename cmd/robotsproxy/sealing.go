package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/robotsproxy/robotsproxy/audit/seal"
)

// sealRecords seals the records every audit.seal_every, until ctx ends. It logs each checkpoint, so that a log that
// leaves the machine has it.
func (c *components) sealRecords(ctx context.Context, log *slog.Logger) {
	kept, ok := c.kept.(seal.Log)
	if !ok {
		return
	}
	tick := time.NewTicker(time.Second) // a reload may change the time
	defer tick.Stop()
	last, size := time.Now(), int64(0)
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		cfg := c.control.config()
		if every := cfg.Audit.SealEvery; every == 0 || time.Since(last) < every {
			continue
		}
		last = time.Now()
		checkpoint, err := sealOnce(ctx, kept, cfg.DataDir)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			log.Warn("the records cannot be sealed", "err", err)
		case checkpoint != nil && checkpoint.Size != size:
			size = checkpoint.Size
			log.Info("the records are sealed", "hashes", size, "checkpoint", checkpoint.Note)
			logPrunes(log, checkpoint.Prunes)
		}
	}
}

// logPrunes logs the prunes that a checkpoint confirms in one line.
func logPrunes(log *slog.Logger, prunes []seal.Prune) {
	if len(prunes) == 0 {
		return
	}
	var records int64
	for _, p := range prunes {
		records += p.Records
	}
	last := prunes[len(prunes)-1]
	log.Info("the checkpoint confirms that old records were removed", "prunes", len(prunes), "records", records,
		"before", last.Before, "why", last.Why)
}

func sealOnce(ctx context.Context, kept seal.Log, dir string) (*seal.Checkpoint, error) {
	key, _, err := seal.OpenKey(dir, "")
	if err != nil {
		return nil, err
	}
	return seal.Seal(ctx, kept, key, seal.Options{})
}
