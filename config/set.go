package config

import (
	"path/filepath"
	"reflect"
	"strings"
)

// set gives a key the value of a variable or a flag, which are one text: a list is split at commas, and an entry of a
// map is key=value. Relative paths are relative to the working directory.
func (l *loader) set(key, text, source string) {
	l.source, l.dir = source, ""
	at := Origin{Source: source}
	target, found := find(l.cfg, key)
	v := target.value
	switch {
	case !found:
		l.faultAt(at, key, "unknown key")
		return
	case v.Kind() == reflect.Slice && isSection(v.Type().Elem()):
		l.faultAt(at, key, "can be set in the file only")
		return
	}
	l.forget(key)
	l.cfg.origins[key] = at
	switch v.Kind() {
	case reflect.Slice:
		l.setList(v, split(text), key, target.tag)
	case reflect.Map:
		l.setMap(v, split(text), key, target.tag)
	default:
		l.assign(v, text, key, target.tag)
	}
}

// forget drops what the file said below key, so that a check of the list that comes now does not name its lines.
func (l *loader) forget(key string) {
	for k := range l.cfg.origins {
		if strings.HasPrefix(k, key+"[") || strings.HasPrefix(k, key+".") {
			delete(l.cfg.origins, k)
		}
	}
}

func split(text string) []string {
	var items []string
	for s := range strings.SplitSeq(text, ",") {
		if s = strings.TrimSpace(s); s != "" {
			items = append(items, s)
		}
	}
	return items
}

func (l *loader) setList(v reflect.Value, items []string, key string, tag reflect.StructTag) {
	list := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, text := range items {
		l.assign(list.Index(i), text, item(key, i), tag)
	}
	v.Set(list)
}

func (l *loader) setMap(v reflect.Value, items []string, key string, tag reflect.StructTag) {
	m := reflect.MakeMap(v.Type())
	for _, entry := range items {
		name, text, paired := strings.Cut(entry, "=")
		if !paired {
			l.fault(key, "found %s, expected entries such as a.example=127.0.0.1", quote(entry))
			continue
		}
		k, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		l.assign(k, name, key, tag)
		l.assign(elem, text, key, "")
		m.SetMapIndex(k, elem)
	}
	v.Set(m)
}

// assign parses text into v, a scalar.
func (l *loader) assign(v reflect.Value, text, key string, tag reflect.StructTag) {
	s, _ := scalarFor(v.Type(), tag)
	value, err := s.parse(text)
	if err != nil {
		l.fault(key, "found %s, expected %s%s", s.found(text), s.expected, s.hint(text, err))
		return
	}
	if bound := s.outside(value, tag); bound != "" {
		l.fault(key, "found %s, expected %s", s.format(value), bound)
		return
	}
	if tag.Get("as") == "path" {
		value = l.placePath(text)
	}
	v.Set(reflect.ValueOf(value))
}

// found names text as it stands there.
func (s scalar) found(text string) string {
	if s.secret {
		return "something else (not shown, it may hold a password)"
	}
	return quote(text)
}

// hint is what can be said beyond "found this, expected that".
func (s scalar) hint(text string, err error) string {
	if err != errNoHint {
		return "; " + err.Error()
	}
	if near := Suggest(text, s.words); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

// outside returns which bound of the tag "range", such as "1s..24h" or "1ms..", value is beyond, or "".
func (s scalar) outside(value any, tag reflect.StructTag) string {
	low, high, bounded := strings.Cut(tag.Get("range"), "..")
	why := ""
	if w := tag.Get("why"); w != "" {
		why = " (" + w + ")"
	}
	order := func(bound string) int64 {
		b, err := s.parse(bound)
		if err != nil {
			panic("config: range " + bound + " of a field: " + err.Error())
		}
		return reflect.ValueOf(b).Int()
	}
	switch {
	case !bounded:
		return ""
	case reflect.ValueOf(value).Int() < order(low):
		return "at least " + low + why
	case high != "" && reflect.ValueOf(value).Int() > order(high):
		return "at most " + high + why
	}
	return ""
}

// placePath places a relative path in the folder of the file that has it. "-" is stdout, not a path.
func (l *loader) placePath(path string) string {
	if path == "" || path == "-" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(l.dir, path)
}
