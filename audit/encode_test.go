package audit

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

// byTags is what encoding/json makes of r, which it changes.
func byTags(t *rapid.T, r *Record) string {
	v := reflect.ValueOf(r).Elem()
	for i := range v.NumField() {
		if field := v.Field(i); field.Kind() == reflect.String {
			field.SetString(safetext.UTF8(field.String()))
		}
	}
	var buf bytes.Buffer
	e := json.NewEncoder(safetext.JSONWriter(&buf))
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

// What is written out by hand is what the tags say, whatever the fields hold: a field that was forgotten fails here.
func TestEncodingFollowsTheTags(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Record
		fill(t, reflect.ValueOf(&r).Elem())
		if got, want := string(appendRecord(nil, &r))+"\n", byTags(t, &r); got != want {
			t.Errorf("appendRecord(%+v)\n got %s\nwant %s", r, got, want)
		}
	})
}

// Milliseconds are the numbers that they would be as floating point, in their shortest form.
func TestMillisAreNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Millis(rapid.OneOf(rapid.Int64Range(-1e12, 1e12), rapid.Map(rapid.Int64Range(-1e9, 1e9), func(n int64) int64 { return n * 1e6 })).Draw(t, "nanoseconds"))
		want := strconv.FormatFloat(float64(time.Duration(m).Microseconds())/1000, 'f', -1, 64)
		if got := string(m.append([]byte("100"))); got != "100"+want {
			t.Errorf("Millis(%d).append() = %q behind 100, want %q", m, got, want)
		}
	})
}

// fill sets each field to something, often to nothing.
func fill(t *rapid.T, v reflect.Value) {
	for i := range v.NumField() {
		name, field := v.Type().Field(i).Name, v.Field(i)
		if field.Type() == reflect.TypeFor[time.Time]() {
			if rapid.Bool().Draw(t, name) {
				at := time.Unix(rapid.Int64Range(0, 4e9).Draw(t, name), rapid.Int64Range(0, 999_999_999).Draw(t, name)).UTC()
				field.Set(reflect.ValueOf(at))
			}
			continue
		}
		switch field.Kind() {
		case reflect.String:
			field.SetString(rapid.OneOf(rapid.Just(""), rapid.String(), rapid.StringMatching(`[ -~]*`), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, name))
		case reflect.Uint16:
			field.SetUint(uint64(rapid.Uint16().Draw(t, name)))
		case reflect.Int, reflect.Int64:
			field.SetInt(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 1<<50)).Draw(t, name))
		default:
			t.Fatalf("no values for %s of kind %v", name, field.Kind())
		}
	}
}
