package audit

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// A record and its normal form have the same encoding, and the normal form is the one that is read back.
func TestNormal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Record
		fill(t, reflect.ValueOf(&r).Elem())
		n := r
		n.Normal()
		again := n
		again.Normal()
		if diff := cmp.Diff(n, again); diff != "" {
			t.Errorf("Normal changes a normal record (-before +after):\n%s", diff)
		}
		line := appendRecord(nil, &n)
		var back Record
		if err := json.Unmarshal(line, &back); err != nil {
			t.Fatal(err)
		}
		if got := appendRecord(nil, &back); string(got) != string(line) {
			t.Errorf("read back and encoded again:\n%s\nwant\n%s", got, line)
		}
	})
}

// Normal knows each field.
func TestNormalKnowsAllTexts(t *testing.T) {
	var r Record
	v := reflect.ValueOf(&r).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.String {
			f.SetString("\xff")
		}
	}
	r.Normal()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.String && f.String() != "%FF" {
			t.Errorf("Normal leaves %s = %q", v.Type().Field(i).Name, f.String())
		}
	}
}
