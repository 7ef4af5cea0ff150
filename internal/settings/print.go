package settings

import (
	"bytes"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// YAML returns config, a struct of the schema's type, as a file that a Decoder reads as config. It has every key in the
// order of the fields, but of an entry of a list only those in origins. Secrets are masked as in Values.
func (s *Schema) YAML(config any, origins map[string]Origin) ([]byte, error) {
	p := printer{s, origins}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(p.section(reflect.ValueOf(config), "")); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}

// printer makes YAML nodes.
type printer struct {
	*Schema
	origins map[string]Origin
}

func (p printer) section(v reflect.Value, key string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	sec := p.sections[v.Type()]
	for i, f := range sec.fields {
		k := Join(key, sec.names[i])
		if _, set := p.origins[k]; set || !strings.Contains(k, "[") {
			n.Content = append(n.Content, p.text(sec.names[i]), p.value(v.FieldByIndex(f.Index), k, f.Tag))
		}
	}
	return n
}

func (p printer) value(v reflect.Value, key string, tag reflect.StructTag) *yaml.Node {
	switch {
	case v.Kind() == reflect.Pointer && !v.IsNil():
		return p.value(v.Elem(), key, tag)
	case p.isSection(v.Type()):
		return p.section(v, key)
	case v.Kind() == reflect.Slice:
		return p.list(v, key, tag)
	case v.Kind() == reflect.Map:
		return p.entries(v, tag)
	}
	return p.text(p.format(v, tag))
}

// list writes a list of sections over several lines, and another on one.
func (p printer) list(v reflect.Value, key string, tag reflect.StructTag) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode}
	if v.Len() == 0 || !p.isSection(v.Type().Elem()) {
		n.Style = yaml.FlowStyle
	}
	for i := range v.Len() {
		n.Content = append(n.Content, p.value(v.Index(i), Item(key, i), tag))
	}
	return n
}

func (p printer) entries(v reflect.Value, tag reflect.StructTag) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	if v.Len() == 0 {
		n.Style = yaml.FlowStyle
	}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(p.format(a, tag), p.format(b, tag)) })
	for _, k := range keys {
		n.Content = append(n.Content, p.text(p.format(k, tag)), p.text(p.format(v.MapIndex(k), "")))
	}
	return n
}

// text returns a scalar. It is in quotes only if YAML would read it as null, or needs them: a Decoder does not resolve
// the type of another.
func (p printer) text(text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: text}
	if slices.Contains(nulls, text) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// nulls are the plain scalars that YAML reads as null.
var nulls = []string{"", "~", "null", "Null", "NULL"}
