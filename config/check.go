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

// check judges values together: what each may be by itself was seen when it was read. A check is left out where one of
// its keys has a fault already.
func (l *loader) check(now time.Time) {
	c := l.cfg
	l.checkListeners()
	atMost(l, "robots.min_ttl", &c.Robots.MinTTL, "robots.ttl", c.Robots.TTL)
	atMost(l, "robots.max_size", &c.Robots.MaxSize, "robots.cache_size", c.Robots.CacheSize)
	atMost(l, "pacing.max_queue_per_client", &c.Pacing.MaxQueuePerClient, "pacing.max_queue", c.Pacing.MaxQueue)
	atMost(l, "admin.connections_per_client", &c.Admin.ConnectionsPerClient, "admin.connections", c.Admin.Connections)
	atMost(l, "limits.connections_per_client", &c.Limits.ConnectionsPerClient, "limits.connections", orMax(c.Limits.Connections))
	atMost(l, "limits.tunnels", &c.Limits.Tunnels, "limits.connections", orMax(c.Limits.Connections))
	atMost(l, "limits.requests_per_client", &c.Limits.RequestsPerClient, "limits.requests", orMax(c.Limits.Requests))
	atMost(l, "limits.request_memory_per_client", &c.Limits.RequestMemoryPerClient, "limits.request_memory", c.Limits.RequestMemory)
	l.checkTogether("intercept.ca_cert", c.Intercept.CACert, "intercept.ca_key", c.Intercept.CAKey)
	l.checkOneOf("redis.url", c.Redis.URL, "redis.url_file", c.Redis.URLFile)
	l.checkEgress()
	l.checkAuth()
	l.checkRefusal()
	l.checkClients()
	l.checkHosts()
	l.checkExemptions(now)
	l.checkFiles()
}

// atMost reports a low that is above high. A low that nobody set is no fault: it comes down to what high was set to.
func atMost[T cmp.Ordered](l *loader, low string, a *T, high string, b T) {
	if *a <= b || !l.OK(low, high) {
		return
	}
	if l.At(low) == (settings.Origin{}) {
		*a = b
		return
	}
	l.Fault(low, "found %s, expected no more than %s, which is %s (%s)", schema.Format(*a), high, schema.Format(b), l.At(high))
}

// orMax returns what a limit of 0, which is none, compares as.
func orMax(limit int) int {
	if limit == 0 {
		return math.MaxInt
	}
	return limit
}

// checkTogether reports the absence of one of two keys that only mean something together, at the place of the other.
func (l *loader) checkTogether(a, valueA, b, valueB string) {
	if !l.OK(a, b) || (valueA == "") == (valueB == "") {
		return
	}
	if valueA == "" {
		a, b = b, a
	}
	l.FaultAt(l.At(a), b, "found none, expected one beside %s", a)
}

// checkOneOf reports two keys that say the same thing.
func (l *loader) checkOneOf(a, valueA, b, valueB string) {
	if l.OK(a, b) && valueA != "" && valueB != "" {
		l.Fault(b, "found one beside %s (%s), expected one of the two", a, l.At(a))
	}
}

func (l *loader) checkListeners() {
	c := l.cfg
	if l.OK("listen") && !isLoopback(c.Listen) {
		l.checkOpen()
	}
	if l.OK("admin.listen") && !isLoopback(c.Admin.Listen) {
		l.Warn("admin.listen", "%s can be reached by others, who see there whom you crawl if they learn the token; 127.0.0.1 is for this machine alone", c.Admin.Listen)
	}
	if l.OK("listen", "admin.listen") && samePort(c.Listen, c.Admin.Listen) {
		l.Fault("admin.listen", "found %s, expected another port than that of listen, %s (%s)", c.Admin.Listen, c.Listen, l.At("listen"))
	}
}

// checkOpen refuses an open proxy, and one whose operator cannot be reached.
func (l *loader) checkOpen() {
	c := l.cfg
	if l.OK("clients", "auth.required") && len(c.Clients) == 0 && !c.Auth.Required {
		l.Fault("listen", `%s can be reached by others, expected clients that say who may use the proxy, or auth.required. Write 127.0.0.1 for this machine alone, or add, with your own network:
    clients:
      - {name: lab, cidr: [10.0.0.0/8]}`, settings.Quote(c.Listen))
	}
	if l.OK("identity.contact") && c.Identity.Contact == "" {
		l.FaultAt(l.At("listen"), "identity.contact", "found none, expected %s: owners of sites must be able to reach whoever lets others crawl, as listen %s does", texts["contact"].Expected(), c.Listen)
	}
	for i, client := range c.Clients {
		for j, p := range client.CIDR {
			if p.IsValid() && p.Bits() == 0 && client.User == "" && !c.Auth.Required {
				l.Warn(settings.Item(settings.Join(settings.Item("clients", i), "cidr"), j), "%s is everybody: an open proxy", p)
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

func (l *loader) checkEgress() {
	e := l.cfg.Egress
	if e.UpstreamProxyCredentialsFile != "" && e.UpstreamProxy == "" && l.OK("egress.upstream_proxy") {
		l.FaultAt(l.At("egress.upstream_proxy_credentials_file"), "egress.upstream_proxy", "found none, expected one beside egress.upstream_proxy_credentials_file")
	}
	if !l.OK("egress.allow_addresses", "egress.deny_addresses") {
		return
	}
	for i, p := range e.DenyAddresses {
		if slices.Contains(e.AllowAddresses, p) {
			l.Fault(settings.Item("egress.deny_addresses", i), "%s is in egress.allow_addresses too", formatPrefix(p))
		}
	}
}

// checkAuth refuses what needs passwords where there are none.
// checkRefusal refuses the one status that means another thing to every client: it would send, or ask for, a password.
func (l *loader) checkRefusal() {
	if l.cfg.Refusal.Status == http.StatusProxyAuthRequired {
		l.Fault("refusal.status", "found 407, expected another: 407 asks for a password")
	}
}

func (l *loader) checkAuth() {
	c := l.cfg
	if c.Auth.HtpasswdFile != "" || !l.OK("auth.htpasswd_file") {
		return
	}
	const expected = "expected auth.htpasswd_file, which holds the passwords"
	if c.Auth.Required {
		l.Fault("auth.required", "found true, "+expected)
	}
	for i, client := range c.Clients {
		if key := settings.Join(settings.Item("clients", i), "user"); client.User != "" && l.OK(key) {
			l.Fault(key, "found %s, "+expected, settings.Quote(client.User))
		}
	}
}

func (l *loader) checkClients() {
	c := l.cfg
	first := map[string]int{}
	for i, client := range c.Clients {
		key := settings.Item("clients", i)
		l.require(settings.Join(key, "name"), client.Name != "", "a name, which records and exemptions use")
		l.require(settings.Join(key, "cidr"), len(client.CIDR) > 0 || client.User != "", "a list of addresses or networks, such as [10.0.0.0/8], or a user, by which the client is known")
		if j, twice := first[client.Name]; twice && client.Name != "" {
			l.Fault(settings.Join(key, "name"), "%s is %s already", settings.Quote(client.Name), settings.Item("clients", j))
		} else {
			first[client.Name] = i
		}
	}
	local := func(client Client) bool {
		return len(client.CIDR) == 0 || slices.ContainsFunc(client.CIDR, overlapsLoopback)
	}
	if len(c.Clients) > 0 && l.OK("clients", "listen") && isLoopback(c.Listen) && !slices.ContainsFunc(c.Clients, local) {
		l.Warn("clients", "nobody can use the proxy: listen is %s, and no client has an address of this machine (127.0.0.1)", c.Listen)
	}
}

func overlapsLoopback(p netip.Prefix) bool {
	return p.Overlaps(netip.MustParsePrefix("127.0.0.0/8")) || p.Overlaps(netip.MustParsePrefix("::1/128"))
}

// require reports a key of an entry that is not there.
func (l *loader) require(key string, present bool, what string) {
	if !present && l.OK(key) {
		l.Fault(key, "found none, expected %s", what)
	}
}

// checkHosts refuses an entry that can never apply, since an earlier one matches all that it does.
func (l *loader) checkHosts() {
	first := map[string]int{}
	for i, h := range l.cfg.Hosts {
		key := settings.Join(settings.Item("hosts", i), "host")
		l.require(key, h.Host != "", texts["pattern"].Expected())
		if !l.OK(key) {
			continue
		}
		for _, wider := range covering(h.Host) {
			if j, covered := first[wider]; covered {
				l.Fault(key, "%s never applies: %s matches first (%s)", h.Host, wider, settings.Item("hosts", j))
				break
			}
		}
		if _, twice := first[h.Host]; !twice {
			first[h.Host] = i
		}
	}
}

// covering returns every pattern that matches all hosts that pattern matches: itself, those of the names above it, and
// "*".
func covering(pattern string) []string {
	all := []string{pattern}
	name := strings.TrimPrefix(pattern, "*.")
	for {
		_, above, more := strings.Cut(name, ".")
		if !more {
			return append(all, "*")
		}
		all, name = append(all, "*."+above), above
	}
}

func (l *loader) checkExemptions(now time.Time) {
	for i := range l.cfg.Exemptions {
		e, key := &l.cfg.Exemptions[i], settings.Item("exemptions", i)
		l.require(settings.Join(key, "host"), e.Host != "", texts["pattern"].Expected())
		l.require(settings.Join(key, "reason"), e.Reason != "", "a reason, which an auditor will ask for")
		l.require(settings.Join(key, "owner"), e.Owner != "", "an owner, who answers for it")
		said := l.IsSet(settings.Join(key, "effect"))
		l.require(settings.Join(key, "effect"), said, "allow or deny")
		if said && e.Effect == policy.EffectAllow {
			l.require(settings.Join(key, "until"), !e.Until.IsZero(), "a date such as 2027-06-30: nothing is allowed for ever")
		}
		if !e.Until.IsZero() && !now.Before(e.Until) {
			l.Warn(settings.Join(key, "until"), "this exemption stopped working at %s", formatTime(e.Until))
		}
		l.checkExempt(e, key)
	}
}

// checkExempt checks what an exemption is about.
func (l *loader) checkExempt(e *policy.Exemption, key string) {
	if k := settings.Join(key, "host"); e.Host != "" && l.OK(k) {
		l.Reread(k, "pattern", &e.Host)
	}
	if e.Path != "" && (e.Path[0] != '/' || strings.ContainsAny(e.Path, "# \t")) {
		l.Fault(settings.Join(key, "path"), "found %s, expected a path such as /api/*, with %%23 for # and %%20 for a space", settings.Quote(e.Path))
	}
	if e.Client != "" && !l.isClient(e.Client) {
		l.Fault(settings.Join(key, "client"), "found %s, expected the name of one of clients%s", settings.Quote(e.Client), l.nearClient(e.Client))
	}
}

// isClient reports whether somebody is known by name. Where clients lists none, everybody is "local" or has the name of a
// user, and those are in a file that is read later.
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

// checkFiles opens every file that is only read, so that what is not there is known before anything starts.
func (l *loader) checkFiles() {
	c := l.cfg
	l.checkFile("intercept.ca_cert", c.Intercept.CACert)
	l.checkFile("intercept.ca_key", c.Intercept.CAKey)
	l.checkFile("egress.ca_file", c.Egress.CAFile)
	l.checkSecret("redis.url_file", c.Redis.URLFile)
	l.checkSecret("egress.upstream_proxy_credentials_file", c.Egress.UpstreamProxyCredentialsFile)
	l.checkSecret("auth.htpasswd_file", c.Auth.HtpasswdFile)
	for i, h := range c.Hosts {
		l.checkRobotsFile(settings.Join(settings.Item("hosts", i), "robots_file"), h.RobotsFile)
	}
}

// checkRobotsFile warns of what a robots.txt of the operator's says in vain. It is no fault: crawlers pass over it too.
func (l *loader) checkRobotsFile(key, path string) {
	l.checkFile(key, path)
	if path == "" || !l.OK(key) {
		return
	}
	body, err := os.ReadFile(path)
	if err != nil {
		l.Fault(key, "expected a file that can be read: %v", err)
		return
	}
	findings := rules.Parse(body, rules.Options{KeepSource: true}).Lint()
	i := slices.IndexFunc(findings, func(f rules.Finding) bool { return f.Severity == rules.SeverityError })
	if i >= 0 {
		l.Warn(key, "%s:%d:%d: %s; robotsproxy lint shows all", path, findings[i].Line, findings[i].Column, findings[i].Message)
	}
}

func (l *loader) checkFile(key, path string) {
	if path == "" || !l.OK(key) {
		return
	}
	if err := readable(path); err != nil {
		l.Fault(key, "expected a file that can be read: %v", err)
	}
}

// checkSecret checks a file that others should not read. It is no fault that they can: the secrets of a container are
// often mounted so.
func (l *loader) checkSecret(key, path string) {
	l.checkFile(key, path)
	if info, err := os.Stat(path); path != "" && l.OK(key) && err == nil && info.Mode().Perm()&0o077 != 0 {
		l.Warn(key, "others on this machine can read %s (mode %04o), which holds secrets; chmod 600 keeps them", path, info.Mode().Perm())
	}
}

// readable looks before it opens, since opening a named pipe would wait for somebody to write.
func readable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return f.Close()
}
