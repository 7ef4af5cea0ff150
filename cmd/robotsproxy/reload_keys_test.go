package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
	"github.com/robotsproxy/robotsproxy/internal/settings"
	"github.com/robotsproxy/robotsproxy/sign"
)

// otherValues has another value than the default for each key outside lists of sections. FILE is a file that may be
// read, and htpasswd, CA, HOSTS and KEYS have what their names say.
var otherValues = map[string]string{
	"listen": "127.0.0.1:3130", "proxy_protocol": "[127.0.0.1]",
	"tls.cert_file": "FILE", "tls.key_file": "FILE", "tls.client_ca_file": "FILE",
	"admin.listen": "127.0.0.1:3131", "admin.hosts": "[admin.example]", "admin.token_file": "FILE",
	"admin.connections": "300", "admin.connections_per_client": "10", "admin.pprof": "true",
	"data_dir": "other", "mode": "report", "user_agent": `"Bot/1.0 (+https://a.example/)"`,
	"identity.name": "other", "identity.contact": "https://a.example/", "identity.require_contact": "true",
	"robots.ttl": "1h", "robots.min_ttl": "1m", "robots.error_ttl": "2m", "robots.timeout": "5s", "robots.max_size": "1MiB",
	"robots.max_redirects": "6", "robots.dialect": "google", "robots.on_unreachable": "allow",
	"robots.on_unauthorized": "refuse", "robots.on_html": "refuse", "robots.serve_from_cache": "false",
	"robots.cache_size":    "64MiB",
	"robots.max_fetches":   "100",
	"robots.max_queue":     "1000",
	"pacing.default_delay": "1s", "pacing.default_burst": "2", "pacing.max_concurrent": "4",
	"pacing.max_crawl_delay": "5s", "pacing.over_max": "clamp", "pacing.spacing": "start", "pacing.key": "domain",
	"pacing.max_wait": "60s", "pacing.max_wait_cap": "5m", "pacing.max_queue": "500", "pacing.max_queue_per_client": "100",
	"pacing.release_after":                   "10s",
	"limits.connections":                     "9000",
	"limits.tunnels":                         "100",
	"limits.header_timeout":                  "5s",
	"limits.idle_timeout":                    "1m",
	"limits.request_timeout":                 "1h",
	"limits.requests":                        "6000",
	"limits.request_memory":                  "64MiB",
	"intercept.mode":                         "tunnel",
	"intercept.tunnel_hosts":                 "[a.example]",
	"intercept.ca_cert":                      "FILE",
	"intercept.ca_key":                       "FILE",
	"egress.allow_addresses":                 "[10.0.0.0/8]",
	"egress.deny_addresses":                  "[192.0.2.1]",
	"egress.ports":                           "[443]",
	"egress.resolve":                         "{a.example: 127.0.0.1}",
	"egress.insecure_hosts":                  "[a.example]",
	"egress.ca_file":                         "CA",
	"egress.upstream_proxy":                  "http://127.0.0.1:9",
	"auth.htpasswd_file":                     "htpasswd",
	"auth.required":                          "true",
	"refusal.status":                         "451",
	"response_fields":                        "true",
	"usage":                                  "enforce",
	"usage_html":                             "true",
	"grace":                                  "5s",
	"drain_delay":                            "1s",
	"audit.dsn_file":                         "FILE",
	"audit.jsonl":                            "other.jsonl",
	"audit.store":                            "none",
	"audit.durability":                       "strict",
	"audit.jsonl_max_size":                   "1MiB",
	"audit.jsonl_keep":                       "2",
	"audit.retention":                        "30d",
	"audit.max_size":                         "1GiB",
	"audit.seal_every":                       "1h",
	"audit.buffer":                           "100",
	"audit.on_failure":                       "continue",
	"audit.query":                            "drop",
	"audit.client_addr":                      "mask",
	"audit.instance":                         "7",
	"store.max_size":                         "2GiB",
	"redis.url":                              "redis://127.0.0.1:9",
	"redis.url_file":                         "FILE",
	"redis.prefix":                           "other-",
	"redis.on_down":                          "refuse",
	"log.level":                              "warn",
	"log.format":                             "json",
	"log.requests":                           "all",
	"watch.webhook":                          "https://hooks.example.org/x",
	"watch.webhook_file":                     "FILE",
	"sign.agent":                             "https://crawler.example.org",
	"sign.key_file":                          "KEYS",
	"sign.hosts":                             "[a.example]",
	"sign.form":                              "string",
	"sign.existing":                          "replace",
	"allow_hosts":                            "[a.example]",
	"deny_hosts":                             "[b.example]",
	"deny_hosts_file":                        "HOSTS",
	"clients":                                "[{name: a, cidr: [127.0.0.1]}]",
	"hosts":                                  "[{host: a.example, delay: 5s}]",
	"exemptions":                             "[{host: a.example, effect: deny, reason: r, owner: o}]",
	"limits.connections_per_client":          "100",
	"limits.requests_per_client":             "100",
	"limits.request_memory_per_client":       "16MiB",
	"egress.upstream_proxy_credentials_file": "FILE",
}

// needed has the keys without which others are a fault.
var needed = map[string]string{
	"tls.cert_file": "tls: {key_file: FILE, cert_file: FILE}", "tls.key_file": "tls: {key_file: FILE, cert_file: FILE}",
	"tls.client_ca_file":                     "tls: {key_file: FILE, cert_file: FILE, client_ca_file: FILE}",
	"proxy_protocol":                         "proxy_protocol: [127.0.0.1]\nidentity: {contact: \"mailto:a@b.example\"}\nclients: [{name: a, cidr: [127.0.0.1]}]",
	"pacing.default_burst":                   "pacing: {default_burst: 2, default_delay: 1s}",
	"intercept.ca_cert":                      "intercept: {ca_cert: FILE, ca_key: FILE}",
	"intercept.ca_key":                       "intercept: {ca_cert: FILE, ca_key: FILE}",
	"sign.agent":                             "sign: {agent: \"https://crawler.example.org\", key_file: KEYS}",
	"sign.key_file":                          "sign: {agent: \"https://crawler.example.org\", key_file: KEYS}",
	"auth.required":                          "auth: {htpasswd_file: htpasswd, required: true}",
	"egress.upstream_proxy_credentials_file": "egress: {upstream_proxy: \"http://127.0.0.1:9\", upstream_proxy_credentials_file: FILE}",
}

// fileWith returns a configuration file that sets key to another value.
func fileWith(key string) string {
	if text, ok := needed[key]; ok {
		return text
	}
	section, name, nested := strings.Cut(key, ".")
	if !nested {
		return key + ": " + otherValues[key]
	}
	return section + ": {" + name + ": " + otherValues[key] + "}"
}

// TestReloadOfEachKey changes each key of a running proxy. What needs no restart is in force then, what does keeps its
// value, and the change is reported as what it is. docs/configuration.md lists the same keys.
func TestReloadOfEachKey(t *testing.T) {
	dir := t.TempDir()
	ca, err := os.ReadFile(robotstest.New(t).CAFile())
	if err != nil {
		t.Fatal(err)
	}
	writeHtpasswd(t, dir, "news", "s3cr3t")
	writeFile(t, dir, "FILE", "x:y")
	writeFile(t, dir, "CA", string(ca))
	writeFile(t, dir, "HOSTS", "a.example\n")
	if err := sign.NewKeys(time.Now()).Create(filepath.Join(dir, "KEYS")); err != nil {
		t.Fatal(err)
	}
	load := func(text string) *config.Config {
		t.Helper()
		cfg, _, err := config.Load(config.Options{Path: writeFile(t, dir, "config.yaml", text), Env: []string{"HOME=" + dir, "XDG_STATE_HOME=" + dir}})
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	const base = "grace: 30s\n" // a file that sets nothing is a fault
	c, err := newComponents(load(base), slog.New(slog.DiscardHandler), observer{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	var restart []string
	for _, v := range load(base).Values() {
		if v.Restart {
			restart = append(restart, v.Key)
		}
		if otherValues[v.Key] == "" {
			t.Errorf("otherValues has no value for %s: which effect has its reload?", v.Key)
			continue
		}
		t.Run(v.Key, func(t *testing.T) {
			next := load(fileWith(v.Key))
			changes, err := c.reload(next)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(changes, func(c settings.Change) bool { return c.Key == v.Key && c.Restart == v.Restart }) {
				t.Errorf("the changes are %v", changes)
			}
			if now := valueOf(c.control.config(), v.Key); (now == v.Text) != v.Restart {
				t.Errorf("%s is %q now, and was %q", v.Key, now, v.Text)
			}
			if _, err = c.reload(load(base)); err != nil {
				t.Fatal(err)
			}
			if now := valueOf(c.control.config(), v.Key); now != v.Text {
				t.Errorf("%s is %q after the way back, and was %q", v.Key, now, v.Text)
			}
		})
	}
	checkRestartKeys(t, restart)
}

// valueOf returns the text of a key. That of a list with entries is their number.
func valueOf(cfg *config.Config, key string) string {
	entries := 0
	for _, v := range cfg.Values() {
		if v.Key == key {
			return v.Text
		}
		if strings.HasPrefix(v.Key, key+"[") {
			entries++
		}
	}
	return fmt.Sprint(entries)
}

// checkRestartKeys compares keys with the list in docs/configuration.md.
func checkRestartKeys(t *testing.T, keys []string) {
	t.Helper()
	doc, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(doc), "These keys need a restart:")
	list, _, _ = strings.Cut(list, "\n\n")
	var listed []string
	for _, m := range regexp.MustCompile("`([a-z._]+)`").FindAllStringSubmatch(list, -1) {
		listed = append(listed, m[1])
	}
	slices.Sort(listed)
	slices.Sort(keys)
	if !slices.Equal(listed, keys) {
		t.Errorf("docs/configuration.md lists\n%s\nand these keys need a restart:\n%s", strings.Join(listed, " "), strings.Join(keys, " "))
	}
}
