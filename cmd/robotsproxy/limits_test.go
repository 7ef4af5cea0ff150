package main

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/robotsproxy/robotsproxy/config"
)

// The limit of connections never exceeds the descriptors, whatever is configured.
func TestLimitsFitTheDescriptors(t *testing.T) {
	n, known := descriptors()
	if !known {
		t.Skip("this system does not tell how many descriptors it grants")
	}
	cfg := config.Default()
	most := (n - spareDescriptors - min(min(maxIdleConns, n/8)+busyDescriptors+2*min(cfg.Robots.MaxFetches, n/16)+min(cfg.Admin.Connections, n/16), n/4)) / 2
	for configured, want := range map[int]int{0: most, 1: 1, most: most, most + 1: most} {
		cfg.Limits.Connections = configured
		var log bytes.Buffer
		if got := newLimits(&cfg, slog.New(slog.NewTextHandler(&log, nil))).Connections; got != want {
			t.Errorf("of %d configured and %d descriptors: %d connections, want %d", configured, n, got, want)
		}
		if told := log.Len() > 0; told != (configured != want) {
			t.Errorf("of %d configured and %d descriptors the log says %q", configured, n, &log)
		}
	}
}

// The admin listener uses at most a sixteenth of the descriptors.
func TestAdminLimitsFitTheDescriptors(t *testing.T) {
	n, known := descriptors()
	if !known {
		t.Skip("this system does not tell how many descriptors it grants")
	}
	cfg := config.Default()
	for configured, want := range map[int]int{1: 1, n / 16: n / 16, n: n / 16} {
		cfg.Admin.Connections = configured
		if got := newAdminLimits(&cfg).Connections; got != want {
			t.Errorf("of %d configured and %d descriptors: %d admin connections, want %d", configured, n, got, want)
		}
	}
}
