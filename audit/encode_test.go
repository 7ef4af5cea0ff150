package audit

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

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

// TestRecordsAreBounded checks that a record has a bounded size whatever its texts hold, and that a cut parts no
// escape.
func TestRecordsAreBounded(t *testing.T) {
	var empty Record
	for name, filler := range map[string]string{
		"letters": "a", "quotes": `"`, "backslashes": `\`, "controls": "\x01", "line feeds": "\n", "no UTF-8": "\xff", "continuations": "\x80",
		"percent signs": "%", "escapes": "%41", "percent signs and controls": "%\x01", "percent signs and quotes": `%"`,
		"umlauts": "ü", "marks of direction": "\u202e", "outside of the first plane": "\U000e0001",
		"printable outside of it": "\U0001f600", "mixed": "a\x01ü\U000e0001\xff\"",
	} {
		for shift := range 12 {
			r := empty
			v := reflect.ValueOf(&r).Elem()
			text := strings.Repeat("x", shift) + strings.Repeat(filler, 20_000)
			for i := range v.NumField() {
				switch field := v.Field(i); {
				case field.Kind() == reflect.String:
					field.SetString(text)
				case field.Kind() == reflect.Int || field.Kind() == reflect.Int64:
					field.SetInt(math.MinInt64)
				case field.Type() == reflect.TypeFor[time.Time]():
					field.Set(reflect.ValueOf(time.Date(2026, 11, 22, 23, 59, 59, 999_999_999, time.UTC)))
				}
			}
			line := appendRecord(nil, &r)
			if len(line) > maxRecord {
				t.Fatalf("%s: a record has %d bytes, want %d at most", name, len(line), maxRecord)
			}
			var got map[string]any
			if err := json.Unmarshal(line, &got); err != nil {
				t.Fatalf("%s: %v in %s", name, err, line)
			}
			for key, most := range map[string]int{"tag": maxText, "rule": maxLine, "path": maxTarget} {
				cut := got[key].(string)
				if !strings.HasPrefix(safetext.UTF8(text), cut) || strings.ContainsRune(cut, utf8.RuneError) {
					t.Errorf("%s, %d: %s is no beginning of what it was: %.60q ends with %q", name, shift, key, cut, cut[len(cut)-20:])
				}
				if encoded := len(safetext.AppendJSON(nil, cut)) - 2; encoded > most || encoded < most-12 {
					t.Errorf("%s, %d: %s is cut to %d bytes, want nearly %d", name, shift, key, encoded, most)
				}
			}
		}
	}
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
		if v.Type().Field(i).Tag.Get("json") == "-" {
			continue
		}
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
