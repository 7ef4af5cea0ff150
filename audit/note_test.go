package audit_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/ratelimit"
)

// A known gap of zero is written as 0, and an unknown gap is omitted.
func TestGapsThatAreKnown(t *testing.T) {
	for _, known := range []bool{true, false} {
		var rec audit.Record
		rec.SetGrant(ratelimit.Grant{})
		if known {
			rec.SetGap(0)
		}
		written, err := json.Marshal(&rec)
		if err != nil || strings.Contains(string(written), `"gap_ms":0,`) != known {
			t.Errorf("known %t: %s, %v", known, written, err)
		}
	}
}
