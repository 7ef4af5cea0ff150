package main

import (
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/store"
)

func TestPrunesOfDossier(t *testing.T) {
	day := func(n int) time.Time { return time.Date(2026, 11, n, 0, 0, 0, 0, time.UTC) }
	prunes := []store.Pruned{
		{Time: day(10), Before: day(5), Records: 1000, Why: "audit.retention and audit.max_size"},
		{Time: day(11), Before: day(6), Records: 234, Why: "audit.retention and audit.max_size"},
		{Time: day(12), Before: day(4), Records: 0, Why: "audit prune"},
		{Time: day(13), Before: day(7), Records: 1, Why: "audit prune"},
	}
	for _, tt := range []struct {
		since int
		want  []string
	}{
		{7, nil},
		{6, []string{"before 2026-11-07 00:00:00 UTC were pruned (audit prune): 1 record,"}},
		{1, []string{
			"before 2026-11-06 00:00:00 UTC were pruned (audit.retention and audit.max_size): 1,234 records,",
			"before 2026-11-07 00:00:00 UTC were pruned (audit prune): 1 record,",
		}},
	} {
		got := prunesIn(prunes, audit.Filter{Since: day(tt.since), Until: day(9)})
		if len(got) != len(tt.want) {
			t.Errorf("since day %d: %+v", tt.since, got)
			continue
		}
		for i, r := range got {
			if !strings.Contains(r.About, tt.want[i]) {
				t.Errorf("since day %d: %q lacks %q", tt.since, r.About, tt.want[i])
			}
		}
	}
}
