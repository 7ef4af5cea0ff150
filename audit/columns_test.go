package audit

import (
	"encoding/json"
	"testing"
	"time"
)

// Columns and Values have what AppendJSON writes.
func TestColumns(t *testing.T) {
	at := time.Date(2026, 11, 22, 14, 0, 0, 0, time.UTC)
	r := &Record{ID: 5, Time: at, Client: "news", Port: 8080, Decision: "deny", Waited: Millis(1500 * time.Microsecond), Status: 403, EndedAt: at}
	values := r.Values(nil)
	if len(values) != len(Columns) {
		t.Fatalf("%d values of %d columns", len(values), len(Columns))
	}
	var object map[string]any
	if err := json.Unmarshal(r.AppendJSON(nil), &object); err != nil {
		t.Fatal(err)
	}
	for i, name := range Columns {
		want, got := object[name], values[i]
		switch v := got.(type) {
		case int64:
			got = float64(v)
		case time.Duration:
			got = float64(v) / float64(time.Millisecond)
		case time.Time:
			got = v.Format(time.RFC3339Nano)
		}
		unknown := got == "" || got == 0.0 || got == time.Time{}.Format(time.RFC3339Nano)
		if want == nil && !unknown || want != nil && got != want {
			t.Errorf("%s is %v, and %v in JSON", name, got, want)
		}
		delete(object, name)
	}
	if len(object) > 0 {
		t.Errorf("in JSON only: %v", object)
	}
}
