package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Value is one key with the text that would set it.
type Value struct {
	Key    string // robots.ttl, clients[0].name
	Text   string // a list is joined with commas, as in a variable
	Origin Origin
}

// Values returns every key, where it was set and to what, in the order of Config. Keys of an entry of clients, hosts
// and exemptions are there only where the entry sets them.
func (c *Config) Values() []Value {
	var values []Value
	for _, l := range leaves(reflect.ValueOf(c).Elem(), "", "") {
		from, isSet := c.origins[l.key]
		if isSet || !strings.Contains(l.key, "[") {
			values = append(values, Value{l.key, format(l.value, l.tag), from})
		}
	}
	return values
}

// format is the inverse of parsing a variable.
func format(v reflect.Value, tag reflect.StructTag) string {
	switch {
	case v.Kind() == reflect.Pointer && v.IsNil():
		return ""
	case v.Kind() == reflect.Pointer:
		return format(v.Elem(), tag)
	case v.Kind() == reflect.Slice && isSection(v.Type().Elem()):
		return "" // one that is not empty is no leaf
	case v.Kind() == reflect.Slice:
		var items []string
		for i := range v.Len() {
			items = append(items, format(v.Index(i), tag))
		}
		return strings.Join(items, ",")
	case v.Kind() == reflect.Map:
		var items []string
		for _, key := range v.MapKeys() {
			items = append(items, fmt.Sprintf("%s=%s", key, format(v.MapIndex(key), tag)))
		}
		slices.Sort(items)
		return strings.Join(items, ",")
	}
	s, _ := scalarFor(v.Type(), tag)
	return s.format(v.Interface())
}
