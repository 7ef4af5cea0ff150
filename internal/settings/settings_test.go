package settings

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// config is a small configuration of every shape that a Schema knows.
type config struct {
	Listen string
	Mode   string        `as:"mode"`
	Grace  time.Duration `range:"0s..1h" why:"patience"`
	Log    struct {
		Level int    `range:"-4.."`
		File  string `as:"path"`
	}
	Robots struct{ TTL time.Duration }
	Ports  []int          `range:"1..65535"`
	Names  map[string]int `as:"lower"`
	Hosts  []host

	origins map[string]Origin // not a key
}

type host struct {
	Host  string `as:"lower"`
	Grace *time.Duration
}

var (
	durations = Of("a duration such as 5s", func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		if err != nil {
			return 0, ErrNoHint
		}
		return d, nil
	}, time.Duration.String)
	words  = OneOf(func(s string) string { return s }, "enforce", "report", "off")
	schema = NewSchema(config{}, map[reflect.Type]Scalar{
		reflect.TypeFor[int]():           Of("a whole number", strconv.Atoi, strconv.Itoa).Unquoted(),
		reflect.TypeFor[time.Duration](): durations,
	}, map[string]Scalar{
		"": text("text", nil), "path": text("a path", nil), "mode": words,
		"lower": text("letters", func(s string) (string, error) {
			if strings.Contains(s, "!") {
				return "", errors.New("letters only")
			}
			return strings.ToLower(s), nil
		}),
	}).WithRemoved(map[string]string{"log.size": "use log.level"})
)

func text(expected string, parse func(string) (string, error)) Scalar {
	if parse == nil {
		parse = func(s string) (string, error) { return s, nil }
	}
	return Of(expected, parse, func(s string) string { return s })
}

// read decodes a file, variables and flags (key, text), and names the file "/dir/f".
func read(file string, env []string, flags ...string) (*config, *Decoder) {
	c := &config{Listen: "default"}
	d := schema.NewDecoder(c)
	if file != "" {
		d.ReadYAML("/dir/f", []byte(file))
	}
	d.ReadEnv("P_", env)
	for pair := range slices.Chunk(flags, 2) {
		d.Set(pair[0], pair[1], "--"+pair[0])
	}
	c.origins = d.Origins()
	return c, d
}

// TestSources checks that a later source replaces an earlier one, and that Values says which one set a key.
func TestSources(t *testing.T) {
	c, d := read("listen: a\nmode: off\nports: [1, 2]\nnames: {X: 1}\nhosts: [{host: A}, {grace: 3s}]\nlog: {file: x}\n",
		[]string{"P_MODE=report", "P_ROBOTS_TTL=2s", "P_GRACE=", "P_NAMES=B=2,c=3", "OTHER=1"}, "mode", "enforce", "ports", "3, 4,")
	if err := d.Err(); err != nil || len(d.Warnings()) > 0 {
		t.Fatal(err, d.Warnings())
	}
	var got []string
	for _, v := range schema.Values(*c, c.origins) {
		got = append(got, v.Key+"="+v.Text+" "+v.Origin.String())
	}
	want := []string{
		"listen=a /dir/f:1:9", "mode=enforce --mode", "grace=0s default", "log.level=0 default", "log.file=/dir/x /dir/f:6:13",
		"robots.ttl=2s P_ROBOTS_TTL", "ports=3,4 --ports", "names=b=2,c=3 P_NAMES", "hosts[0].host=a /dir/f:5:16", "hosts[1].grace=3s /dir/f:5:28",
	}
	if !slices.Equal(got, want) {
		t.Errorf("Values =\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if at := d.At("hosts[1].host").String(); at != "/dir/f:5:20" || d.IsSet("hosts[1].host") {
		t.Errorf("At(hosts[1].host) = %s, want the place of the entry", at)
	}
	if at := d.At("ports[0]").String(); at != "--ports" {
		t.Errorf("At(ports[0]) = %s, want --ports: the file's list was replaced", at)
	}
}

func TestValueFaults(t *testing.T) {
	for _, row := range []struct{ name, file, env, want string }{
		{"type", "grace: soon", "", `/dir/f:1:8: grace: found "soon", expected a duration such as 5s`},
		{"word", "mode: enfroce", "", `/dir/f:1:7: mode: found "enfroce", expected enforce, report or off; did you mean enforce?`},
		{"hint", "hosts: [{host: a!}]", "", `/dir/f:1:16: hosts[0].host: found "a!", expected letters; letters only`},
		{"too small", "ports: [1, 0]", "", `/dir/f:1:12: ports[1]: found 0, expected at least 1`},
		{"too large", "grace: 2h", "", `/dir/f:1:8: grace: found 2h0m0s, expected at most 1h (patience)`},
		{"no upper bound", "log: {level: 1000000}", "", `<nil>`},
		{"quoted number", `log: {level: "1"}`, "", `/dir/f:1:14: log.level: found "1" in quotes, expected a whole number without`},
		{"no value", "mode:", "", `/dir/f:1:6: mode: found no value, expected enforce, report or off`},
		{"empty section", "log:\nlisten: a", "", `<nil>`},
		{"scalar for a section", "log: 1", "", `/dir/f:1:6: log: found "1", expected keys such as level`},
		{"list for a scalar", "mode: [off]", "", `/dir/f:1:7: mode: found a list, expected enforce, report or off`},
		{"scalar for a list", "ports: 1", "", `/dir/f:1:8: ports: found "1", expected a list`},
		{"key twice", "grace: 1s\ngrace: 1s", "", `/dir/f:2:1: grace: set twice, first on line 1`},
		{"one key in two spellings", "names: {a: 1, A: 2}", "", `/dir/f:1:15: names.A: a is set twice`},
		{"unknown key", "graec: 1s", "", `/dir/f:1:1: graec: unknown key; did you mean grace?`},
		{"key of another section", "ttl: 1s", "", `/dir/f:1:1: ttl: unknown key here; did you mean robots.ttl?`},
		{"key like none", "log: {colour: 1}", "", `/dir/f:1:7: log.colour: unknown key, expected one of level, file`},
		{"removed key", "log: {size: 1}", "", `/dir/f:1:7: log.size: removed key: use log.level`},
		{"variable of a removed key", "", "P_LOG_SIZE=1", `P_LOG_SIZE: log.size: removed key: use log.level`},
		{"variable", "", "P_GRACE=2h", `P_GRACE: grace: found 2h0m0s, expected at most 1h (patience)`},
		{"variable of a map", "", "P_NAMES=a", `P_NAMES: names: found "a", expected entries such as a.example=127.0.0.1`},
		{"variable of sections", "", "P_HOSTS=a", `P_HOSTS: hosts: can be set in the file only`},
		{"in order", "hosts: [{host: a!}]\nmode: x", "P_GRACE=x", "3 faults\n" +
			`/dir/f:1:16: hosts[0].host: found "a!", expected letters; letters only` + "\n" +
			`/dir/f:2:7: mode: found "x", expected enforce, report or off` + "\n" +
			`P_GRACE: grace: found "x", expected a duration such as 5s`},
	} {
		_, d := read(row.file, []string{row.env})
		if got := fmt.Sprint(d.Err()); got != row.want {
			t.Errorf("%s:\n%s\nwant\n%s", row.name, got, row.want)
		}
	}
}

// TestOK checks which keys a fault marks, so that checks of several values leave them out.
func TestOK(t *testing.T) {
	for file, bad := range map[string][]string{
		"grace: x":                {"grace"},
		"hosts: [{host: a!}, {}]": {"hosts", "hosts[0]", "hosts[0].host"},
		"graec: 1s":               {"graec", "grace"},
		"log: 1":                  {"log", "log.level", "log.file"},
	} {
		_, d := read(file, nil)
		for _, key := range []string{"listen", "grace", "graec", "log", "log.level", "log.file", "hosts", "hosts[0]", "hosts[0].host", "hosts[1]"} {
			if got, want := d.OK(key), !slices.Contains(bad, key); got != want {
				t.Errorf("after %s: OK(%s) = %v, want %v", file, key, got, want)
			}
		}
		if d.OK("listen", bad[0]) {
			t.Errorf("after %s: OK(listen, %s) = true", file, bad[0])
		}
	}
}

// TestUnknownVariables checks that they are warnings.
func TestUnknownVariables(t *testing.T) {
	_, d := read("", []string{"P_LISTN=x", "P_SERVICE_HOST=x", "Q_LISTEN=x"})
	want := "[P_LISTN: unknown variable, ignored; did you mean P_LISTEN? P_SERVICE_HOST: unknown variable, ignored]"
	if got := fmt.Sprint(d.Warnings()); got != want || d.Err() != nil {
		t.Errorf("warnings %s, %v; want %s", got, d.Err(), want)
	}
}

func TestReread(t *testing.T) {
	c, d := read("hosts: [{host: A}, {host: b}]", nil)
	c.Hosts[0].Host, c.Hosts[1].Host = "X", "y!"
	for i := range c.Hosts {
		d.Reread(fmt.Sprintf("hosts[%d].host", i), "lower", &c.Hosts[i].Host)
	}
	if got := fmt.Sprint(d.Err()); c.Hosts[0].Host != "x" || got != `/dir/f:1:27: hosts[1].host: found "y!", expected letters; letters only` {
		t.Errorf("Hosts = %v, %s", c.Hosts, got)
	}
}

func TestSecretsAreNotRepeated(t *testing.T) {
	const password = "s3cr3t"
	if _, err := words.Secret().Parse(password); err == nil || strings.Contains(err.Error(), password) {
		t.Errorf("a Secret: %v", err)
	}
	for _, url := range []string{"http://u:" + password + "@h", "u:" + password + "@h", "http:/u:" + password + "@h", "//u:" + password + "@h"} {
		if got := Quote(url); strings.Contains(got, password) || !strings.Contains(got, "***@h") {
			t.Errorf("Quote(%s) = %s", url, got)
		}
	}
}

// TestUnreadableSchemas checks that a field that could never be read is found at the start of the program.
func TestUnreadableSchemas(t *testing.T) {
	for name, c := range map[string]any{
		"type": struct{ F float64 }{},
		"kind": struct {
			F string `as:"colour"`
		}{},
		"in a list":      struct{ F []struct{ F []float64 } }{},
		"key of a map":   struct{ F map[float64]int }{},
		"value of a map": struct{ F map[string]float64 }{},
		"pointer":        struct{ F *float64 }{},
		"range": struct {
			F int `range:"1.."`
			G int `range:"x..2"`
		}{},
		"one bound": struct {
			F int `range:"1"`
		}{},
		"range of text": struct {
			F string `range:"a..b"`
		}{},
	} {
		func() {
			defer func() {
				if fault, _ := recover().(string); !strings.HasPrefix(fault, "settings: ") {
					t.Errorf("%s: NewSchema panics with %q", name, fault)
				}
			}()
			NewSchema(c, schema.types, schema.kinds)
		}()
	}
}

func TestSuggest(t *testing.T) {
	names := []string{"ttl", "min_ttl", "max_size", "max_redirects", "ca_file", "listen"}
	tests := []struct{ word, want string }{
		{"tll", "ttl"},
		{"minTTL", "min_ttl"},
		{"MIN-TTL", "min_ttl"},
		{"maxsize", "max_size"},
		{"max_redirect", "max_redirects"},
		{"CAFile", "ca_file"},
		{"lisetn", "listen"},
		{"port", ""},
		{"", ""},
		{"something_else", ""},
	}
	for _, tt := range tests {
		if got := Suggest(tt.word, names); got != tt.want {
			t.Errorf("Suggest(%q) = %q, want %q", tt.word, got, tt.want)
		}
	}
}
