package main

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

func TestLimitMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	fails := func(err error) memlimit.Provider { return func() (uint64, error) { return 0, err } }
	for _, test := range []struct {
		name  string
		env   string // GOMEMLIMIT; unset if empty
		limit memlimit.Provider
		want  int64
		log   string // a part of it; empty: nothing is logged
	}{
		{"limited", "", memlimit.Limit(10 << 30), 9 << 30, "limit of the cgroup\" bytes=9663676416"},
		{"not limited", "", fails(memlimit.ErrNoLimit), math.MaxInt64, ""},
		{"no cgroup", "", fails(memlimit.ErrNoCgroup), 20 << 30, ""},
		{"another system", "", fails(memlimit.ErrCgroupsNotSupported), 20 << 30, ""},
		{"unreadable", "", fails(errors.New("broken")), 20 << 30, "broken"},
		{"GOMEMLIMIT", "20GiB", memlimit.Limit(10 << 30), 20 << 30, "by GOMEMLIMIT\" bytes=21474836480"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("GOMEMLIMIT", test.env) // restores it
			if test.env == "" {
				os.Unsetenv("GOMEMLIMIT")
			}
			debug.SetMemoryLimit(20 << 30) // by GOMEMLIMIT, or by an earlier call
			var log bytes.Buffer
			limitMemory(test.limit, slog.New(slog.NewTextHandler(&log, nil)))
			if got := debug.SetMemoryLimit(-1); got != test.want {
				t.Errorf("the limit is %d, want %d", got, test.want)
			}
			if got := log.String(); !strings.Contains(got, test.log) || test.log == "" && got != "" {
				t.Errorf("the log says %q, want %q in it", got, test.log)
			}
		})
	}
}
