package settings

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Value is a key with the text that would set it.
type Value struct {
	Key    string // robots.ttl, clients[0].name
	Text   string // a list is joined with commas, as in a variable
	Origin Origin

	Restart bool // the key is tagged reload:"restart"
}

// Values returns every key of config, a struct of the schema's type, with its text and its place in origins, in the
// order of the fields. It returns the keys of an entry of a list only if the entry sets them.
func (s *Schema) Values(config any, origins map[string]Origin) []Value {
	var values []Value
	for _, l := range s.leaves(reflect.ValueOf(config), "", "", false) {
		from, isSet := origins[l.key]
		if isSet || !strings.Contains(l.key, "[") {
			values = append(values, Value{l.key, s.format(l.value, l.tag), from, l.restart})
		}
	}
	return values
}

// Files returns the paths in config that are not empty, in the order of the fields, without those whose key is tagged
// reload:"restart".
func (s *Schema) Files(config any) []Value {
	var files []Value
	for _, l := range s.leaves(reflect.ValueOf(config), "", "", false) {
		if l.tag.Get("as") == "path" && !l.restart && l.value.Kind() == reflect.String && l.value.String() != "" {
			files = append(files, Value{Key: l.key, Text: l.value.String()})
		}
	}
	return files
}

// Format returns the text of v, a value of one of the schema's types, as a variable would set it.
func (s *Schema) Format(v any) string { return s.format(reflect.ValueOf(v), "") }

func (s *Schema) format(v reflect.Value, tag reflect.StructTag) string {
	switch {
	case v.Kind() == reflect.Pointer && v.IsNil():
		return ""
	case v.Kind() == reflect.Pointer:
		return s.format(v.Elem(), tag)
	case v.Kind() == reflect.Slice && s.isSection(v.Type().Elem()):
		return "" // it is empty, or it would not be a leaf
	case v.Kind() == reflect.Slice:
		var items []string
		for i := range v.Len() {
			items = append(items, s.format(v.Index(i), tag))
		}
		return strings.Join(items, ",")
	case v.Kind() == reflect.Map:
		var items []string
		for _, key := range v.MapKeys() {
			items = append(items, fmt.Sprintf("%s=%s", key, s.format(v.MapIndex(key), tag)))
		}
		slices.Sort(items)
		return strings.Join(items, ",")
	}
	scalar, _ := s.scalar(v.Type(), tag)
	return scalar.format(v.Interface())
}
