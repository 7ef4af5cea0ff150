package main

import (
	"log/slog"
	"testing"

	"github.com/robotsproxy/robotsproxy/config"
)

// No more connections are taken than there are descriptors for, whatever is configured.
func TestLimitsFitTheDescriptors(t *testing.T) {
	n, known := descriptors()
	if !known {
		t.Skip("this system does not tell how many descriptors it grants")
	}
	most := (n - spareDescriptors) / 2
	for configured, want := range map[int]int{0: most, 1: 1, most: most, most + 1: most} {
		cfg := config.Default()
		cfg.Limits.Connections = configured
		if got := newLimits(&cfg, slog.New(slog.DiscardHandler)).Connections; got != want {
			t.Errorf("of %d configured and %d descriptors: %d connections, want %d", configured, n, got, want)
		}
	}
}
