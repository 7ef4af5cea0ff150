// Package house keeps the plan of the house: which room may import which. See docs/architecture.md.
package house

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/robotsproxy/robotsproxy/"

// mayImport is the table: a room, and the rooms of ours that it may import. Its tests may also import
// internal/robotstest. Who is not listed imports nothing of ours; cmd imports all, and nobody imports cmd or proxy.
var mayImport = map[string][]string{
	"admin":                {"audit", "robots", "rules", "policy", "ratelimit", "origin", "internal/durable", "internal/safetext"},
	"audit":                {"policy", "rules", "robots", "ratelimit", "origin", "internal/durable", "internal/safetext"},
	"auth":                 {},
	"certs":                {"internal/durable"},
	"cmd/robotsproxy":      {"admin", "audit", "auth", "certs", "config", "egress", "onboarding", "origin", "ownfetch", "policy", "proxy", "ratelimit", "ratelimit/redislease", "robots", "robots/fetch", "rules", "store", "internal/clientenv", "internal/durable", "internal/safetext", "internal/settings"},
	"config":               {"policy", "rules", "origin", "internal/settings"},
	"egress":               {"origin"},
	"internal/clientenv":   {"internal/durable"},
	"internal/dnstest":     {},
	"internal/durable":     {},
	"internal/fields":      {},
	"internal/house":       {},
	"internal/http1":       {},
	"internal/http1test":   {},
	"internal/limit":       {"internal/http1"},
	"internal/redistest":   {},
	"internal/robotstest":  {},
	"internal/safetext":    {},
	"internal/settings":    {},
	"onboarding":           {"origin", "certs"},
	"origin":               {},
	"ownfetch":             {"policy", "rules", "robots", "robots/fetch", "ratelimit", "audit", "origin", "internal/fields"},
	"policy":               {"rules", "robots", "origin"},
	"proxy":                {"auth", "egress", "policy", "robots", "robots/fetch", "rules", "ratelimit", "certs", "audit", "origin", "internal/fields", "internal/http1", "internal/limit", "internal/safetext"},
	"ratelimit":            {},
	"ratelimit/redislease": {"ratelimit"},
	"robots":               {"robots/fetch", "rules", "origin"},
	"robots/fetch":         {"origin"},
	"rules":                {},
	"rules/robotstxt":      {"rules"},
	"store":                {"audit", "policy", "robots", "robots/fetch", "ratelimit", "origin", "internal/durable"},
}

// owners is who alone may import what is not ours: one outside module, one room.
var owners = map[string][]string{
	"code.dny.dev/ssrf":                   {"egress"},
	"github.com/dgraph-io/ristretto":      {"robots"},
	"github.com/elazarl/goproxy":          {"proxy"},
	"github.com/lmittmann/tint":           {"cmd/robotsproxy"},
	"github.com/pquerna/cachecontrol":     {"robots/fetch"},
	"github.com/prometheus/client_golang": {"admin"},
	"github.com/redis/go-redis":           {"ratelimit/redislease"},
	"github.com/smallstep/truststore":     {"cmd/robotsproxy"},
	"github.com/spf13/cobra":              {"cmd/robotsproxy"},
	"github.com/spf13/pflag":              {"cmd/robotsproxy"},
	"go.yaml.in/yaml":                     {"internal/settings"},
	"golang.org/x/crypto/bcrypt":          {"auth"},
	"golang.org/x/net/dns/dnsmessage":     {"internal/dnstest"},
	"golang.org/x/net/html":               {"rules"},
	"golang.org/x/net/http/httpguts":      {"proxy", "origin", "internal/fields", "internal/http1"},
	"golang.org/x/net/idna":               {"origin"},
	"golang.org/x/net/publicsuffix":       {"ratelimit"},
	"golang.org/x/sync/singleflight":      {"certs"},
	"golang.org/x/time/rate":              {"ratelimit/pacer.go"},
	"modernc.org/sqlite":                  {"store"},
	"software.sslmate.com/src/go-pkcs12":  {"internal/clientenv"},
	"github.com/coder/websocket":          {"internal/robotstest"},
	"github.com/alicebob/miniredis":       {},
	"github.com/dunglas/httpsfv":          {"internal/fields"},
	"github.com/chromedp/cdproto":         {},
	"github.com/chromedp/chromedp":        {},
	"github.com/rogpeppe/go-internal":     {},
	"github.com/google/go-cmp":            {},
	"go.uber.org/goleak":                  {},
	"pgregory.net/rapid":                  {},
}

func TestImports(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	rooms := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skipFolder(root, path)
		}
		if filepath.Ext(path) == ".go" {
			rooms++
			checkFile(t, root, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if rooms < 20 {
		t.Errorf("only %d Go files were found below %s", rooms, root)
	}
}

// skipFolder leaves out what is no part of this module: hidden folders, test data, and modules of their own.
func skipFolder(root, path string) error {
	if name := filepath.Base(path); path != root && (strings.HasPrefix(name, ".") || name == "testdata") {
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != root {
		return filepath.SkipDir
	}
	return nil
}

func checkFile(t *testing.T, root, path string) {
	rel, err := filepath.Rel(root, path)
	if err != nil {
		t.Fatal(err)
	}
	room := filepath.ToSlash(filepath.Dir(rel))
	allowed, known := mayImport[room]
	if !known {
		t.Errorf("%s: %s is no room of the house; give it a row in mayImport and in docs/architecture.md", rel, room)
		return
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	inTest := strings.HasSuffix(path, "_test.go")
	for _, spec := range file.Imports {
		name := strings.Trim(spec.Path.Value, `"`)
		if own, ours := strings.CutPrefix(name, module); ours {
			if !slices.Contains(allowed, own) && own != room && !(inTest && testMayImport(own)) {
				t.Errorf("%s: %s may not import %s", rel, room, own)
			}
		} else if !inTest && strings.Contains(name, ".") {
			checkOutside(t, rel, room, name)
		}
	}
}

// testMayImport says what every test may use besides its own room: the fake site, a Redis and a DNS server, and the types of a
// Cache's Fetch.
func testMayImport(room string) bool {
	return room == "robots/fetch" || room == "internal/robotstest" || room == "internal/redistest" || room == "internal/dnstest" || room == "internal/http1test"
}

func checkOutside(t *testing.T, file, room, name string) {
	for prefix, rooms := range owners {
		if name == prefix || strings.HasPrefix(name, prefix+"/") {
			if !slices.Contains(rooms, room) && !slices.Contains(rooms, filepath.ToSlash(file)) {
				t.Errorf("%s: %s is for %v, not for %s", file, name, rooms, room)
			}
			return
		}
	}
	t.Errorf("%s: %s belongs to no room yet; give it a row in owners", file, name)
}
