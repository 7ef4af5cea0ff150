package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// tuneCollector keeps the garbage of a large heap small until ctx ends, since robots.cache_size is a promise about the
// memory of the process, and the collections of a small heap rare: see gcPercent. It does nothing if the environment
// has GOGC.
func tuneCollector(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for now := defaultGC; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		metrics.Read(live)
		if want := gcPercent(live[0].Value.Uint64()); want != now {
			debug.SetGCPercent(want)
			now = want
		}
	}
}

const (
	defaultGC = 100 // of Go
	lowestGC  = 40
	highestGC = 200
)

// gcPercent returns the garbage to allow, in percent of the live bytes: 16 MiB, since a small heap would be collected
// many times a second; as much as they are from 16 MiB up to 64 MiB; and 40 % of them from 160 MiB on.
func gcPercent(live uint64) int {
	const least, most = 16 << 20, 64 << 20
	garbage := min(max(live, least), most)
	percent := int(100*garbage/max(live, 1)) / 10 * 10
	return min(max(percent, lowestGC), highestGC)
}
