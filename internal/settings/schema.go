package settings

import (
	"reflect"
	"slices"
	"strings"
)

// Schema describes the fields of a configuration struct to a Decoder.
type Schema struct {
	root     reflect.Type
	types    map[reflect.Type]Scalar
	kinds    map[string]Scalar
	sections map[reflect.Type]section // found once, since a file may have very many entries
	keys     []string                 // that can be set outside lists
	removed  map[string]string        // by key: see WithRemoved
}

// section is a struct type with keys: its fields and their names, in the same order.
type section struct {
	fields []reflect.StructField
	names  []string
}

// NewSchema returns the schema of the type of config, a struct. types says how values of a type are read, and kinds how
// strings are read, by the "as" tag of their field; the empty string is the kind of a string without the tag. NewSchema
// panics if a field cannot be read with these.
func NewSchema(config any, types map[reflect.Type]Scalar, kinds map[string]Scalar) *Schema {
	s := &Schema{root: reflect.TypeOf(config), types: types, kinds: kinds, sections: make(map[reflect.Type]section)}
	s.addSection(s.root)
	s.keys = s.Keys(config)
	return s
}

// WithRemoved declares keys that existed in earlier versions, each with the advice for a user who still sets it. Such
// a key is a problem in every source, even in a variable: its value would be lost without notice. It returns s.
func (s *Schema) WithRemoved(advice map[string]string) *Schema {
	s.removed = advice
	return s
}

// addSection adds t and every section below it.
func (s *Schema) addSection(t reflect.Type) {
	var sec section
	for _, f := range reflect.VisibleFields(t) {
		if !f.IsExported() {
			continue
		}
		sec.fields, sec.names = append(sec.fields, f), append(sec.names, snake(f.Name))
		if when := f.Tag.Get("reload"); when != "" && when != "restart" {
			panic("settings: cannot read the tag reload:" + when + " of the field " + f.Name)
		}
		elem, tag := f.Type, f.Tag
		for elem.Kind() == reflect.Slice || elem.Kind() == reflect.Pointer || elem.Kind() == reflect.Map {
			if elem.Kind() == reflect.Map {
				s.mustScalar(f, elem.Key(), tag)
				tag = ""
			}
			elem = elem.Elem()
		}
		if s.isSection(elem) {
			s.addSection(elem)
			s.mustID(f, elem)
		} else {
			s.mustScalar(f, elem, tag)
		}
	}
	s.sections[t] = sec
}

// mustID panics if the "id" tag of f names a key that elem does not have.
func (s *Schema) mustID(f reflect.StructField, elem reflect.Type) {
	id := f.Tag.Get("id")
	for key := range strings.SplitSeq(id, ",") {
		if id != "" && !slices.Contains(s.sections[elem].names, key) {
			panic("settings: cannot read the tag id:" + id + " of the field " + f.Name)
		}
	}
}

func (s *Schema) mustScalar(f reflect.StructField, t reflect.Type, tag reflect.StructTag) {
	scalar, ok := s.scalar(t, tag)
	if !ok {
		panic("settings: no Scalar for the field " + f.Name + " " + t.String())
	}
	scalar.mustRange(f.Name, tag)
}

// scalar returns how a field of type t is read.
func (s *Schema) scalar(t reflect.Type, tag reflect.StructTag) (scalar Scalar, ok bool) {
	if t == reflect.TypeFor[string]() {
		scalar, ok = s.kinds[tag.Get("as")]
		return scalar, ok
	}
	scalar, ok = s.types[t]
	return scalar, ok
}

func (s *Schema) isScalar(t reflect.Type) bool {
	_, ok := s.scalar(t, "")
	return ok
}

// isSection reports whether values of type t have keys.
func (s *Schema) isSection(t reflect.Type) bool { return t.Kind() == reflect.Struct && !s.isScalar(t) }

// leaf is a value without keys: a scalar, a list or map of scalars, or an empty list of sections.
type leaf struct {
	key     string
	value   reflect.Value
	tag     reflect.StructTag
	restart bool
}

// leaves returns all leaves below v, in the order of the struct.
func (s *Schema) leaves(v reflect.Value, key string, tag reflect.StructTag, restart bool) []leaf {
	var all []leaf
	restart = restart || needsRestart(tag)
	switch {
	case s.isSection(v.Type()):
		sec := s.sections[v.Type()]
		for i, f := range sec.fields {
			all = append(all, s.leaves(v.FieldByIndex(f.Index), Join(key, sec.names[i]), f.Tag, restart)...)
		}
	case v.Kind() == reflect.Slice && s.isSection(v.Type().Elem()) && v.Len() > 0:
		for i := range v.Len() {
			all = append(all, s.leaves(v.Index(i), Item(key, i), tag, restart)...)
		}
	default:
		all = append(all, leaf{key, v, tag, restart})
	}
	return all
}

// Keys returns the keys of config, a struct of the schema's type, in the order of its fields. A list of sections has
// the keys of its entries (clients[0].name), or one key if it is empty (clients).
func (s *Schema) Keys(config any) []string {
	var keys []string
	for _, l := range s.leaves(reflect.ValueOf(config), "", "", false) {
		keys = append(keys, l.key)
	}
	return keys
}

// find returns the leaf of key below root, outside lists.
func (s *Schema) find(root reflect.Value, key string) (leaf, bool) {
	l := leaf{key: key, value: root}
	for name := range strings.SplitSeq(key, ".") {
		sec := s.sections[l.value.Type()] // without names if it is a scalar
		i := slices.Index(sec.names, name)
		if i < 0 {
			return l, false
		}
		l.value, l.tag = l.value.FieldByIndex(sec.fields[i].Index), sec.fields[i].Tag
	}
	return l, !s.isSection(l.value.Type())
}
