package settings

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// fixed is a configuration some of whose keys need a restart.
type fixed struct {
	Listen string `reload:"restart"`
	Store  struct {
		Path string `as:"path"`
		Size int
	} `reload:"restart"`
	Own    string `as:"path"`
	Key    string `as:"secret"`
	Mode   string `as:"mode"`
	Ports  []int
	Hosts  []named `id:"host,path"`
	Others []named
}

type named struct {
	Host, Path string
	Own        string `as:"path"`
	Grace      *time.Duration
}

var fixedSchema = NewSchema(fixed{}, schema.types, map[string]Scalar{
	"": text("text", nil), "path": text("a path", nil), "mode": words,
	"secret": Of("a secret", func(s string) (string, error) { return s, nil }, masked).Secret(),
})

func masked(s string) string {
	if s == "" {
		return ""
	}
	return "***"
}

func readFixed(t *testing.T, file string) (*fixed, *Decoder) {
	t.Helper()
	c := &fixed{}
	d := fixedSchema.NewDecoder(c)
	d.ReadYAML("/dir/f", []byte(file))
	if err := d.Err(); err != nil {
		t.Fatal(err)
	}
	return c, d
}

func TestDiff(t *testing.T) {
	for _, row := range []struct{ name, before, after, want string }{
		{"nothing", "mode: off\nports: []\n", "mode: off\nhosts: []\n", ""},
		{
			"values", "mode: off\nlisten: a\n", "mode: report\nlisten: b\nown: /x\n",
			"listen: a -> b (needs a restart)\nown: \"\" -> /x\nmode: off -> report",
		},
		{"a section", "mode: off\n", "mode: off\nstore: {size: 2}\n", "store.size: 0 -> 2 (needs a restart)"},
		{"a secret", "key: a\n", "key: b\n", "key: *** -> ***"},
		{"a list", "ports: [1, 2, 3]\n", "ports: [3, 4, 2]\n", "ports: - 1, + 4"},
		{"the order of a list", "ports: [1, 2]\n", "ports: [2, 1]\n", "ports: another order"},
		{
			"a long list", "ports: [" + strings.Repeat("7,", 30) + "7]\n", "mode: off\n",
			"mode: \"\" -> off\nports: " + strings.Repeat("- 7, ", 20) + "and 11 more",
		},
		{
			"entries", "hosts: [{host: a}, {host: b, path: /x}]\n", "hosts: [{host: c}, {host: a, grace: 5s}]\n",
			"- hosts b /x\n+ hosts c\n~ hosts a: grace: unset -> 5s",
		},
		{
			"the order of entries", "hosts: [{host: a}, {host: b}]\n", "hosts: [{host: b}, {host: c}, {host: a}]\n",
			"+ hosts c\n~ hosts another order",
		},
		{
			"entries of one name", "hosts: [{host: a}, {host: a}]\n", "hosts: [{host: a, own: /x}]\n",
			"- hosts a (2)\n~ hosts a: own: \"\" -> /x",
		},
		{
			"entries without names", "others: [{host: a}]\n", "others: [{host: b}, {host: c}]\n",
			"~ others entry: host: a -> b\n+ others entry (2)",
		},
	} {
		before, _ := readFixed(t, row.before)
		after, _ := readFixed(t, row.after)
		var lines []string
		for _, c := range fixedSchema.Diff(*before, *after) {
			lines = append(lines, c.String())
		}
		if got := strings.Join(lines, "\n"); got != row.want {
			t.Errorf("%s:\n%s\nwant:\n%s", row.name, got, row.want)
		}
	}
}

func TestKeepRestart(t *testing.T) {
	before, _ := readFixed(t, "listen: a\nstore: {path: /a}\nmode: off\n")
	after, _ := readFixed(t, "listen: b\nstore: {path: /b, size: 2}\nmode: report\nown: /x\n")
	fixedSchema.KeepRestart(after, before)
	want, _ := readFixed(t, "listen: a\nstore: {path: /a}\nmode: report\nown: /x\n")
	if !reflect.DeepEqual(after, want) {
		t.Errorf("KeepRestart: %+v, want %+v", after, want)
	}
}

func TestFiles(t *testing.T) {
	c, _ := readFixed(t, "store: {path: /a}\nown: b\nhosts: [{host: a}, {host: b, own: /c}]\n")
	want := []Value{{Key: "own", Text: "/dir/b"}, {Key: "hosts[1].own", Text: "/c"}}
	if got := fixedSchema.Files(*c); !reflect.DeepEqual(got, want) {
		t.Errorf("Files = %+v, want %+v", got, want)
	}
}

// What YAML returns is read as the same configuration.
func TestYAML(t *testing.T) {
	const file = `listen: "null"
own: "- a: {b}"
mode: off
ports: [1, 2]
hosts: [{host: "*", path: "#x", grace: 5s}, {host: ~x}]
`
	before, d := readFixed(t, file)
	printed, err := fixedSchema.YAML(*before, d.Origins())
	if err != nil {
		t.Fatal(err)
	}
	after, _ := readFixed(t, string(printed))
	if changes := fixedSchema.Diff(*before, *after); len(changes) > 0 {
		t.Errorf("%+v was printed as\n%s\nand read as %+v", before, printed, after)
	}
	if text := string(printed); strings.Contains(text, "hosts[1]") || strings.Count(text, "grace:") != 1 {
		t.Errorf("printed:\n%s", text)
	}
}

func TestComments(t *testing.T) {
	got, err := Comments(`# The file.

# Where it listens,
# and how.
listen: a
log:
  # How much.
  level: 1
# Entries, each with
#   host   its name
#   path   where it is,
#          and what
# or so.
hosts: []
`)
	if err != nil {
		t.Fatal(err)
	}
	delete(got, "")
	want := map[string]string{
		"listen": "Where it listens, and how.", "log.level": "How much.", "hosts": "Entries, each with or so.",
		"hosts[].host": "its name", "hosts[].path": "where it is, and what",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Comments = %q", got)
	}
}

func TestWrongTags(t *testing.T) {
	for name, config := range map[string]any{
		"reload": struct {
			A string `reload:"never"`
		}{},
		"id": struct {
			A []named `id:"name"`
		}{},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			NewSchema(config, schema.types, schema.kinds)
		}()
	}
}
