package settings

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Change is one difference between two structs of a schema's type.
type Change struct {
	Key     string // of the value, or of the list: pacing.max_wait, clients
	Sign    string // "+" for an entry that was added to a list, "-" for one removed, "~" for one changed; else empty
	Text    string // 150s -> 60s; of an entry its name, and what has changed in it
	Restart bool   // the key is tagged reload:"restart"
}

// String returns the change as one line: "pacing.max_wait: 150s -> 60s", "+ clients lab".
func (c Change) String() string {
	switch {
	case c.Sign != "":
		return c.Sign + " " + c.Key + " " + c.Text
	case c.Restart:
		return c.Key + ": " + c.Text + " (needs a restart)"
	}
	return c.Key + ": " + c.Text
}

// Diff returns the changes from before to after, structs of the schema's type, in the order of the fields. It finds
// the entries of a list of sections by the keys in the "id" tag of its field, such as `id:"host,path"`. The texts of
// secrets are masked as in Values.
func (s *Schema) Diff(before, after any) []Change {
	return s.diff(reflect.ValueOf(before), reflect.ValueOf(after), "", false)
}

// diff compares two sections.
func (s *Schema) diff(before, after reflect.Value, key string, restart bool) (all []Change) {
	sec := s.sections[before.Type()]
	for i, f := range sec.fields {
		a, b, k := before.FieldByIndex(f.Index), after.FieldByIndex(f.Index), Join(key, sec.names[i])
		restart := restart || needsRestart(f.Tag)
		switch {
		case s.isSection(f.Type):
			all = append(all, s.diff(a, b, k, restart)...)
		case f.Type.Kind() == reflect.Slice && s.isSection(f.Type.Elem()):
			all = append(all, s.diffEntries(a, b, k, f.Tag.Get("id"))...)
		case !equal(a, b):
			all = append(all, Change{Key: k, Text: s.diffText(a, b, f.Tag), Restart: restart})
		}
	}
	return all
}

func needsRestart(tag reflect.StructTag) bool { return tag.Get("reload") == "restart" }

// equal compares two leaves. A list that is set and empty equals one that is not set.
func equal(a, b reflect.Value) bool {
	if a.Kind() == reflect.Slice || a.Kind() == reflect.Map {
		if a.Len() == 0 && b.Len() == 0 {
			return true
		}
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// diffText returns "old -> new", or, for a list or a map, the items that were added and removed.
func (s *Schema) diffText(before, after reflect.Value, tag reflect.StructTag) string {
	if before.Kind() != reflect.Slice && before.Kind() != reflect.Map {
		return s.shown(before, tag) + " -> " + s.shown(after, tag)
	}
	old, new := split(s.format(before, tag)), split(s.format(after, tag))
	items := append(missing("-", old, new), missing("+", new, old)...)
	if len(items) == 0 {
		return "another order"
	}
	const most = 20
	if more := len(items) - most; more > 0 {
		items = append(items[:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(items, ", ")
}

// shown returns the text of v for a change: "unset" for a nil pointer, and "" in quotes for an empty text.
func (s *Schema) shown(v reflect.Value, tag reflect.StructTag) string {
	text := s.format(v, tag)
	switch {
	case v.Kind() == reflect.Pointer && v.IsNil():
		return "unset"
	case text == "":
		return `""`
	}
	return text
}

// missing returns the items that are not among others, each after sign.
func missing(sign string, items, others []string) (all []string) {
	known := make(map[string]bool, len(others))
	for _, item := range others {
		known[item] = true
	}
	for _, item := range items {
		if !known[item] {
			all = append(all, sign+" "+item)
		}
	}
	return all
}

// diffEntries compares two lists of sections.
func (s *Schema) diffEntries(before, after reflect.Value, key, id string) (all []Change) {
	olds, oldNames := s.byName(before, id)
	news, newNames := s.byName(after, id)
	for _, name := range oldNames {
		if _, kept := news[name]; !kept {
			all = append(all, Change{Key: key, Sign: "-", Text: name})
		}
	}
	for _, name := range newNames {
		old, kept := olds[name]
		if !kept {
			all = append(all, Change{Key: key, Sign: "+", Text: name})
			continue
		}
		for _, c := range s.diff(old, news[name], "", false) {
			all = append(all, Change{Key: key, Sign: "~", Text: name + ": " + c.String()})
		}
	}
	isKept := func(in map[string]reflect.Value) func(string) bool {
		return func(name string) bool { _, ok := in[name]; return !ok }
	}
	if !slices.Equal(slices.DeleteFunc(oldNames, isKept(news)), slices.DeleteFunc(newNames, isKept(olds))) {
		all = append(all, Change{Key: key, Sign: "~", Text: "another order"})
	}
	return all
}

// byName returns the entries of a list by their names, which are made of the keys in id, and the names in the order of
// the list. Of entries with one name, the later ones are numbered.
func (s *Schema) byName(list reflect.Value, id string) (entries map[string]reflect.Value, names []string) {
	entries = make(map[string]reflect.Value, list.Len())
	for i := range list.Len() {
		name := s.entryName(list.Index(i), id)
		for n, first := 2, name; entries[name].IsValid(); n++ {
			name = fmt.Sprintf("%s (%d)", first, n)
		}
		entries[name], names = list.Index(i), append(names, name)
	}
	return entries, names
}

// entryName returns the texts of the keys in id. Without id the entries of a list have one name.
func (s *Schema) entryName(entry reflect.Value, id string) string {
	if id == "" {
		return "entry"
	}
	var parts []string
	for key := range strings.SplitSeq(id, ",") {
		l, _ := s.find(entry, key) // NewSchema has checked the tag
		if text := s.format(l.value, l.tag); text != "" {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, " ")
}

// KeepRestart copies the values of the keys that are tagged reload:"restart" from one struct to another. Both arguments
// are pointers to structs of the schema's type.
func (s *Schema) KeepRestart(to, from any) {
	s.keepRestart(reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem())
}

func (s *Schema) keepRestart(to, from reflect.Value) {
	for _, f := range s.sections[to.Type()].fields {
		a, b := to.FieldByIndex(f.Index), from.FieldByIndex(f.Index)
		switch {
		case needsRestart(f.Tag):
			a.Set(b)
		case s.isSection(f.Type):
			s.keepRestart(a, b)
		}
	}
}
