// Package house tests which packages import which. See docs/architecture.md.
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

// mayImport lists, for each package, the packages of this module that it may import. Tests may import more: see
// testMayImport. Only cmd imports proxy, and no package imports cmd.
var mayImport = map[string][]string{
	"admin":                {"audit", "audit/proof", "robots", "rules", "policy", "origin", "internal/auditquery", "internal/auditview", "internal/durable", "internal/safetext"},
	"admin/dashboard":      {"admin", "audit", "audit/proof", "robots", "rules", "policy", "origin", "onboarding", "internal/auditquery", "internal/auditview", "internal/clientenv", "internal/safetext", "internal/style"},
	"audit":                {"policy", "robots", "rules", "ratelimit", "internal/safetext"},
	"audit/dossier":        {"audit", "audit/export", "audit/proof", "origin", "policy", "robots", "internal/auditview", "internal/safetext"},
	"audit/export":         {"audit", "policy", "internal/auditview", "internal/safetext"},
	"audit/proof":          {"audit", "origin", "policy", "robots", "rules", "internal/fields"},
	"audit/seal":           {"audit", "internal/durable"},
	"auth":                 {},
	"certs":                {"origin", "internal/durable"},
	"cmd/robotsproxy":      {".", "admin", "admin/dashboard", "audit", "audit/dossier", "audit/export", "audit/proof", "audit/seal", "auth", "certs", "config", "egress", "onboarding", "origin", "ownfetch", "policy", "proxy", "ratelimit", "ratelimit/redislease", "robots", "robots/fetch", "rules", "sign", "store", "internal/auditquery", "internal/auditview", "internal/clientenv", "internal/durable", "internal/hostset", "internal/plan", "internal/requestlog", "internal/safetext", "internal/sampleweb", "internal/sealed", "internal/settings", "internal/systemd", "internal/top", "internal/watch", "internal/webhook"},
	".":                    {},
	"config":               {".", "policy", "rules", "origin", "sign", "internal/settings", "internal/webhook"},
	"egress":               {"origin", "internal/timelimit"},
	"internal/auditquery":  {"audit", "config", "policy", "internal/settings"},
	"internal/auditview":   {"audit", "audit/proof", "audit/seal", "origin", "policy", "sign", "internal/safetext"},
	"internal/browsertest": {},
	"internal/clientenv":   {"internal/durable"},
	"internal/dnstest":     {},
	"internal/durable":     {},
	"internal/fields":      {},
	"internal/house":       {},
	"internal/hostset":     {"origin"},
	"internal/http1":       {},
	"internal/http1test":   {},
	"internal/limit":       {"internal/http1"},
	"internal/pgtest":      {},
	"internal/plan":        {"origin", "policy"},
	"internal/redistest":   {},
	"internal/requestlog":  {"audit", "policy", "internal/safetext"},
	"internal/robotstest":  {},
	"internal/safetext":    {},
	"internal/sampleweb":   {},
	"internal/sealed":      {},
	"internal/settings":    {},
	"internal/style":       {},
	"internal/systemd":     {},
	"internal/timelimit":   {},
	"internal/top":         {"admin", "policy", "internal/auditview", "internal/safetext"},
	"internal/watch":       {},
	"internal/webhook":     {},
	"onboarding":           {"origin", "certs", "internal/style"},
	"origin":               {},
	"ownfetch":             {"policy", "rules", "robots", "robots/fetch", "ratelimit", "audit", "origin", "sign", "internal/fields"},
	"policy":               {"rules", "robots", "origin", "internal/fields", "internal/hostset"},
	"proxy":                {"auth", "egress", "policy", "robots", "robots/fetch", "rules", "ratelimit", "certs", "audit", "origin", "sign", "internal/fields", "internal/http1", "internal/limit", "internal/safetext", "internal/style"},
	"ratelimit":            {},
	"ratelimit/redislease": {"ratelimit"},
	"robots":               {"robots/fetch", "rules", "origin"},
	"robots/fetch":         {"origin", "internal/timelimit"},
	"rules":                {},
	"rules/robotstxt":      {"rules"},
	"sign":                 {"origin", "internal/durable", "internal/hostset"},
	"store":                {"audit/seal", "audit", "policy", "robots", "robots/fetch", "ratelimit", "origin"},
}

// owners lists the packages that may import an outside module. Most modules have one.
var owners = map[string][]string{
	"charm.land/bubbletea":                {"internal/top"},
	"charm.land/lipgloss":                 {"internal/top"},
	"code.dny.dev/ssrf":                   {"egress"},
	"github.com/KimMachineGun":            {"cmd/robotsproxy"},
	"github.com/andybalholm/brotli":       {"internal/fields"},
	"github.com/coreos/go-systemd":        {"internal/systemd"},
	"github.com/dgraph-io/ristretto":      {"robots"},
	"github.com/elazarl/goproxy":          {"proxy"},
	"github.com/fsnotify/fsnotify":        {"internal/watch"},
	"github.com/jackc/pgx":                {"store"},
	"github.com/lmittmann/tint":           {"cmd/robotsproxy"},
	"github.com/parquet-go/parquet-go":    {"audit/export"},
	"github.com/pires/go-proxyproto":      {"proxy"},
	"github.com/pquerna/cachecontrol":     {"robots/fetch"},
	"github.com/prometheus/client_golang": {"admin", "cmd/robotsproxy/metrics_test.go"},
	"github.com/redis/go-redis":           {"ratelimit/redislease"},
	"github.com/smallstep/truststore":     {"cmd/robotsproxy"},
	"github.com/spf13/cobra":              {"cmd/robotsproxy"},
	"github.com/spf13/pflag":              {"cmd/robotsproxy"},
	"go.yaml.in/yaml":                     {"internal/settings"},
	"golang.org/x/crypto/bcrypt":          {"auth"},
	"golang.org/x/mod/sumdb":              {"audit/seal"},
	"golang.org/x/net/dns/dnsmessage":     {"internal/dnstest"},
	"golang.org/x/net/html":               {"rules", "internal/fields"},
	"golang.org/x/net/http/httpguts":      {"proxy", "origin", "internal/fields", "internal/http1"},
	"golang.org/x/net/idna":               {"origin"},
	"golang.org/x/net/publicsuffix":       {"ratelimit"},
	"golang.org/x/sys/unix":               {"internal/sealed", "internal/systemd"},
	"golang.org/x/sync/singleflight":      {"certs"},
	"golang.org/x/term":                   {"cmd/robotsproxy"},
	"golang.org/x/time/rate":              {"ratelimit/pacer.go"},
	"modernc.org/sqlite":                  {"store"},
	"software.sslmate.com/src/go-pkcs12":  {"internal/clientenv"},
	"github.com/coder/websocket":          {"internal/robotstest"},
	"github.com/alicebob/miniredis":       {},
	"github.com/dunglas/httpsfv":          {"internal/fields", "sign"},
	"github.com/chromedp/cdproto":         {"internal/browsertest"},
	"github.com/chromedp/chromedp":        {"internal/browsertest"},
	"github.com/rogpeppe/go-internal":     {"audit/proof"},
	"github.com/creack/pty":               {},
	"github.com/google/go-cmp":            {},
	"github.com/santhosh-tekuri":          {},
	"go.uber.org/goleak":                  {},
	"pgregory.net/rapid":                  {},
}

func TestImports(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skipFolder(root, path)
		}
		if filepath.Ext(path) == ".go" {
			files++
			checkFile(t, root, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 20 {
		t.Errorf("only %d Go files were found below %s", files, root)
	}
}

// skipFolder skips hidden folders, test data and other modules.
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
	pkg := filepath.ToSlash(filepath.Dir(rel))
	allowed, known := mayImport[pkg]
	if !known {
		t.Errorf("%s: package %s is missing in mayImport; add it there and to docs/architecture.md", rel, pkg)
		return
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	inTest := strings.HasSuffix(path, "_test.go")
	for _, spec := range file.Imports {
		name := strings.Trim(spec.Path.Value, `"`)
		if name+"/" == module {
			name = module + "." // the package in the root folder
		}
		if own, ours := strings.CutPrefix(name, module); ours {
			if !slices.Contains(allowed, own) && own != pkg && !(inTest && testMayImport(own)) {
				t.Errorf("%s: %s may not import %s", rel, pkg, own)
			}
		} else if !inTest && strings.Contains(name, ".") {
			checkOutside(t, rel, pkg, name)
		}
	}
}

// testMayImport reports whether every test may import a package: the fake site, a Redis and a DNS server, a browser, the types of a
// Cache's Fetch, the stores of records, and the client of a Redis server.
func testMayImport(pkg string) bool {
	return pkg == "robots/fetch" || pkg == "store" || pkg == "ratelimit/redislease" || pkg == "internal/robotstest" || pkg == "internal/redistest" || pkg == "internal/pgtest" || pkg == "internal/dnstest" || pkg == "internal/browsertest" || pkg == "internal/http1test"
}

func checkOutside(t *testing.T, file, pkg, name string) {
	for prefix, packages := range owners {
		if name == prefix || strings.HasPrefix(name, prefix+"/") {
			if !slices.Contains(packages, pkg) && !slices.Contains(packages, filepath.ToSlash(file)) {
				t.Errorf("%s: %s is for %v, not for %s", file, name, packages, pkg)
			}
			return
		}
	}
	t.Errorf("%s: module %s is missing in owners; add it there", file, name)
}
