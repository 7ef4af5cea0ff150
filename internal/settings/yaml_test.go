package settings

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSyntaxFaults(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"empty", "", "f: the file sets nothing; if that is intended, load no file"},
		{"comments only", "# listen: 127.0.0.1:1\n", "f: the file sets nothing; if that is intended, load no file"},
		{"null document", "---\n", "f: the file sets nothing; if that is intended, load no file"},
		{"a list", "- listen\n", "f:1:1: found a list, expected keys such as listen"},
		{"a word", "listen\n", `f:1:1: found "listen", expected keys such as listen`},
		{"second document", "grace: 5s\n---\nmode: off\n", "f:2:1: found a second document, expected one"},
		{"second document that is broken", "grace: 5s\n--- [\n", "f:3:1: not YAML: did not find expected node content (while parsing a flow node that began on line 3)"},
		{"tab", "log:\n\tlevel: info\n", "f:2:1: not YAML: found a tab, expected spaces"},
		{"colon in text", "grace: a: b\n", "f:1:9: not YAML: mapping values are not allowed in this context"},
		{"bare star", "hosts:\n  - host: *.example\n", "f:2:11: not YAML: unknown anchor '.example' referenced; quote a value that begins with one of *&@%: \"*.example\""},
		{"star alone", "hosts:\n  - host: *\n", "f:2:12: not YAML: did not find expected alphabetic or numeric character (while scanning an alias that began on line 2); quote a value that begins with one of *&@%: \"*.example\""},
		{"not UTF-8", "grace: 5s\nmode: \xffx\n", "f:2:7: found the byte 0xff, expected text in UTF-8"},
		{"UTF-16", "\xff\xfeg\x00", "f:1:1: found the byte 0xff, expected text in UTF-8"},
		{"control character", "mode: o\x00ff\n", "f:1:8: found the byte 0x00, expected text in UTF-8"},
		{"noncharacter", "grace: 5s\nmode: \uffff\n", "f:2:7: found the byte 0xef, expected text in UTF-8"},
		{"alias", "grace: &a 5s\nrobots: {ttl: *a}\n", "2 faults\n" +
			"f:1:8: grace: found an anchor or an alias (&name, *name), expected the value itself; quote a text that begins so\n" +
			"f:2:15: robots.ttl: found an anchor or an alias (&name, *name), expected the value itself; quote a text that begins so"},
		{"merge key", "log:\n  <<: {level: info}\n", `f:2:3: log: found "<<", expected a plain key: anchors, aliases and merge keys (<<) are not supported`},
		{"list as key", "? [a]\n: b\n", "f:1:3: found a list, expected a plain key: anchors, aliases and merge keys (<<) are not supported"},
		{"tag", "grace: !!str 5s\n", `f:1:8: grace: found the tag "!!str", expected the value alone`},
		{"too deep", strings.Repeat("[", 1000), "f:1:33: not YAML: exceeded max depth of 32 (while increasing flow level that began on line 1)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := schema.NewDecoder(&config{})
			d.ReadYAML("f", []byte(tt.text))
			if got := fmt.Sprint(d.Err()); got != tt.want {
				t.Errorf("ReadYAML(%.40q) =\n%s\nwant\n%s", tt.text, got, tt.want)
			}
		})
	}
}

func TestHugeFiles(t *testing.T) {
	var unknown strings.Builder
	for i := 0; unknown.Len() < maxFile-20; i++ {
		fmt.Fprintf(&unknown, "k%d: 1\n", i)
	}
	tests := []struct{ name, text, want string }{
		{"unknown keys", unknown.String(), "the first 100 faults\nf:1:1: k0: unknown key"},
		{"one key again and again", strings.Repeat("a: 1\n", maxFile/5), "the first 100 faults\nf:1:1: a: unknown key"},
		{"faulty entries", "hosts: [" + strings.Repeat("1,", maxFile/2-10) + "]", "the first 100 faults\nf:1:9: hosts[0]: found \"1\", expected keys such as host"},
		{"one long key", strings.Repeat("k", maxFile-10) + ": 1\n", "f:1:1:"},
		{"one long value", "mode: " + strings.Repeat("x", maxFile-10), `f:1:7: mode: found "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…", expected`},
		{"too large", strings.Repeat("#", maxFile+1), "f is larger than 1MiB"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			d := schema.NewDecoder(&config{})
			err := d.ReadFile(path)
			if err == nil {
				err = d.Err()
			}
			got := strings.ReplaceAll(fmt.Sprint(err), path, "f")
			if !strings.HasPrefix(got, tt.want) || len(got) > 50_000 {
				t.Errorf("ReadFile = %.300s... (%d bytes), want it to begin %s", got, len(got), tt.want)
			}
		})
	}
}
