// Package settings decodes a program's configuration into a struct: first a YAML file, then environment variables, then
// flags. It collects every problem instead of stopping at the first, each with the place that set the value.
//
//	type Config struct {
//		Listen string        `as:"address"`
//		Grace  time.Duration `range:"0s..1h"`
//	}
//
//	var schema = settings.NewSchema(Config{}, types, kinds)
//
//	d := schema.NewDecoder(&cfg)        // cfg holds the defaults
//	err := d.ReadFile("program.yaml")   // only if the file cannot be read
//	d.ReadEnv("PROGRAM_", os.Environ()) // PROGRAM_GRACE
//	d.Set("grace", "10s", "--grace")
//	if d.OK("grace") && cfg.Grace < time.Second {
//		d.Reject("grace", "too short")
//	}
//	return d.Err() // Problems
//
// A value that is set later replaces an earlier one. The same Scalar parses it wherever it comes from.
//
// The key of a field is its name in snake case, prefixed with the keys of the structs around it: MaxQueue of a field
// Pacing is pacing.max_queue. A struct without a Scalar is a section, a group of keys. A slice of sections is a list
// that only the file can set. A nil pointer means that the value is not set. Tags refine a field: "as" names the
// kind of a string, and "range" the bounds of a number ("1s..24h", or "1s.." without an upper bound), with a reason in
// "why". The tag reload:"restart" marks a key, or all keys of a section, that cannot change while the program runs, and
// "id" lists the keys that name an entry of a list: see Diff.
//
// Relative paths, strings of the kind "path", are relative to the folder of the file, or to the working directory if a
// variable or flag sets them.
//
// Package settings knows no particular key. The caller checks values that depend on each other, and reports them with
// Reject.
package settings

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Decoder fills one struct. Its methods must not be called concurrently.
type Decoder struct {
	schema   *Schema
	root     reflect.Value
	source   string // of the values that are being read
	dir      string // the folder of relative paths in source
	origins  map[string]Origin
	problems Problems
	warnings []Warning
	bad      map[string]bool // keys with a problem, and the keys that enclose them
}

// NewDecoder returns a Decoder that fills config, a pointer to a struct of the schema's type.
func (s *Schema) NewDecoder(config any) *Decoder {
	root := reflect.ValueOf(config).Elem()
	if root.Type() != s.root {
		panic("settings: NewDecoder(" + root.Type().String() + ") of a schema for " + s.root.String())
	}
	return &Decoder{schema: s, root: root, origins: make(map[string]Origin), bad: make(map[string]bool)}
}

// Err returns the Problems so far in the order of the file, followed by those of variables and flags, or nil.
func (d *Decoder) Err() error {
	if len(d.problems) == 0 {
		return nil
	}
	problems := slices.Clone(d.problems)
	problems.sort()
	return problems
}

// Warnings returns the warnings so far.
func (d *Decoder) Warnings() []Warning { return slices.Clone(d.warnings) }

// Origins returns the place of each key that was set.
func (d *Decoder) Origins() map[string]Origin { return maps.Clone(d.origins) }

// SetOrigins replaces the places of the keys that were set, for a struct that was filled by another Decoder.
func (d *Decoder) SetOrigins(origins map[string]Origin) { d.origins = maps.Clone(origins) }

// Reject reports a problem of the value of key, at the place that set it.
func (d *Decoder) Reject(key, format string, args ...any) {
	d.RejectAt(d.At(key), key, format, args...)
}

// RejectAt reports a problem of key at another place, for a key that is missing there.
func (d *Decoder) RejectAt(at Origin, key, format string, args ...any) {
	if len(d.problems) == maxProblems {
		return
	}
	for k := key; k != ""; k = enclosing(k) {
		d.bad[k] = true
	}
	d.problems = append(d.problems, Problem{at, key, fmt.Sprintf(format, args...)})
}

// Warn reports a value that is accepted and probably not intended.
func (d *Decoder) Warn(key, format string, args ...any) {
	d.warnings = append(d.warnings, Warning{d.At(key), key, fmt.Sprintf(format, args...)})
}

// At returns the place that set key, or the zero Origin for a default. The place of a key that an entry of a list lacks
// is that of the entry.
func (d *Decoder) At(key string) Origin {
	o, ok := d.origins[key]
	if !ok && strings.Contains(key, "[") {
		return d.At(enclosing(key))
	}
	return o
}

// IsSet reports whether key itself was set.
func (d *Decoder) IsSet(key string) bool {
	_, ok := d.origins[key]
	return ok
}

// OK reports whether all keys are free of problems, so that their values can be checked together.
func (d *Decoder) OK(keys ...string) bool {
	return !slices.ContainsFunc(keys, func(k string) bool { return d.bad[k] })
}
