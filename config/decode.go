package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// maxDepth bounds how deep a file nests. Config needs five levels.
const maxDepth = 32

// readYAML reads one document into the Config. It walks the nodes itself, because a decoder stops at the first class of
// errors and keeps no columns; what the parser refuses is the one fault after which nothing more can be said.
func (l *loader) readYAML(path string, data []byte) {
	l.source, l.dir = path, filepath.Dir(path)
	if !l.checkOctets(data) {
		return
	}
	docs, err := yaml.NewLoader(bytes.NewReader(data), yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	if err != nil {
		l.syntax(data, err)
		return
	}
	var first, second yaml.Node
	switch err := docs.Load(&first); {
	case err == io.EOF || err == nil && isNull(first.Content[0]):
		l.faultAt(Origin{Source: path}, "", "the file sets nothing: if that is meant, do not name it")
		return
	case err != nil:
		l.syntax(data, err)
		return
	}
	l.decode(first.Content[0], reflect.ValueOf(l.cfg).Elem(), "", "")
	switch err := docs.Load(&second); {
	case err == nil:
		l.faultAt(l.place(&second), "", "a second document begins here, expected one in a file")
	case err != io.EOF:
		l.syntax(data, err)
	}
}

// checkOctets refuses what the parser would refuse without a line.
func (l *loader) checkOctets(data []byte) bool {
	for n := 0; n < len(data); {
		r, size := utf8.DecodeRune(data[n:])
		if r == utf8.RuneError && size == 1 || r < ' ' && !strings.ContainsRune("\t\n\r", r) || r == 0xFFFE || r == 0xFFFF {
			line := bytes.Count(data[:n], []byte("\n")) + 1
			column := utf8.RuneCount(data[bytes.LastIndexByte(data[:n], '\n')+1:n]) + 1
			l.faultAt(Origin{l.source, line, column}, "", "found the octet 0x%02x, expected text in UTF-8", data[n])
			return false
		}
		n += size
	}
	return true
}

// syntax reports what the parser says, with a hint for the mistakes that are made most.
func (l *loader) syntax(data []byte, err error) {
	var parse *yaml.LoadError
	if !errors.As(err, &parse) {
		l.faultAt(Origin{Source: l.source}, "", "not YAML: %v", err)
		return
	}
	text := "not YAML: " + parse.Message
	if parse.ContextMsg != "" {
		text += fmt.Sprintf(" (%s that began on line %d)", parse.ContextMsg, max(1, parse.ContextMark.Line))
	}
	switch at := []byte{octetAt(data, parse.Mark), octetAt(data, parse.ContextMark)}; {
	case at[0] == '\t':
		text = "not YAML: found a tab, expected spaces"
	case bytes.ContainsAny(at, "*&@`%"):
		text += `; a value that begins with one of *&@% stands in quotes: "*.example"`
	}
	l.faultAt(Origin{l.source, max(1, parse.Mark.Line), max(1, parse.Mark.Column)}, "", "%s", text)
}

func octetAt(data []byte, m yaml.Mark) byte {
	for range m.Line - 1 {
		_, data, _ = bytes.Cut(data, []byte("\n"))
	}
	if m.Column < 1 || m.Column > len(data) {
		return 0
	}
	return data[m.Column-1]
}

func (l *loader) place(n *yaml.Node) Origin { return Origin{l.source, n.Line, n.Column} }

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// decode reads n into v, which has the given key and tag. It recurses as deep as the type of Config does.
func (l *loader) decode(n *yaml.Node, v reflect.Value, key string, tag reflect.StructTag) {
	if key != "" {
		l.cfg.origins[key] = l.place(n)
	}
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		l.faultAt(l.place(n), key, "found an anchor or an alias (&name, *name), expected the value itself; a text that begins so stands in quotes")
	case n.Style&yaml.TaggedStyle != 0:
		l.faultAt(l.place(n), key, "found the tag %s, expected the value alone", quote(n.Tag))
	case isNull(n) && v.Kind() != reflect.Pointer && !isScalar(v.Type()):
		// A section or list whose lines are all commented out is as if it were not there.
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		l.decode(n, v.Elem(), key, tag)
	case isSection(v.Type()):
		l.decodeSection(n, v, key)
	case v.Kind() == reflect.Slice:
		l.decodeList(n, v, key, tag)
	case v.Kind() == reflect.Map:
		l.decodeMap(n, v, key, tag)
	default:
		l.decodeScalar(n, v, key, tag)
	}
}

// pairs calls each for the key and the value of every pair of a mapping, and refuses what is no mapping, a key that is
// no plain text, and a key that was there before.
func (l *loader) pairs(n *yaml.Node, key, expected string, each func(name, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		l.faultAt(l.place(n), key, "found %s, expected %s", describe(n), expected)
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		switch first, twice := seen[name.Value]; {
		case name.Kind != yaml.ScalarNode || name.Anchor != "" || name.ShortTag() == "!!merge":
			l.faultAt(l.place(name), key, "found %s, expected a plain key: anchors, aliases and merge keys (<<) are not read", describe(name))
		case twice:
			l.faultAt(l.place(name), join(key, cut(name.Value)), "set twice, first on line %d", first)
		default:
			seen[name.Value] = name.Line
			each(name, value)
		}
	}
}

func (l *loader) decodeSection(n *yaml.Node, v reflect.Value, key string) {
	s := sections[v.Type()]
	if n.Kind != yaml.MappingNode {
		for _, name := range s.names {
			l.bad[join(key, name)] = true // or checks would miss each of them
		}
	}
	l.pairs(n, key, "keys such as "+s.names[0], func(name, value *yaml.Node) {
		i := slices.Index(s.names, name.Value)
		if i < 0 {
			l.unknownKey(l.place(name), key, name.Value, s.names)
			return
		}
		l.decode(value, v.FieldByIndex(s.fields[i].Index), join(key, name.Value), s.fields[i].Tag)
	})
}

// unknownKey reports a key that key does not have. The key that it was meant to be counts as faulty too, so that no
// check goes on to miss it.
func (l *loader) unknownKey(at Origin, key, name string, names []string) {
	if len(l.faults) == maxFaults {
		return // a file of unknown keys is not worth a search for each
	}
	text := "unknown key, expected one of " + strings.Join(names, ", ")
	if near := Suggest(name, names); near != "" {
		text = "unknown key; did you mean " + near + "?"
		l.bad[join(key, near)] = true
	} else if elsewhere := sameName(name); elsewhere != "" {
		text = "unknown key here; did you mean " + elsewhere + "?"
	}
	l.faultAt(at, join(key, cut(name)), "%s", text)
}

// sameName returns the key of another section that ends in name.
func sameName(name string) string {
	for _, k := range topKeys() {
		if strings.HasSuffix(k, "."+name) {
			return k
		}
	}
	return ""
}

// cut keeps a foreign name on one line of bearable length.
func cut(name string) string {
	q := quote(name)
	if q == `"`+name+`"` {
		return name
	}
	return q
}

// decodeList replaces the list v. Of sections a faulty entry is kept, so that entries keep their numbers.
func (l *loader) decodeList(n *yaml.Node, v reflect.Value, key string, tag reflect.StructTag) {
	if n.Kind != yaml.SequenceNode {
		l.faultAt(l.place(n), key, "found %s, expected a list", describe(n))
		return
	}
	list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, child := range n.Content {
		l.decode(child, list.Index(i), item(key, i), tag)
	}
	v.Set(list)
}

// decodeMap replaces the map v. Two spellings of one key are that key twice.
func (l *loader) decodeMap(n *yaml.Node, v reflect.Value, key string, tag reflect.StructTag) {
	m := reflect.MakeMap(v.Type())
	l.pairs(n, key, "keys such as a.example: 127.0.0.1", func(name, value *yaml.Node) {
		entry := join(key, cut(name.Value))
		l.cfg.origins[entry] = l.place(name)
		k, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		l.assign(k, name.Value, entry, tag)
		l.decode(value, elem, entry, "")
		if m.MapIndex(k).IsValid() && l.ok(entry) {
			l.faultAt(l.place(name), entry, "%s is there already", k)
		}
		m.SetMapIndex(k, elem)
	})
	v.Set(m)
}

func (l *loader) decodeScalar(n *yaml.Node, v reflect.Value, key string, tag reflect.StructTag) {
	s, _ := scalarFor(v.Type(), tag)
	quoted := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0
	switch {
	case n.Kind != yaml.ScalarNode:
		l.fault(key, "found %s, expected %s", describe(n), s.expected)
	case isNull(n):
		l.fault(key, "found no value, expected %s", s.expected)
	case s.plain && quoted:
		l.fault(key, "found %s in quotes, expected %s without", quote(n.Value), s.expected)
	default:
		l.assign(v, n.Value, key, tag)
	}
}

// describe names what n is, for "found ..., expected ...".
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "keys and values"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.AliasNode:
		return "the alias " + quote(n.Value)
	case isNull(n):
		return "no value"
	}
	return quote(n.Value)
}
