package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/robotsproxy/robotsproxy/internal/settings"
	"github.com/robotsproxy/robotsproxy/policy"
)

const examplePath = "../config.example.yaml"

// now is the moment at which tests load: their exemptions are neither all past nor all to come.
var now = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// compare leaves out where values came from, and holds an empty list equal to none.
var compare = cmp.Options{
	cmpopts.IgnoreUnexported(Config{}),
	cmpopts.EquateEmpty(),
	cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}),
}

// write puts text in a file of its own and returns its path.
func write(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "robotsproxy.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// loadText loads a file of the given text as an ordinary user with a home, and names the file "f" in what is said.
func loadText(t testing.TB, text string, more Options) (cfg *Config, warnings, faults string) {
	t.Helper()
	more.Path = write(t, text)
	more.Env = append([]string{"HOME=/home/op"}, more.Env...)
	cfg, warned, err := load(more, now, 1000)
	short := strings.NewReplacer(more.Path, "f", filepath.Dir(more.Path), "dir")
	var lines []string
	for _, w := range warned {
		lines = append(lines, short.Replace(w.String()))
	}
	if err != nil {
		faults = short.Replace(err.Error())
	}
	return cfg, strings.Join(lines, "\n"), faults
}

func TestExampleIsTheDefault(t *testing.T) {
	got, warnings, err := load(Options{Path: examplePath}, now, 0)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("load(%s) = %v, %v; want no fault and no warning", examplePath, warnings, err)
	}
	want := Default()
	want.DataDir = "/var/lib/robotsproxy"
	if diff := cmp.Diff(want, *got, compare); diff != "" {
		t.Errorf("%s differs from Default() (-default +example):\n%s", examplePath, diff)
	}
	for _, v := range got.Values() {
		if v.Origin == (settings.Origin{}) {
			t.Errorf("%s does not set %s", examplePath, v.Key)
		}
	}
}

// samples are the commented entries of the lists that are empty by default.
var samples = regexp.MustCompile(`(?m)^(clients|hosts|exemptions): \[\]\n#(.*:)\n(?:#  - .*\n)+`)

func TestExampleSamplesLoad(t *testing.T) {
	text, err := os.ReadFile(examplePath)
	if err != nil {
		t.Fatal(err)
	}
	uncommented := samples.ReplaceAllStringFunc(string(text), func(s string) string {
		_, entries, _ := strings.Cut(s, "\n")
		return regexp.MustCompile(`(?m)^#`).ReplaceAllString(entries, "")
	})
	for _, key := range []string{"htpasswd_file", "cert_file", "key_file", "client_ca_file"} { // that samples of clients need
		uncommented = strings.Replace(uncommented, key+`: ""`, key+": "+write(t, ""), 1)
	}
	path := write(t, uncommented)
	robots := filepath.Join(filepath.Dir(path), "bank-robots.txt")
	if err := os.WriteFile(robots, []byte("User-agent: *\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"do-not-archive.txt", "news-keys.json"} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, warnings, err := load(Options{Path: path}, now, 0)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("load(the example with its samples) = %v, %v; want no fault and no warning", warnings, err)
	}
	if got := cfg.Hosts[1].RobotsFile; got != robots {
		t.Errorf("RobotsFile = %q, want %q, in the folder of the file", got, robots)
	}
	shown := map[string]bool{}
	for key := range cfg.origins {
		shown[regexp.MustCompile(`\[\d+\]`).ReplaceAllString(key, "[]")] = true
	}
	all := Config{Clients: make([]Client, 1), Hosts: make([]Host, 1), Exemptions: make([]policy.Exemption, 1)}
	for _, key := range schema.Keys(all) {
		if key = strings.ReplaceAll(key, "[0]", "[]"); !shown[key] {
			t.Errorf("the example neither sets %s nor shows it in a sample", key)
		}
	}
}

// TestKeys holds the names that operators have in their files.
func TestKeys(t *testing.T) {
	want := strings.Fields(`
		listen tls.cert_file tls.key_file tls.client_ca_file proxy_protocol admin.listen admin.hosts admin.token_file admin.connections admin.connections_per_client admin.pprof data_dir mode identity.name identity.contact identity.require_contact user_agent
		sign.agent sign.key_file sign.hosts sign.form sign.existing
		robots.ttl robots.min_ttl robots.error_ttl robots.timeout robots.max_size robots.max_redirects
		robots.dialect robots.on_unreachable robots.on_unauthorized robots.on_html robots.serve_from_cache robots.max_fetches robots.max_queue robots.cache_size
		pacing.default_delay pacing.default_burst pacing.max_concurrent pacing.max_crawl_delay pacing.over_max
		pacing.spacing pacing.key
		pacing.max_wait pacing.max_wait_cap pacing.max_queue pacing.max_queue_per_client pacing.release_after
		limits.connections limits.connections_per_client limits.tunnels limits.requests limits.requests_per_client
		limits.request_memory limits.request_memory_per_client limits.header_timeout limits.idle_timeout
		limits.request_timeout intercept.mode intercept.tunnel_hosts intercept.ca_cert intercept.ca_key
		egress.allow_addresses egress.deny_addresses egress.ports egress.resolve egress.ca_file egress.insecure_hosts
		egress.upstream_proxy egress.upstream_proxy_credentials_file auth.htpasswd_file auth.required
		refusal.status usage usage_html response_fields grace drain_delay audit.store audit.dsn_file audit.durability audit.jsonl audit.jsonl_max_size audit.jsonl_keep audit.retention audit.max_size audit.seal_every audit.buffer audit.on_failure audit.query audit.client_addr audit.instance store.max_size redis.url redis.url_file redis.prefix redis.on_down log.level log.format log.requests watch.webhook watch.webhook_file
		allow_hosts deny_hosts deny_hosts_file
		clients[0].name clients[0].cidr clients[0].user clients[0].tls_subject clients[0].user_agent clients[0].product_token clients[0].mode clients[0].dialect clients[0].purpose
		clients[0].sign.agent clients[0].sign.key_file clients[0].sign.hosts clients[0].sign.form clients[0].sign.existing clients[0].max_wait
		clients[0].max_crawl_delay clients[0].subresources clients[0].allow_hosts clients[0].deny_hosts clients[0].deny_hosts_file hosts[0].host hosts[0].mode hosts[0].dialect hosts[0].delay hosts[0].robots_file
		hosts[0].intercept
		exemptions[0].host exemptions[0].path exemptions[0].client exemptions[0].effect exemptions[0].reason
		exemptions[0].owner exemptions[0].until`)
	all := Config{Clients: make([]Client, 1), Hosts: make([]Host, 1), Exemptions: make([]policy.Exemption, 1)}
	got := schema.Keys(all) // NewSchema panics if one of them cannot be read
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}
