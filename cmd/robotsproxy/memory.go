package main

import (
	"errors"
	"log/slog"
	"math"
	"os"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// limitMemory makes the garbage collector keep the memory of the process within 90 % of what limit returns, and logs
// the limit. If the environment has GOMEMLIMIT, that applies instead.
func limitMemory(limit memlimit.Provider, log *slog.Logger) {
	bytes, err := memlimit.Set(memlimit.WithRatio(0.9), memlimit.WithProvider(limit))
	_, own := os.LookupEnv("GOMEMLIMIT")
	switch {
	case errors.Is(err, memlimit.ErrCgroupsNotSupported), errors.Is(err, memlimit.ErrNoCgroup):
		// The system has no cgroups.
	case err != nil:
		log.Info("the memory limit of the cgroup is unknown; GOMEMLIMIT can set one", "err", err)
	case bytes == math.MaxInt64:
		// There is no limit.
	case own:
		log.Info("memory is limited by GOMEMLIMIT", "bytes", bytes)
	default:
		log.Info("memory is limited to 90 % of the limit of the cgroup", "bytes", bytes)
	}
}
