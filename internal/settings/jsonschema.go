package settings

import (
	"reflect"
	"strconv"
	"strings"
)

// JSONSchema returns a JSON Schema (draft 2020-12) of the files that a Decoder reads, for editors. Defaults is a struct
// of the schema's type, and descriptions has the descriptions of keys, as Comments returns them. What only the parser of
// a scalar knows, such as the bounds of a duration, is in the descriptions alone.
func (s *Schema) JSONSchema(title string, defaults any, descriptions map[string]string) map[string]any {
	j := jsonSchema{s, descriptions}
	schema := j.section(reflect.ValueOf(defaults), "")
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	schema["title"] = title
	return schema
}

type jsonSchema struct {
	*Schema
	descriptions map[string]string
}

// section describes a section. The values of v are the defaults.
func (j jsonSchema) section(v reflect.Value, key string) map[string]any {
	properties := make(map[string]any)
	sec := j.sections[v.Type()]
	for i, f := range sec.fields {
		k := Join(key, sec.names[i])
		p := j.value(v.FieldByIndex(f.Index), k, f.Tag)
		if text := j.describe(k, f); text != "" {
			p["description"] = text
		}
		properties[sec.names[i]] = p
	}
	return map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
}

// describe returns the description of a key, with what the schema cannot say.
func (j jsonSchema) describe(key string, f reflect.StructField) string {
	text := j.descriptions[key]
	for t := f.Type; ; t = t.Elem() {
		if scalar, ok := j.scalar(t, f.Tag); ok && len(scalar.words) == 0 && t != reflect.TypeFor[bool]() {
			text += "\nExpected: " + scalar.expected
			if bounds := f.Tag.Get("range"); bounds != "" {
				text += ", " + bounds
			}
			text += "."
		}
		if t.Kind() != reflect.Slice && t.Kind() != reflect.Pointer {
			break
		}
	}
	if needsRestart(f.Tag) {
		text += "\nA change needs a restart."
	}
	return strings.TrimSpace(text)
}

func (j jsonSchema) value(v reflect.Value, key string, tag reflect.StructTag) map[string]any {
	t := v.Type()
	switch {
	case t.Kind() == reflect.Pointer:
		return j.item(t.Elem(), key, tag)
	case j.isSection(t):
		return j.section(v, key)
	case t.Kind() == reflect.Slice:
		return map[string]any{"type": []string{"array", "null"}, "items": j.item(t.Elem(), key, tag)}
	case t.Kind() == reflect.Map:
		return map[string]any{"type": []string{"object", "null"}, "additionalProperties": j.item(t.Elem(), key, "")}
	}
	p := j.item(t, key, tag)
	if !strings.Contains(key, "[]") {
		p["default"] = j.literal(v, tag)
	}
	return p
}

// item describes a value of type t without a default.
func (j jsonSchema) item(t reflect.Type, key string, tag reflect.StructTag) map[string]any {
	if j.isSection(t) {
		return j.section(reflect.New(t).Elem(), key+"[]")
	}
	scalar, _ := j.scalar(t, tag)
	switch {
	case len(scalar.words) > 0:
		return map[string]any{"enum": scalar.words}
	case t == reflect.TypeFor[bool]():
		return map[string]any{"type": "boolean"}
	case scalar.unquoted:
		return j.number(tag)
	}
	return map[string]any{"type": []string{"string", "number"}} // YAML reads 443 as a number
}

// number describes a whole number within the bounds of tag.
func (j jsonSchema) number(tag reflect.StructTag) map[string]any {
	p := map[string]any{"type": "integer"}
	low, high, _ := strings.Cut(tag.Get("range"), "..")
	for name, bound := range map[string]string{"minimum": low, "maximum": high} {
		if n, err := strconv.Atoi(bound); err == nil {
			p[name] = n
		}
	}
	return p
}

// literal returns a scalar as JSON has it.
func (j jsonSchema) literal(v reflect.Value, tag reflect.StructTag) any {
	if scalar, _ := j.scalar(v.Type(), tag); scalar.unquoted {
		return v.Interface()
	}
	return j.format(v, tag)
}
