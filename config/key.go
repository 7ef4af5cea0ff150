package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// snake returns the key of a field: MinTTL is min_ttl, CAFile is ca_file.
func snake(name string) string {
	runes := []rune(name)
	var b strings.Builder
	for i, r := range runes {
		begins := i > 0 && unicode.IsUpper(r) &&
			(!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))
		if begins && runes[i-1] != '_' {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

func item(key string, i int) string { return fmt.Sprintf("%s[%d]", key, i) }

// enclosing returns the key that key is part of: clients for clients[0], clients[0] for clients[0].name, "" for clients.
func enclosing(key string) string { return key[:max(0, strings.LastIndexAny(key, ".["))] }

// isScalar reports whether values of type t are read from one text.
func isScalar(t reflect.Type) bool {
	_, ok := scalarFor(t, "")
	return ok
}

// isSection reports whether values of type t have keys of their own.
func isSection(t reflect.Type) bool { return t.Kind() == reflect.Struct && !isScalar(t) }

// section is what is known of a type that is one: the fields that are keys, and their names, both in order.
type section struct {
	fields []reflect.StructField
	names  []string
}

// sections are all there are. They are found once, for a file may have very many entries.
var sections = func() map[reflect.Type]section {
	all := map[reflect.Type]section{}
	addSections(all, reflect.TypeFor[Config]())
	return all
}()

// addSections adds t, and every section that it leads to.
func addSections(all map[reflect.Type]section, t reflect.Type) {
	if t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if !isSection(t) {
		return
	}
	var s section
	for _, f := range reflect.VisibleFields(t) {
		if f.IsExported() {
			s.fields, s.names = append(s.fields, f), append(s.names, snake(f.Name))
			addSections(all, f.Type)
		}
	}
	all[t] = s
}

// leaf is a value that has no keys of its own: a scalar, or a list or map of scalars, or an empty list of sections.
type leaf struct {
	key   string
	value reflect.Value
	tag   reflect.StructTag
}

// leaves returns all leaves below v in the order of the struct.
func leaves(v reflect.Value, key string, tag reflect.StructTag) []leaf {
	var all []leaf
	switch {
	case isSection(v.Type()):
		s := sections[v.Type()]
		for i, f := range s.fields {
			all = append(all, leaves(v.FieldByIndex(f.Index), join(key, s.names[i]), f.Tag)...)
		}
	case v.Kind() == reflect.Slice && isSection(v.Type().Elem()) && v.Len() > 0:
		for i := range v.Len() {
			all = append(all, leaves(v.Index(i), item(key, i), tag)...)
		}
	default:
		all = append(all, leaf{key, v, tag})
	}
	return all
}

// find returns the value that key names in c, outside lists.
func find(c *Config, key string) (leaf, bool) {
	l := leaf{key: key, value: reflect.ValueOf(c).Elem()}
	for name := range strings.SplitSeq(key, ".") {
		s := sections[l.value.Type()] // the zero section, without names, if it is none
		i := slices.Index(s.names, name)
		if i < 0 {
			return l, false
		}
		l.value, l.tag = l.value.FieldByIndex(s.fields[i].Index), s.fields[i].Tag
	}
	return l, !isSection(l.value.Type())
}

// topKeys returns every key that can be set outside lists, such as robots.ttl and clients.
func topKeys() []string {
	c := Default()
	var keys []string
	for _, l := range leaves(reflect.ValueOf(&c).Elem(), "", "") {
		keys = append(keys, l.key)
	}
	return keys
}
