package config

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/settings"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/rules"
)

// check checks values that depend on each other. The decoder has checked each value alone, and a check is skipped if
// one of its keys has a problem.
func (l *loader) check(now time.Time) {
	c := l.cfg
	l.checkListeners()
	atMost(l, "robots.min_ttl", &c.Robots.MinTTL, "robots.ttl", c.Robots.TTL)
	atMost(l, "robots.max_size", &c.Robots.MaxSize, "robots.cache_size", c.Robots.CacheSize)
	atMost(l, "robots.max_size", &c.Robots.MaxSize, "store.max_size", c.Store.MaxSize)
	atMost(l, "pacing.max_queue_per_client", &c.Pacing.MaxQueuePerClient, "pacing.max_queue", c.Pacing.MaxQueue)
	atMost(l, "admin.connections_per_client", &c.Admin.ConnectionsPerClient, "admin.connections", c.Admin.Connections)
	atMost(l, "limits.connections_per_client", &c.Limits.ConnectionsPerClient,
		"limits.connections", orMax(c.Limits.Connections))
	atMost(l, "limits.tunnels", &c.Limits.Tunnels, "limits.connections", orMax(c.Limits.Connections))
	atMost(l, "limits.requests_per_client", &c.Limits.RequestsPerClient, "limits.requests", orMax(c.Limits.Requests))
	atMost(l, "limits.request_memory_per_client", &c.Limits.RequestMemoryPerClient,
		"limits.request_memory", c.Limits.RequestMemory)
	l.checkNeeds("intercept.ca_cert", c.Intercept.CACert, "intercept.ca_key", c.Intercept.CAKey)
	l.checkNeeds("intercept.ca_key", c.Intercept.CAKey, "intercept.ca_cert", c.Intercept.CACert)
	l.checkNeeds("egress.upstream_proxy_credentials_file", c.Egress.UpstreamProxyCredentialsFile,
		"egress.upstream_proxy", c.Egress.UpstreamProxy)
	l.checkNeeds("tls.cert_file", c.TLS.CertFile, "tls.key_file", c.TLS.KeyFile)
	l.checkNeeds("tls.key_file", c.TLS.KeyFile, "tls.cert_file", c.TLS.CertFile)
	l.checkNeeds("tls.client_ca_file", c.TLS.ClientCAFile, "tls.cert_file", c.TLS.CertFile)
	l.checkOneOf("redis.url", c.Redis.URL, "redis.url_file", c.Redis.URLFile)
	l.checkOneOf("watch.webhook", c.Watch.Webhook, "watch.webhook_file", c.Watch.WebhookFile)
	l.checkSign("sign", c.Sign, "")
	l.checkAddresses()
	l.checkPaceKey()
	l.checkAuth()
	l.checkRefusal()
	l.checkAudit()
	l.checkClients()
	l.checkAgents()
	l.checkHosts()
	l.checkExemptions(now)
	l.checkFiles()
}

// atMost reports a low value above the high one. If the low one is a default, atMost lowers it instead.
func atMost[T cmp.Ordered](l *loader, low string, a *T, high string, b T) {
	if *a <= b || !l.OK(low, high) {
		return
	}
	if l.At(low) == (settings.Origin{}) {
		*a = b
		return
	}
	l.Reject(low, "found %s, expected no more than %s, which is %s (%s)", schema.Format(*a), high, schema.Format(b),
		l.At(high))
}

// orMax returns limit for comparisons: 0 means unlimited.
func orMax(limit int) int {
	if limit == 0 {
		return math.MaxInt
	}
	return limit
}

// checkNeeds reports, at the place of key, that another key is missing without which key does nothing.
func (l *loader) checkNeeds(key, value, other, otherValue string) {
	if value != "" && otherValue == "" && l.OK(other) {
		l.RejectAt(l.At(key), other, "found none, expected one beside %s", key)
	}
}

// checkSign reports an agent without keys, and keys without an agent. The agent of a client may be that of all.
func (l *loader) checkSign(key string, s Sign, ofAll string) {
	agent, file := settings.Join(key, "agent"), settings.Join(key, "key_file")
	if s.Agent != NoSigner {
		l.checkNeeds(agent, s.Agent, file, s.KeyFile)
	}
	l.checkNeeds(file, s.KeyFile, agent, cmp.Or(s.Agent, ofAll))
}

// checkOneOf reports that both of two alternatives are set.
func (l *loader) checkOneOf(a, valueA, b, valueB string) {
	if l.OK(a, b) && valueA != "" && valueB != "" {
		l.Reject(b, "found one beside %s (%s), expected one of the two", a, l.At(a))
	}
}

func (l *loader) checkListeners() {
	c := l.cfg
	if l.OK("listen", "proxy_protocol") && c.isOpen() {
		l.checkOpen()
	}
	if l.OK("admin.listen") && !isLoopback(c.Admin.Listen) {
		l.Warn("admin.listen", "%s can be reached by others, who can see which hosts you crawl if they learn the token; "+
			"127.0.0.1 is for this machine alone", c.Admin.Listen)
	}
	if l.OK("listen", "admin.listen") && samePort(c.Listen, c.Admin.Listen) {
		l.Reject("admin.listen", "found %s, expected another port than that of listen, %s (%s)", c.Admin.Listen, c.Listen,
			l.At("listen"))
	}
}

// isOpen reports whether others can reach the proxy: its listener, or a load balancer in front of it.
func (c *Config) isOpen() bool { return !isLoopback(c.Listen) || len(c.ProxyProtocol) > 0 }

// checkOpen reports an open proxy, and a proxy for others without a contact of its operator.
func (l *loader) checkOpen() {
	c := l.cfg
	isOpen := l.OK("clients", "auth.required") && len(c.Clients) == 0 && !c.Auth.Required
	if isOpen && isLoopback(c.Listen) {
		l.Reject("proxy_protocol", "others can reach the proxy through a load balancer, "+
			"expected a list of clients, or auth.required")
	} else if isOpen {
		l.Reject("listen", `%s can be reached by others, expected a list of clients, or auth.required. Write 127.0.0.1 for this machine alone, or add, with your own network:
    clients:
      - {name: lab, cidr: [10.0.0.0/8]}`, settings.Quote(c.Listen))
	}
	if l.OK("identity.contact") && c.Identity.Contact == "" {
		l.RejectAt(l.At("listen"), "identity.contact",
			"found none, expected %s: owners of sites must be able to reach the operator of a proxy "+
				"that others can use (listen is %s)", texts["contact"].Expected(), c.Listen)
	}
	for i, client := range c.Clients {
		for j, p := range client.CIDR {
			if p.IsValid() && p.Bits() == 0 && client.User == "" && client.TLSSubject == "" && !c.Auth.Required {
				l.Warn(settings.Item(settings.Join(settings.Item("clients", i), "cidr"), j), "%s allows everyone: an open proxy", p)
			}
		}
	}
}

// samePort reports whether a and b cannot both be listened on.
func samePort(a, b string) bool {
	hostA, portA, _ := net.SplitHostPort(a)
	hostB, portB, _ := net.SplitHostPort(b)
	wildcard := func(host string) bool {
		addr, err := netip.ParseAddr(host)
		return host == "" || err == nil && addr.IsUnspecified()
	}
	return portA == portB && portA != "0" && (hostA == hostB || wildcard(hostA) || wildcard(hostB))
}

// checkAddresses reports a network that is both allowed and denied.
func (l *loader) checkAddresses() {
	e := l.cfg.Egress
	if !l.OK("egress.allow_addresses", "egress.deny_addresses") {
		return
	}
	for i, p := range e.DenyAddresses {
		if slices.Contains(e.AllowAddresses, p) {
			l.Reject(settings.Item("egress.deny_addresses", i), "%s is in egress.allow_addresses too", formatPrefix(p))
		}
	}
}

// checkPaceKey reports a pace by address that cannot be kept, because the upstream proxy chooses the address.
func (l *loader) checkPaceKey() {
	c := l.cfg
	if c.Pacing.Key == PaceKeyIP && c.Egress.UpstreamProxy != "" && l.OK("pacing.key", "egress.upstream_proxy") {
		l.Reject("pacing.key", "found ip, expected host or domain beside egress.upstream_proxy (%s), "+
			"which resolves the names itself", l.At("egress.upstream_proxy"))
	}
}

// checkRefusal reports the status 407: clients would send, or ask for, a password.
func (l *loader) checkRefusal() {
	if l.cfg.Refusal.Status == http.StatusProxyAuthRequired {
		l.Reject("refusal.status", "found 407, expected another: 407 asks for a password")
	}
}

// checkAudit reports a PostgreSQL without a file that names it.
func (l *loader) checkAudit() {
	a := l.cfg.Audit
	if a.Store == AuditPostgres && a.DSNFile == "" && l.OK("audit.store", "audit.dsn_file") {
		l.Reject("audit.store", "found postgres, expected audit.dsn_file beside it: a file that contains "+
			"postgres://USER:PASSWORD@HOST/DATABASE")
	}
}

// checkAuth reports settings that need passwords, if there is no file of passwords.
func (l *loader) checkAuth() {
	c := l.cfg
	if c.Auth.HtpasswdFile != "" || !l.OK("auth.htpasswd_file") {
		return
	}
	const expected = "expected auth.htpasswd_file, which holds the passwords"
	if c.Auth.Required {
		l.Reject("auth.required", "found true, "+expected)
	}
	for i, client := range c.Clients {
		if key := settings.Join(settings.Item("clients", i), "user"); client.User != "" && l.OK(key) {
			l.Reject(key, "found %s, "+expected, settings.Quote(client.User))
		}
	}
}

func (l *loader) checkClients() {
	c := l.cfg
	first := map[string]int{}
	for i, client := range c.Clients {
		key := settings.Item("clients", i)
		l.require(settings.Join(key, "name"), client.Name != "", "a name, which records and exemptions use")
		subject := settings.Join(key, "tls_subject")
		l.require(settings.Join(key, "cidr"), len(client.CIDR) > 0 || client.User != "" || l.IsSet(subject),
			"a list of addresses or networks, such as [10.0.0.0/8], or a user, by which the client is known")
		if client.TLSSubject != "" && c.TLS.ClientCAFile == "" && l.OK(subject) {
			l.Reject(subject, "found %s, expected tls.client_ca_file, which signs the certificates of clients",
				settings.Quote(client.TLSSubject))
		}
		l.checkSign(settings.Join(key, "sign"), client.Sign, c.Sign.Agent)
		if j, twice := first[client.Name]; twice && client.Name != "" {
			l.Reject(settings.Join(key, "name"), "%s is %s already", settings.Quote(client.Name), settings.Item("clients", j))
		} else {
			first[client.Name] = i
		}
	}
	local := func(client Client) bool {
		return len(client.CIDR) == 0 || slices.ContainsFunc(client.CIDR, overlapsLoopback)
	}
	if len(c.Clients) > 0 && l.OK("clients", "listen", "proxy_protocol") && !c.isOpen() &&
		!slices.ContainsFunc(c.Clients, local) {
		l.Warn("clients", "no client can use the proxy: listen is %s, "+
			"and no client has an address of this machine (127.0.0.1)", c.Listen)
	}
	l.warnShadowedClients()
}

// checkAgents warns of a User-Agent that the proxy would refuse itself.
func (l *loader) checkAgents() {
	c := l.cfg
	if !c.Identity.RequireContact || !l.OK("identity", "user_agent", "clients") {
		return
	}
	warn := func(key, agent string) {
		if agent != "" && !policy.HasContact(agent) {
			l.Warn(key, "%s has no contact, so identity.require_contact (%s) refuses every request that would be sent with it",
				settings.Quote(agent), l.At("identity.require_contact"))
		}
	}
	warn("user_agent", c.UserAgent)
	for i, client := range c.Clients {
		warn(settings.Join(settings.Item("clients", i), "user_agent"), client.UserAgent)
	}
}

func overlapsLoopback(p netip.Prefix) bool {
	return p.Overlaps(netip.MustParsePrefix("127.0.0.0/8")) || p.Overlaps(netip.MustParsePrefix("::1/128"))
}

// require reports a missing key of an entry.
func (l *loader) require(key string, present bool, expected string) {
	if !present && l.OK(key) {
		l.Reject(key, "found none, expected %s", expected)
	}
}

func (l *loader) checkHosts() {
	for i, h := range l.cfg.Hosts {
		l.require(settings.Join(settings.Item("hosts", i), "host"), h.Host != "", texts["pattern"].Expected())
	}
	l.warnShadowedHosts()
}

func (l *loader) checkExemptions(now time.Time) {
	for i := range l.cfg.Exemptions {
		e, key := &l.cfg.Exemptions[i], settings.Item("exemptions", i)
		l.require(settings.Join(key, "host"), e.Host != "", texts["pattern"].Expected())
		l.require(settings.Join(key, "reason"), e.Reason != "", "a reason, for auditors")
		l.require(settings.Join(key, "owner"), e.Owner != "", "an owner, for questions about it")
		said := l.IsSet(settings.Join(key, "effect"))
		l.require(settings.Join(key, "effect"), said, "allow or deny")
		if said && e.Effect == policy.EffectAllow {
			l.require(settings.Join(key, "until"), !e.Until.IsZero(),
				"a date such as 2027-06-30: an exemption that allows must end")
		}
		if !e.Until.IsZero() && !now.Before(e.Until) {
			l.Warn(settings.Join(key, "until"), "this exemption stopped working at %s", formatTime(e.Until))
		}
		l.checkExempt(e, key)
	}
}

// checkExempt checks the requests that an exemption selects.
func (l *loader) checkExempt(e *policy.Exemption, key string) {
	if k := settings.Join(key, "host"); e.Host != "" && l.OK(k) {
		l.Reread(k, "pattern", &e.Host)
	}
	if e.Path != "" && (e.Path[0] != '/' || strings.ContainsAny(e.Path, "# \t")) {
		l.Reject(settings.Join(key, "path"), "found %s, expected a path such as /api/*, "+
			"with %%23 for # and %%20 for a space", settings.Quote(e.Path))
	}
	if e.Client != "" && !l.isClient(e.Client) {
		l.Reject(settings.Join(key, "client"), "found %s, expected the name of one of clients%s", settings.Quote(e.Client),
			l.nearClient(e.Client))
	}
}

// isClient reports whether name is a client. If clients is empty, a client is "local" or a user of the file of
// passwords, which is read later.
func (l *loader) isClient(name string) bool {
	if len(l.cfg.Clients) == 0 {
		return name == "local" || l.cfg.Auth.HtpasswdFile != "" || !l.OK("clients")
	}
	return slices.ContainsFunc(l.cfg.Clients, func(c Client) bool { return c.Name == name || c.Name == "" })
}

func (l *loader) nearClient(name string) string {
	var names []string
	for _, c := range l.cfg.Clients {
		names = append(names, c.Name)
	}
	if near := settings.Suggest(name, names); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return ""
}

// checkFiles opens every file that is only read, so that a missing one is reported before the proxy starts.
func (l *loader) checkFiles() {
	c := l.cfg
	l.checkFile("intercept.ca_cert", c.Intercept.CACert)
	l.checkFile("intercept.ca_key", c.Intercept.CAKey)
	l.checkFile("egress.ca_file", c.Egress.CAFile)
	l.checkFile("tls.cert_file", c.TLS.CertFile)
	l.checkFile("tls.client_ca_file", c.TLS.ClientCAFile)
	l.checkSecret("tls.key_file", c.TLS.KeyFile)
	l.checkSecret("audit.dsn_file", c.Audit.DSNFile)
	l.checkSecret("redis.url_file", c.Redis.URLFile)
	l.checkSecret("egress.upstream_proxy_credentials_file", c.Egress.UpstreamProxyCredentialsFile)
	l.checkSecret("auth.htpasswd_file", c.Auth.HtpasswdFile)
	l.checkFile("deny_hosts_file", c.DenyHostsFile)
	l.checkSecret("watch.webhook_file", c.Watch.WebhookFile)
	l.checkSecret("sign.key_file", c.Sign.KeyFile)
	for i, client := range c.Clients {
		l.checkSecret(settings.Join(settings.Item("clients", i), "sign.key_file"), client.Sign.KeyFile)
		l.checkFile(settings.Join(settings.Item("clients", i), "deny_hosts_file"), client.DenyHostsFile)
	}
	for i, h := range c.Hosts {
		l.checkRobotsFile(settings.Join(settings.Item("hosts", i), "robots_file"), h.RobotsFile)
	}
}

// checkRobotsFile warns of errors in the operator's own robots.txt. They are not problems, since crawlers ignore them.
func (l *loader) checkRobotsFile(key, path string) {
	l.checkFile(key, path)
	if path == "" || !l.OK(key) {
		return
	}
	body, err := os.ReadFile(path)
	if err != nil {
		l.Reject(key, "expected a file that can be read: %v", err)
		return
	}
	findings := rules.Lint(body, rules.Options{})
	i := slices.IndexFunc(findings, func(f rules.Finding) bool { return f.Severity == rules.SeverityError })
	if i >= 0 {
		l.Warn(key, "%s:%d:%d: %s; robotsproxy lint shows all", path, findings[i].Line, findings[i].Column,
			findings[i].Message)
	}
}

func (l *loader) checkFile(key, path string) {
	if path == "" || !l.OK(key) {
		return
	}
	if err := readable(path); err != nil {
		l.Reject(key, "expected a file that can be read: %v", err)
	}
}

// checkSecret warns of a file with secrets that others can read. It is not a problem, because the secrets of a
// container are often mounted so.
func (l *loader) checkSecret(key, path string) {
	l.checkFile(key, path)
	if info, err := os.Stat(path); path != "" && l.OK(key) && err == nil && info.Mode().Perm()&0o077 != 0 {
		l.Warn(key, "others on this machine can read %s (mode %04o), which holds secrets; chmod 600 keeps them", path,
			info.Mode().Perm())
	}
}

// readable returns an error if path cannot be read. It does not open a named pipe, which would wait for a writer.
func readable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return f.Close()
}
