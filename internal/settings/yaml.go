package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

const (
	maxFile  = 1 << 20 // bytes; in the worst case each costs 250 bytes of memory and 2 µs
	maxDepth = 32      // of nested nodes
)

// ReadFile reads the YAML file at path, of at most 1 MiB. Its error means that the file cannot be read; all other
// errors are problems. Relative paths in the file are relative to its folder.
func (d *Decoder) ReadFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return err
	}
	if len(data) > maxFile {
		return fmt.Errorf("%s is larger than 1MiB", path)
	}
	d.ReadYAML(path, data)
	return nil
}

// ReadYAML reads data, the content of the file at path, which must be one YAML document. It walks the nodes itself: the
// decoder of package yaml stops at the first class of errors and keeps no columns. After a syntax error nothing more of
// the document is read.
func (d *Decoder) ReadYAML(path string, data []byte) {
	d.source, d.dir = path, filepath.Dir(path)
	if !d.checkBytes(data) {
		return
	}
	limits := loaderlimits.New(loaderlimits.DepthValue(maxDepth))
	docs, err := yaml.NewLoader(bytes.NewReader(data), yaml.WithPlugin(limits))
	if err != nil {
		d.rejectSyntax(data, err)
		return
	}
	var first, second yaml.Node
	switch err := docs.Load(&first); {
	case err == io.EOF || err == nil && isNull(first.Content[0]):
		d.RejectAt(Origin{Source: path}, "", "the file sets nothing; if that is intended, load no file")
		return
	case err != nil:
		d.rejectSyntax(data, err)
		return
	}
	d.decode(first.Content[0], d.root, "", "")
	switch err := docs.Load(&second); {
	case err == nil:
		d.RejectAt(d.place(&second), "", "found a second document, expected one")
	case err != io.EOF:
		d.rejectSyntax(data, err)
	}
}

// checkBytes reports bytes that the parser would reject without a line.
func (d *Decoder) checkBytes(data []byte) bool {
	for n := 0; n < len(data); {
		r, size := utf8.DecodeRune(data[n:])
		control := r < ' ' && !strings.ContainsRune("\t\n\r", r)
		if r == utf8.RuneError && size == 1 || control || r == 0xFFFE || r == 0xFFFF {
			line := bytes.Count(data[:n], []byte("\n")) + 1
			column := utf8.RuneCount(data[bytes.LastIndexByte(data[:n], '\n')+1:n]) + 1
			d.RejectAt(Origin{d.source, line, column}, "", "found the byte 0x%02x, expected text in UTF-8", data[n])
			return false
		}
		n += size
	}
	return true
}

// rejectSyntax reports an error of the parser, with a hint for the most common mistakes.
func (d *Decoder) rejectSyntax(data []byte, err error) {
	var parse *yaml.LoadError
	if !errors.As(err, &parse) {
		d.RejectAt(Origin{Source: d.source}, "", "not YAML: %v", err)
		return
	}
	text := "not YAML: " + parse.Message
	if parse.ContextMsg != "" {
		text += fmt.Sprintf(" (%s that began on line %d)", parse.ContextMsg, max(1, parse.ContextMark.Line))
	}
	switch at := []byte{byteAt(data, parse.Mark), byteAt(data, parse.ContextMark)}; {
	case at[0] == '\t':
		text = "not YAML: found a tab, expected spaces"
	case bytes.ContainsAny(at, "*&@`%"):
		text += `; quote a value that begins with one of *&@%: "*.example"`
	}
	d.RejectAt(Origin{d.source, max(1, parse.Mark.Line), max(1, parse.Mark.Column)}, "", "%s", text)
}

func byteAt(data []byte, m yaml.Mark) byte {
	for range m.Line - 1 {
		_, data, _ = bytes.Cut(data, []byte("\n"))
	}
	if m.Column < 1 || m.Column > len(data) {
		return 0
	}
	return data[m.Column-1]
}

func (d *Decoder) place(n *yaml.Node) Origin { return Origin{d.source, n.Line, n.Column} }

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// decode reads n into v, which has the given key and tag. Its recursion is as deep as the type of the root.
func (d *Decoder) decode(n *yaml.Node, v reflect.Value, key string, tag reflect.StructTag) {
	if key != "" {
		d.origins[key] = d.place(n)
	}
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		d.RejectAt(d.place(n), key,
			"found an anchor or an alias (&name, *name), expected the value itself; quote a text that begins so")
	case n.Style&yaml.TaggedStyle != 0:
		d.RejectAt(d.place(n), key, "found the tag %s, expected the value alone", Quote(n.Tag))
	case isNull(n) && v.Kind() != reflect.Pointer && !d.schema.isScalar(v.Type()):
		// A section or list with all its lines commented out counts as missing.
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.decode(n, v.Elem(), key, tag)
	case d.schema.isSection(v.Type()):
		d.decodeSection(n, v, key)
	case v.Kind() == reflect.Slice:
		d.decodeList(n, v, key, tag)
	case v.Kind() == reflect.Map:
		d.decodeMap(n, v, key, tag)
	default:
		d.decodeScalar(n, v, key, tag)
	}
}

// pairs calls each for every pair of the mapping n. It reports a node that is not a mapping, keys that are not plain
// text, and keys that are set twice.
func (d *Decoder) pairs(n *yaml.Node, key, expected string, each func(name, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		d.RejectAt(d.place(n), key, "found %s, expected %s", describe(n), expected)
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		switch first, twice := seen[name.Value]; {
		case name.Kind != yaml.ScalarNode || name.Anchor != "" || name.ShortTag() == "!!merge":
			d.RejectAt(d.place(name), key,
				"found %s, expected a plain key: anchors, aliases and merge keys (<<) are not supported", describe(name))
		case twice:
			d.RejectAt(d.place(name), Join(key, cut(name.Value)), "set twice, first on line %d", first)
		default:
			seen[name.Value] = name.Line
			each(name, value)
		}
	}
}

func (d *Decoder) decodeSection(n *yaml.Node, v reflect.Value, key string) {
	s := d.schema.sections[v.Type()]
	if n.Kind != yaml.MappingNode {
		for _, name := range s.names {
			d.bad[Join(key, name)] = true // so that no check reports each of them as missing
		}
	}
	d.pairs(n, key, "keys such as "+s.names[0], func(name, value *yaml.Node) {
		i := slices.Index(s.names, name.Value)
		if i < 0 {
			d.unknownKey(d.place(name), key, name.Value, s.names)
			return
		}
		d.decode(value, v.FieldByIndex(s.fields[i].Index), Join(key, name.Value), s.fields[i].Tag)
	})
}

// unknownKey reports a name that the section key does not have. The key that was probably meant counts as a problem
// too, so that no check reports it as missing.
func (d *Decoder) unknownKey(at Origin, key, name string, names []string) {
	if len(d.problems) == maxProblems {
		return // a file of unknown keys would cost a search for each
	}
	text := "unknown key, expected one of " + strings.Join(names, ", ")
	if advice, ok := d.schema.removed[Join(key, name)]; ok {
		text = "removed key: " + advice
	} else if near := Suggest(name, names); near != "" {
		text = "unknown key; did you mean " + near + "?"
		d.bad[Join(key, near)] = true
	} else if elsewhere := d.schema.sameName(name); elsewhere != "" {
		text = "unknown key here; did you mean " + elsewhere + "?"
	}
	d.RejectAt(at, Join(key, cut(name)), "%s", text)
}

// sameName returns a key of another section that ends in name, or "".
func (s *Schema) sameName(name string) string {
	i := slices.IndexFunc(s.keys, func(k string) bool { return strings.HasSuffix(k, "."+name) })
	if i < 0 {
		return ""
	}
	return s.keys[i]
}

// cut quotes and shortens a name that would not fit on one line.
func cut(name string) string {
	q := Quote(name)
	if q == `"`+name+`"` {
		return name
	}
	return q
}

// decodeList replaces the list v. It keeps sections with problems, so that the other entries keep their numbers.
func (d *Decoder) decodeList(n *yaml.Node, v reflect.Value, key string, tag reflect.StructTag) {
	if n.Kind != yaml.SequenceNode {
		d.RejectAt(d.place(n), key, "found %s, expected a list", describe(n))
		return
	}
	list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, child := range n.Content {
		d.decode(child, list.Index(i), Item(key, i), tag)
	}
	v.Set(list)
}

// decodeMap replaces the map v. Two spellings of one key are a problem.
func (d *Decoder) decodeMap(n *yaml.Node, v reflect.Value, key string, tag reflect.StructTag) {
	m := reflect.MakeMap(v.Type())
	d.pairs(n, key, "keys such as a.example: 127.0.0.1", func(name, value *yaml.Node) {
		entry := Join(key, cut(name.Value))
		d.origins[entry] = d.place(name)
		k, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		d.assign(k, name.Value, entry, tag)
		d.decode(value, elem, entry, "")
		if m.MapIndex(k).IsValid() && d.OK(entry) {
			d.RejectAt(d.place(name), entry, "%s is set twice", k)
		}
		m.SetMapIndex(k, elem)
	})
	v.Set(m)
}

func (d *Decoder) decodeScalar(n *yaml.Node, v reflect.Value, key string, tag reflect.StructTag) {
	s, _ := d.schema.scalar(v.Type(), tag)
	quoted := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0
	switch {
	case n.Kind != yaml.ScalarNode:
		d.Reject(key, "found %s, expected %s", describe(n), s.expected)
	case isNull(n):
		d.Reject(key, "found no value, expected %s", s.expected)
	case s.unquoted && quoted:
		d.Reject(key, "found %s in quotes, expected %s without", Quote(n.Value), s.expected)
	default:
		d.assign(v, n.Value, key, tag)
	}
}

// describe names n for "found ..., expected ...".
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "keys and values"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.AliasNode:
		return "the alias " + Quote(n.Value)
	case isNull(n):
		return "no value"
	}
	return Quote(n.Value)
}
