package settings

import (
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// ReadEnv reads the variables of env (as os.Environ returns them) that begin with prefix: PREFIX_ROBOTS_TTL sets
// robots.ttl. An empty variable counts as missing, since Compose files and unit files pass those on. An unknown one is
// a warning and not a problem: Kubernetes sets variables for a service with the program's name.
func (d *Decoder) ReadEnv(prefix string, env []string) {
	keys := slices.AppendSeq(slices.Clone(d.schema.keys), maps.Keys(d.schema.removed))
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = strings.ReplaceAll(k, ".", "_")
	}
	for _, entry := range slices.Sorted(slices.Values(env)) {
		variable, value, _ := strings.Cut(entry, "=")
		name, ours := strings.CutPrefix(variable, prefix)
		if !ours || value == "" {
			continue
		}
		i := slices.IndexFunc(names, func(n string) bool { return strings.ToUpper(n) == name })
		if i >= 0 {
			d.Set(keys[i], value, variable)
			continue
		}
		text := "unknown variable, ignored"
		if near := Suggest(strings.ToLower(name), names[:len(d.schema.keys)]); near != "" {
			text += "; did you mean " + prefix + strings.ToUpper(near) + "?"
		}
		d.warnings = append(d.warnings, Warning{Origin{Source: variable}, "", text})
	}
}

// Set sets key to the value of a variable or a flag, whose name is source. A list is split at commas, and an entry of a
// map is key=value. Relative paths are relative to the working directory.
func (d *Decoder) Set(key, text, source string) {
	d.source, d.dir = source, ""
	at := Origin{Source: source}
	target, found := d.schema.find(d.root, key)
	v := target.value
	switch {
	case !found && d.schema.removed[key] != "":
		d.RejectAt(at, key, "removed key: %s", d.schema.removed[key])
		return
	case !found:
		d.RejectAt(at, key, "unknown key")
		return
	case v.Kind() == reflect.Slice && d.schema.isSection(v.Type().Elem()):
		d.RejectAt(at, key, "can be set in the file only")
		return
	}
	d.forget(key)
	d.origins[key] = at
	switch v.Kind() {
	case reflect.Slice:
		d.setList(v, split(text), key, target.tag)
	case reflect.Map:
		d.setMap(v, split(text), key, target.tag)
	default:
		d.assign(v, text, key, target.tag)
	}
}

// forget removes the origins below key, so that a check of its new value does not name lines of the old one.
func (d *Decoder) forget(key string) {
	for k := range d.origins {
		if strings.HasPrefix(k, key+"[") || strings.HasPrefix(k, key+".") {
			delete(d.origins, k)
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

func (d *Decoder) setList(v reflect.Value, items []string, key string, tag reflect.StructTag) {
	list := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, text := range items {
		d.assign(list.Index(i), text, Item(key, i), tag)
	}
	v.Set(list)
}

func (d *Decoder) setMap(v reflect.Value, items []string, key string, tag reflect.StructTag) {
	m := reflect.MakeMap(v.Type())
	for _, entry := range items {
		name, text, paired := strings.Cut(entry, "=")
		if !paired {
			d.Reject(key, "found %s, expected entries such as a.example=127.0.0.1", Quote(entry))
			continue
		}
		k, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		d.assign(k, name, key, tag)
		d.assign(elem, text, key, "")
		m.SetMapIndex(k, elem)
	}
	v.Set(m)
}

// Reread parses *text as a string of the given kind and stores the result, or reports a problem of key. It is for
// fields of types that other packages define and that have no tags.
func (d *Decoder) Reread(key, kind string, text *string) {
	d.assign(reflect.ValueOf(text).Elem(), *text, key, reflect.StructTag(`as:"`+kind+`"`))
}

// assign parses text into v, a scalar.
func (d *Decoder) assign(v reflect.Value, text, key string, tag reflect.StructTag) {
	s, _ := d.schema.scalar(v.Type(), tag)
	value, err := s.Parse(text)
	if err != nil {
		d.Reject(key, "%v", err)
		return
	}
	if bound := s.outside(value, tag); bound != "" {
		d.Reject(key, "found %s, expected %s", s.format(value), bound)
		return
	}
	if tag.Get("as") == "path" {
		value = d.resolve(text)
	}
	v.Set(reflect.ValueOf(value))
}

// resolve returns a relative path in the folder of the file that sets it. "-" means standard output and is not a path.
func (d *Decoder) resolve(path string) string {
	if path == "" || path == "-" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(d.dir, path)
}
