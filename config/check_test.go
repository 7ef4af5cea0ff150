package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
)

const openTo = "clients: [{name: lab, cidr: [10.0.0.0/8]}]\nidentity: {contact: \"mailto:op@example.org\"}\n"

func TestChecks(t *testing.T) {
	const lines = " can be reached by others, expected a list of clients, or auth.required. Write 127.0.0.1 for this machine alone, or add, with your own network:\n" +
		"    clients:\n      - {name: lab, cidr: [10.0.0.0/8]}"
	const proxyURL = "the URL of a proxy such as http://proxy.example:3128, or https://"
	const withTLS = "tls: {cert_file: robotsproxy.yaml, key_file: robotsproxy.yaml, client_ca_file: robotsproxy.yaml}\n"
	const openContact = "identity: {contact: \"mailto:op@example.org\"}\n"
	const subject = "the whole subject of a certificate such as CN=ci,O=Example, as openssl x509 -subject -nameopt RFC2253 prints it"
	const contact = `identity: {contact: "https://example.org/bot"}` + "\n"
	tests := []struct{ name, text, want string }{
		{"wildcard without clients", contact + "listen: 0.0.0.0:3128", `f:2:9: listen: "0.0.0.0:3128"` + lines},
		{"no host without clients", contact + "listen: :3128", `f:2:9: listen: ":3128"` + lines},
		{"name without clients", contact + "listen: localhost:3128", `f:2:9: listen: "localhost:3128"` + lines},
		{"address without clients", contact + "listen: 192.0.2.1:3128", `f:2:9: listen: "192.0.2.1:3128"` + lines},
		{"IPv6 wildcard without clients", contact + `listen: "[::]:3128"`, `f:2:9: listen: "[::]:3128"` + lines},
		{"mapped wildcard without clients", contact + `listen: "[::ffff:0.0.0.0]:3128"`, `f:2:9: listen: "[::ffff:0.0.0.0]:3128"` + lines},
		{"wildcard with clients", openTo + "listen: 0.0.0.0:3128", ""},
		{"wildcard where everybody has a password", contact + "listen: :3128\nauth: {htpasswd_file: robotsproxy.yaml, required: true}", ""},
		{"wildcard where some have passwords", contact + "listen: :3128\nauth: {htpasswd_file: robotsproxy.yaml}", `f:2:9: listen: ":3128"` + lines},
		{"a client by password alone", "clients: [{name: a, user: b}]\nauth: {htpasswd_file: robotsproxy.yaml}", ""},
		{"passwords without a file", "auth: {required: true}", "f:1:18: auth.required: found true, expected auth.htpasswd_file, which holds the passwords"},
		{"a user without a file", "clients: [{name: a, user: b}]", `f:1:27: clients[0].user: found "b", expected auth.htpasswd_file, which holds the passwords`},
		{"no such file of passwords", "auth: {htpasswd_file: g}", "f:1:23: auth.htpasswd_file: expected a file that can be read: stat dir/g: no such file or directory"},
		{"a key without a certificate", "tls: {key_file: robotsproxy.yaml}", "f:1:17: tls.cert_file: found none, expected one beside tls.key_file"},
		{"a certificate without a key", "tls: {cert_file: robotsproxy.yaml}", "f:1:18: tls.key_file: found none, expected one beside tls.cert_file"},
		{"CAs of clients without a certificate", "tls: {client_ca_file: robotsproxy.yaml}", "f:1:23: tls.cert_file: found none, expected one beside tls.client_ca_file"},
		{"no such certificate", "tls: {cert_file: g, key_file: robotsproxy.yaml}", "f:1:18: tls.cert_file: expected a file that can be read: stat dir/g: no such file or directory"},
		{"wildcard with clients by certificate", withTLS + openContact + "listen: :3128\nclients: [{name: ci, tls_subject: \"CN=ci\"}]", ""},
		{"wildcard with TLS and no clients", withTLS + openContact + "listen: :3128", `f:3:9: listen: ":3128"` + lines},
		{"a subject without CAs", "tls: {cert_file: robotsproxy.yaml, key_file: robotsproxy.yaml}\nclients: [{name: ci, tls_subject: \"CN=ci\"}]", `f:2:35: clients[0].tls_subject: found "CN=ci", expected tls.client_ca_file, which signs the certificates of clients`},
		{"a whole subject", withTLS + `clients: [{name: ci, tls_subject: "CN=ci\\, 2+OU=a,O=Example,1.2.840.113549.1.9.1=#1603"}]`, ""},
		{"a subject with spaces", withTLS + `clients: [{name: ci, tls_subject: "CN=ci, O=Example"}]`, `f:2:35: clients[0].tls_subject: found "CN=ci, O=Example", expected ` + subject + "; no space belongs around = and after a comma"},
		{"a subject as openssl prints it", withTLS + `clients: [{name: ci, tls_subject: "CN = ci"}]`, `f:2:35: clients[0].tls_subject: found "CN = ci", expected ` + subject + "; no space belongs around = and after a comma"},
		{"a name alone", withTLS + `clients: [{name: ci, tls_subject: ci}]`, `f:2:35: clients[0].tls_subject: found "ci", expected ` + subject},
		{"a subject that ends with a comma", withTLS + `clients: [{name: ci, tls_subject: "CN=ci,"}]`, `f:2:35: clients[0].tls_subject: found "CN=ci,", expected ` + subject},
		{"an attribute that RFC 2253 does not name", withTLS + `clients: [{name: ci, tls_subject: "emailAddress=a@b.example,CN=ci"}]`, `f:2:35: clients[0].tls_subject: found "emailAddress=a@b.example,CN=ci", expected ` + subject + "; an attribute is one of CN, O, OU, C, L, ST, STREET, POSTALCODE, SERIALNUMBER, or an OID with # and its value in hexadecimal"},
		{"a load balancer", openTo + "proxy_protocol: [10.0.0.0/8, \"::1\"]", ""},
		{"a load balancer without clients", openContact + "proxy_protocol: [10.0.0.0/8]", "f:2:17: proxy_protocol: others can reach the proxy through a load balancer, expected a list of clients, or auth.required"},
		{"a load balancer without a contact", "proxy_protocol: [10.0.0.0/8]\nclients: [{name: a, cidr: [10.0.0.1]}]", "identity.contact: found none, expected a URL such as https://example.org/crawler, or mailto:crawler@example.org: owners of sites must be able to reach the operator of a proxy that others can use (listen is 127.0.0.1:3128)"},
		{"a User-Agent with a line break", `user_agent: "a\nb"`, `f:1:13: user_agent: found "a\nb", expected a User-Agent of visible ASCII such as NewsBot/1.0 (+https://example.org/bot); control characters do not belong here`},
		{"a User-Agent with a space at its end", `user_agent: "a "`, `f:1:13: user_agent: found "a ", expected a User-Agent of visible ASCII such as NewsBot/1.0 (+https://example.org/bot)`},
		{"a User-Agent that is not ASCII", `user_agent: ü`, `f:1:13: user_agent: found "ü", expected a User-Agent of visible ASCII such as NewsBot/1.0 (+https://example.org/bot)`},
		{"an exemption for a user", "auth: {htpasswd_file: robotsproxy.yaml}\nexemptions: [{host: a.example, client: news, effect: deny, reason: r, owner: o}]", ""},
		{"a refusal that asks for a password", "refusal: {status: 407}", "f:1:19: refusal.status: found 407, expected another: 407 asks for a password"},
		{"upstream proxy", "egress: {upstream_proxy: \"https://proxy.example\", upstream_proxy_credentials_file: robotsproxy.yaml}", ""},
		{"upstream proxy with a password", "egress: {upstream_proxy: \"http://us:s3cr3t@proxy.example:3128\"}", `f:1:26: egress.upstream_proxy: found "http://***@proxy.example:3128", expected ` + proxyURL + "; credentials do not belong here but in egress.upstream_proxy_credentials_file, as user:password"},
		{"upstream proxy with a password that is no URL", "egress: {upstream_proxy: \"http://us:s3/c#r?3t@proxy.example:3128\"}", `f:1:26: egress.upstream_proxy: found "http://***@proxy.example:3128", expected ` + proxyURL},
		{"upstream proxy with a password and no slashes", "egress: {upstream_proxy: \"http:us:s3cr3t@proxy.example:3128\"}", `f:1:26: egress.upstream_proxy: found "http:***@proxy.example:3128", expected ` + proxyURL},
		{"upstream proxy with a password and slashes alone", "egress: {upstream_proxy: \"//us:s3cr3t@proxy.example:3128\"}", `f:1:26: egress.upstream_proxy: found "//***@proxy.example:3128", expected ` + proxyURL},
		{"upstream proxy without a scheme", "egress: {upstream_proxy: \"us:s3cr3t@proxy.example:3128\"}", `f:1:26: egress.upstream_proxy: found "us:***@proxy.example:3128", expected ` + proxyURL},
		{"upstream proxy of another kind", "egress: {upstream_proxy: \"socks5://proxy.example:1080\"}", `f:1:26: egress.upstream_proxy: found "socks5://proxy.example:1080", expected ` + proxyURL},
		{"upstream proxy with a path", "egress: {upstream_proxy: \"http://proxy.example/proxy.pac\"}", `f:1:26: egress.upstream_proxy: found "http://proxy.example/proxy.pac", expected ` + proxyURL + "; a proxy has no path"},
		{"upstream proxy whose host is none", "egress: {upstream_proxy: \"http://0x7f.1:3128\"}", `f:1:26: egress.upstream_proxy: found "http://0x7f.1:3128", expected ` + proxyURL + `; host "0x7f.1" is a number but not an IPv4 address in four decimal parts`},
		{"credentials for no proxy", "egress: {upstream_proxy_credentials_file: robotsproxy.yaml}", "f:1:43: egress.upstream_proxy: found none, expected one beside egress.upstream_proxy_credentials_file"},
		{"IPv6 loopback", `listen: "[::1]:3128"`, ""},
		{"all of 127.0.0.0/8 is loopback", "listen: 127.9.9.9:3128", ""},
		{"a pace by address", "pacing: {key: ip}", ""},
		{"a pace by address through an upstream proxy", "pacing: {key: ip}\negress: {upstream_proxy: \"http://proxy.example:3128\"}", "f:1:15: pacing.key: found ip, expected host or domain beside egress.upstream_proxy (f:2:26), which resolves the names itself"},
		{"a removed key", "pacing: {redirects: ride}", "f:1:10: pacing.redirects: removed key: a request that follows a redirect waits for the Delay as every other; delete the key"},
		{"a removed delay", "pacing: {ip_delay: 1s}", "f:1:10: pacing.ip_delay: removed key: use pacing.key: ip, with which all hosts at one address share one pace"},
		{"another removed key", "pacing: {visit_time: obey}", "f:1:10: pacing.visit_time: removed key: Visit-time is not obeyed any more; delete the key"},
		{"no contact", "clients: [{name: a, cidr: [10.0.0.1]}]\nlisten: :3128", "f:2:9: identity.contact: found none, expected a URL such as https://example.org/crawler, or mailto:crawler@example.org: owners of sites must be able to reach the operator of a proxy that others can use (listen is :3128)"},
		{"one port twice", "listen: 127.0.0.1:3129", "admin.listen: found 127.0.0.1:3129, expected another port than that of listen, 127.0.0.1:3129 (f:1:9)"},
		{"free ports", "listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}", ""},
		{"port by name", "listen: 127.0.0.1:http", `f:1:9: listen: found "127.0.0.1:http", expected an address and a port such as 127.0.0.1:3128; the port is a number from 0 to 65535`},
		{"RFC 9309 2.4/ttl", "robots: {ttl: 25h}", "f:1:15: robots.ttl: found 25h, expected at most 24h (RFC 9309 section 2.4)"},
		{"RFC 9309 2.5/max_size", "robots: {max_size: 499KiB}", "f:1:20: robots.max_size: found 499KiB, expected at least 500KiB (RFC 9309 section 2.5 asks for 500KiB at least)"},
		{"RFC 9309 2.3.1.2/max_redirects", "robots: {max_redirects: 4}", "f:1:25: robots.max_redirects: found 4, expected at least 5 (RFC 9309 section 2.3.1.2 asks for five at least)"},
		{"min_ttl above ttl", "robots: {min_ttl: 2h, ttl: 1h}", "f:1:19: robots.min_ttl: found 2h, expected no more than robots.ttl, which is 1h (f:1:28)"},
		{"queues", "pacing: {max_queue: 10, max_queue_per_client: 11}", "f:1:47: pacing.max_queue_per_client: found 11, expected no more than pacing.max_queue, which is 10 (f:1:21)"},
		{"more for one operator than for all", "admin: {connections: 10, connections_per_client: 11}", "f:1:50: admin.connections_per_client: found 11, expected no more than admin.connections, which is 10 (f:1:22)"},
		{"no admin connections", "admin: {connections: 0}", "f:1:22: admin.connections: found 0, expected at least 1"},
		{"more for one client than for all", "limits: {connections: 10, connections_per_client: 11}", "f:1:51: limits.connections_per_client: found 11, expected no more than limits.connections, which is 10 (f:1:23)"},
		{"more tunnels than connections", "limits: {connections: 10, tunnels: 11}", "f:1:36: limits.tunnels: found 11, expected no more than limits.connections, which is 10 (f:1:23)"},
		{"more requests for one client than for all", "limits: {requests: 10, requests_per_client: 11}", "f:1:45: limits.requests_per_client: found 11, expected no more than limits.requests, which is 10 (f:1:20)"},
		{"more memory for one client than for all", "limits: {request_memory: 8MiB, request_memory_per_client: 9MiB}", "f:1:59: limits.request_memory_per_client: found 9MiB, expected no more than limits.request_memory, which is 8MiB (f:1:26)"},
		{"memory for less than one request", "limits: {request_memory: 100KiB}", "f:1:26: limits.request_memory: found 100KiB, expected at least 1MiB"},
		{"less memory brings that of one client down", "limits: {request_memory: 8MiB}", ""},
		{"no limit", "limits: {connections: 0, connections_per_client: 20000, tunnels: 0, requests: 0, requests_per_client: 20000, request_timeout: 0s}", ""},
		{"fewer connections bring the others down", "limits: {connections: 10}", ""},
		{"no header timeout", "limits: {header_timeout: 0s}", "f:1:26: limits.header_timeout: found 0s, expected at least 100ms"},
		{"interception", "intercept: {mode: mitm}", `f:1:19: intercept.mode: found "mitm", expected intercept, tunnel or refuse`},
		{"tunnel hosts", "intercept: {tunnel_hosts: [A.EXAMPLE, \"*.b.example\"]}\nhosts: [{host: c.example, intercept: refuse}]", ""},
		{"tunnel hosts with a port", "intercept: {tunnel_hosts: [\"pinned.example:443\"]}", `f:1:28: intercept.tunnel_hosts[0]: found "pinned.example:443", expected a host such as a.example, or *.example for every host below it; write the host alone, without scheme, port and path`},
		{"tunnel hosts with a pattern and a port", "intercept: {tunnel_hosts: [\"*.example:443\"]}", `f:1:28: intercept.tunnel_hosts[0]: found "*.example:443", expected a host such as a.example, or *.example for every host below it; write the host alone, without scheme, port and path`},
		{"tunnel hosts as a URL", "intercept: {tunnel_hosts: [\"https://pinned.example/\"]}", `f:1:28: intercept.tunnel_hosts[0]: found "https://pinned.example/", expected a host such as a.example, or *.example for every host below it; write the host alone, without scheme, port and path`},
		{"tunnel hosts as an IPv6 address and port", "intercept: {tunnel_hosts: [\"[::1]:443\"]}", `f:1:28: intercept.tunnel_hosts[0]: found "[::1]:443", expected a host such as a.example, or *.example for every host below it; write the host alone, without scheme, port and path`},
		{"tunnel hosts that are addresses", "intercept: {tunnel_hosts: [\"::1\", \"[::2]\", 192.0.2.1]}", ""},
		{"tunnel hosts that are nearly addresses", "intercept: {tunnel_hosts: [\"::1::\"]}", `f:1:28: intercept.tunnel_hosts[0]: found "::1::", expected a host such as a.example, or *.example for every host below it; host "::1::" is not an IPv6 address`},
		{"cache too small", "robots: {cache_size: 1MiB, max_size: 2MiB}", "f:1:38: robots.max_size: found 2MiB, expected no more than robots.cache_size, which is 1MiB (f:1:22)"},
		{"state.db too small", "robots: {max_size: 2MiB}\nstore: {max_size: 1MiB}", "f:1:20: robots.max_size: found 2MiB, expected no more than store.max_size, which is 1MiB (f:2:19)"},
		{"key without certificate", "intercept: {ca_key: dir/key}", "config: 2 faults\n" +
			"f:1:21: intercept.ca_cert: found none, expected one beside intercept.ca_key\n" +
			"f:1:21: intercept.ca_key: expected a file that can be read: stat dir/dir/key: no such file or directory"},
		{"folder in place of a file", "egress: {ca_file: .}", "f:1:19: egress.ca_file: expected a file that can be read: dir is not a regular file"},
		{"allowed and denied", "egress: {allow_addresses: [10.0.0.1], deny_addresses: [10.0.0.0/8, 10.0.0.1]}", "f:1:68: egress.deny_addresses[1]: 10.0.0.1 is in egress.allow_addresses too"},
		{"mapped address", "egress: {allow_addresses: [\"::ffff:10.0.0.1\"], deny_addresses: [10.0.0.1]}", "f:1:65: egress.deny_addresses[0]: 10.0.0.1 is in egress.allow_addresses too"},
		{"no name, no cidr", "clients: [{}]", "config: 2 faults\n" +
			"f:1:11: clients[0].name: found none, expected a name, which records and exemptions use\n" +
			"f:1:11: clients[0].cidr: found none, expected a list of addresses or networks, such as [10.0.0.0/8], or a user, by which the client is known"},
		{"one name twice", "clients: [{name: a, cidr: [127.0.0.1]}, {name: a, cidr: [10.0.0.1]}]", `f:1:48: clients[1].name: "a" is clients[0] already`},
		{"max_crawl_delay 0 is not that of pacing", "clients: [{name: a, cidr: [127.0.0.1], max_crawl_delay: 0s}]", "f:1:57: clients[0].max_crawl_delay: found 0s, expected at least 1ms"},
		{"name of the admin listener with a port", "admin: {hosts: [\"a.example:3129\"]}", `f:1:17: admin.hosts[0]: found "a.example:3129", expected a host such as a.example; write the host alone, without scheme, port and path`},
		{"the name itself is not below itself", "hosts: [{host: \"*.example\"}, {host: example}]", ""},
		{"star within a name", "hosts: [{host: \"a*.example\"}]", `f:1:16: hosts[0].host: found "a*.example", expected a host such as a.example, or *.example for every host below it; host "a*.example": '*' does not belong in a name`},
		{"exemption without anything", "exemptions: [{}]", "config: 4 faults\n" +
			"f:1:14: exemptions[0].host: found none, expected a host such as a.example, or *.example for every host below it\n" +
			"f:1:14: exemptions[0].reason: found none, expected a reason, for auditors\n" +
			"f:1:14: exemptions[0].owner: found none, expected an owner, for questions about it\n" +
			"f:1:14: exemptions[0].effect: found none, expected allow or deny"},
		{"allow for ever", "exemptions: [{host: a.example, effect: allow, reason: r, owner: o}]", "f:1:14: exemptions[0].until: found none, expected a date such as 2027-06-30: an exemption that allows must end"},
		{"deny for ever", "exemptions: [{host: a.example, effect: deny, reason: r, owner: o}]", ""},
		{"a comment would cut the path", "exemptions: [{host: a.example, path: /a#b, effect: deny, reason: r, owner: o}]", `f:1:38: exemptions[0].path: found "/a#b", expected a path such as /api/*, with %23 for # and %20 for a space`},
		{"unknown client", "clients: [{name: news, cidr: [127.0.0.1]}]\nexemptions: [{host: a.example, client: nwes, effect: deny, reason: r, owner: o}]", `f:2:40: exemptions[0].client: found "nwes", expected the name of one of clients; did you mean news?`},
		{"the client of a proxy without clients", "exemptions: [{host: a.example, client: local, effect: deny, reason: r, owner: o}]", ""},
		{"bad pattern of an exemption", "exemptions: [{host: a..example, effect: deny, reason: r, owner: o}]", `f:1:21: exemptions[0].host: found "a..example", expected a host such as a.example, or *.example for every host below it; host "a..example": each label has 1 to 63 octets`},
		{"contact", "identity: {contact: https://example.org/(bot)}", `f:1:21: identity.contact: found "https://example.org/(bot)", expected a URL such as https://example.org/crawler, or mailto:crawler@example.org; visible ASCII without ( ) and \`},
		{"contact that is no URL", "identity: {contact: \"ftp://example.org/\"}", `f:1:21: identity.contact: found "ftp://example.org/", expected a URL such as https://example.org/crawler, or mailto:crawler@example.org`},
		{"BOM and CRLF", "\ufeffgrace: 5s\r\nmode: off\r\n", ""},
		{"a section that is commented out", "grace: 5s\nrobots:\n#  ttl: 1h\nclients:\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, got := loadText(t, tt.text+"\n", Options{})
			want := tt.want
			if want != "" && !strings.HasPrefix(want, "config: ") {
				want = "config: " + want
			}
			if got != want {
				t.Errorf("load(%q) =\n%s\nwant\n%s", tt.text, got, want)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	const htpasswd = "auth: {htpasswd_file: robotsproxy.yaml}\n"
	const exemption = "exemptions: [{host: a.example, effect: allow, reason: r, owner: o, until: %s}]\n"
	tests := []struct{ name, text, want string }{
		{"admin for others", "admin: {listen: 0.0.0.0:3129}", "f:1:17: admin.listen: 0.0.0.0:3129 can be reached by others, who can see which hosts you crawl if they learn the token; 127.0.0.1 is for this machine alone"},
		{"everybody", "listen: :3128\nclients: [{name: all, cidr: [\"::/0\"]}]\nidentity: {contact: \"mailto:op@example.org\"}", "f:2:30: clients[0].cidr[0]: ::/0 allows everyone: an open proxy"},
		{"nobody", openTo, "f:1:10: clients: no client can use the proxy: listen is 127.0.0.1:3128, and no client has an address of this machine (127.0.0.1)"},
		{"everybody with a password", "listen: :3128\nauth: {htpasswd_file: robotsproxy.yaml, required: true}\nclients: [{name: all, cidr: [\"::/0\"]}]\nidentity: {contact: \"mailto:op@example.org\"}", ""},
		{"until yesterday", strings.ReplaceAll(exemption, "%s", "2026-05-31"), "f:1:75: exemptions[0].until: this exemption stopped working at 2026-06-01T00:00:00Z"},
		{"until today, to its end in UTC", strings.ReplaceAll(exemption, "%s", "2026-06-01"), ""},
		{"until this moment", strings.ReplaceAll(exemption, "%s", "2026-06-01T14:00:00+02:00"), "f:1:75: exemptions[0].until: this exemption stopped working at 2026-06-01T12:00:00Z"},
		{"host twice", "hosts: [{host: a.example}, {host: A.EXAMPLE.}]", "f:1:35: hosts[1].host: a.example never applies: a.example matches first (hosts[0], f:1:16)"},
		{"IPv4-mapped host", "hosts: [{host: 192.0.2.1}, {host: \"::ffff:192.0.2.1\"}]", "f:1:35: hosts[1].host: 192.0.2.1 never applies: 192.0.2.1 matches first (hosts[0], f:1:16)"},
		{"NAT64 host", "hosts: [{host: 192.0.2.1}, {host: \"64:ff9b::c000:201\"}]", "f:1:35: hosts[1].host: 192.0.2.1 never applies: 192.0.2.1 matches first (hosts[0], f:1:16)"},
		{"host behind a wider pattern", "hosts: [{host: \"*.example\"}, {host: \"*.a.example\"}]", "f:1:37: hosts[1].host: *.a.example never applies: *.example matches first (hosts[0], f:1:16)"},
		{"host behind every host", "hosts: [{host: \"*\"}, {host: a.example}]", "f:1:29: hosts[1].host: a.example never applies: * matches first (hosts[0], f:1:16)"},
		{"two hosts that overlap", "hosts: [{host: a.example}, {host: \"*.example\"}, {host: \"*.a.example\"}]", "f:1:56: hosts[2].host: *.a.example never applies: *.example matches first (hosts[1], f:1:35)"},
		{"a narrow network in a wide one", "clients: [{name: wide, cidr: [127.0.0.0/8]}, {name: narrow, cidr: [127.9.0.0/16, 127.0.0.1]}]", `f:1:46: clients[1]: "narrow" never applies: "wide" matches first (clients[0], f:1:11)`},
		{"a user on a network", htpasswd + "clients:\n  - {name: lab, cidr: [127.0.0.0/8]}\n  - {name: news, user: news}", `f:4:5: clients[1]: "news" never applies to requests from this machine: "lab" matches first (clients[0], f:3:5)`},
		{"a user on every network", htpasswd + "listen: :3128\nidentity: {contact: \"mailto:op@example.org\"}\nclients:\n  - {name: lab, user: lab}\n  - {name: all, cidr: [0.0.0.0/0, \"::/0\"], user: news}\n  - {name: news, user: news}", `f:7:5: clients[2]: "news" never applies: "all" matches first (clients[1], f:6:5)`},
		{"a user on one family of addresses", htpasswd + "listen: :3128\nidentity: {contact: \"mailto:op@example.org\"}\nclients:\n  - {name: all, cidr: [10.0.0.0/8]}\n  - {name: news, user: news}", ""},
		{"a user twice", htpasswd + "clients: [{name: a, user: news}, {name: b, user: news, cidr: [127.0.0.1]}, {name: c, user: other}]", `f:2:34: clients[1]: "b" never applies: "a" matches first (clients[0], f:2:11)`},
		{"everybody with a certificate", "tls: {cert_file: robotsproxy.yaml, key_file: robotsproxy.yaml, client_ca_file: robotsproxy.yaml}\nlisten: :3128\nclients: [{name: all, cidr: [\"::/0\"], tls_subject: \"CN=ci\"}]\nidentity: {contact: \"mailto:op@example.org\"}", ""},
		{"a user behind a load balancer", htpasswd + openTo[:len(openTo)-1] + "\nproxy_protocol: [127.0.0.1]", ""},
		{"a user that is known by its address too", htpasswd + "clients: [{name: a, user: news, cidr: [127.0.0.1]}, {name: b, cidr: [127.0.0.1]}, {name: c, user: news, cidr: [127.0.0.2]}]", ""},
		{"a User-Agent without the contact", "identity: {require_contact: true}\nuser_agent: NewsBot/1.0\nclients: [{name: a, cidr: [127.0.0.1], user_agent: b}, {name: c, cidr: [127.0.0.2], user_agent: c mail@c.example}]", `f:2:13: user_agent: "NewsBot/1.0" has no contact, so identity.require_contact (f:1:29) refuses every request that would be sent with it` + "\n" + `f:3:52: clients[0].user_agent: "b" has no contact, so identity.require_contact (f:1:29) refuses every request that would be sent with it`},
		{"until the next second", strings.ReplaceAll(exemption, "%s", "2026-06-01T12:00:01Z"), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, got, faults := loadText(t, tt.text, Options{})
			if faults != "" || got != tt.want {
				t.Errorf("load(%q) warns\n%s\nwant\n%s\nfaults %s", tt.text, got, tt.want, faults)
			}
		})
	}
}

// TestRobotsFile wants a warning where a robots.txt of the operator's says something in vain, by its first error.
func TestRobotsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "own.txt")
	for _, tt := range []struct{ name, body, want string }{
		{"all in force", "User-agent: *\nDisallow: /x\n", ""},
		{"empty", "", ""},
		{"no error, but a field that nobody knows", "User-agent: *\nDisallow: /x\nLicence: y\n", ""},
		{"two misspelt", "User-agent: *\nDisalow: /x\nDissallow: /y\n", `own.txt:2:1: "Disalow" is not "Disallow"`},
		{"a web page", "<html><body>", "own.txt:1:1: This is a web page"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(tt.body), 0o600); err != nil {
				t.Fatal(err)
			}
			_, got, faults := loadText(t, "hosts: [{host: a.example, robots_file: "+path+"}]\n", Options{})
			if faults != "" || (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("a robots_file with %q warns\n%s\nwant\n%s\nfaults %s", tt.body, got, tt.want, faults)
			}
		})
	}
}

func TestEntries(t *testing.T) {
	dir := t.TempDir()
	robots := filepath.Join(dir, "robots.txt")
	if err := os.WriteFile(robots, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, warnings, faults := loadText(t, `
clients:
  - {name: news, cidr: [10.1.0.0/16, "::1"], product_token: MJ12bot, mode: off, purpose: search, max_wait: 0s, max_crawl_delay: 10m}
  - {name: lab, cidr: [10.2.0.0/16]}
hosts:
  - {host: "*.Bücher.Example", mode: report, delay: 2.5s, robots_file: `+robots+`}
exemptions:
  - {host: A.example., path: /api/*, client: lab, effect: allow, reason: contract 12, owner: ops@example.org, until: 2027-06-30}
`, Options{})
	if faults+warnings != "" {
		t.Fatal(faults, warnings)
	}
	news, lab := cfg.Clients[0], cfg.Clients[1]
	if *news.Mode != policy.Off || *news.MaxWait != 0 || news.MaxCrawlDelay != 10*time.Minute || news.ProductToken != "MJ12bot" {
		t.Errorf("clients[0] = %+v", news)
	}
	if lab.Mode != nil || lab.MaxWait != nil {
		t.Errorf("clients[1] = %+v, want neither mode nor max_wait", lab)
	}
	if h := cfg.Hosts[0]; h.Host != "*.xn--bcher-kva.example" || h.Delay != 2500*time.Millisecond || h.RobotsFile != robots {
		t.Errorf("hosts[0] = %+v", h)
	}
	want := policy.Exemption{
		Host: "a.example", Path: "/api/*", Client: "lab", Effect: policy.EffectAllow, Reason: "contract 12", Owner: "ops@example.org",
		Until: time.Date(2027, 7, 1, 0, 0, 0, 0, time.UTC),
	}
	if cfg.Exemptions[0] != want {
		t.Errorf("exemptions[0] = %+v, want %+v", cfg.Exemptions[0], want)
	}
}

func TestUnreadableFile(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads every file")
	}
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, nil, 0); err != nil {
		t.Fatal(err)
	}
	if err := readable(path); !os.IsPermission(err) {
		t.Errorf("readable(a file of mode 0) = %v, want that it is not permitted", err)
	}
}

// A default that another key contradicts is no fault of the operator's: it gives way.
func TestDefaultsGiveWay(t *testing.T) {
	cfg, _, err := Load(Options{Overrides: []Override{
		{Key: "robots.ttl", Value: "1m", Source: "--ttl"}, {Key: "pacing.max_queue", Value: "10", Source: "--queue"}, {Key: "pacing.max_wait", Value: "20m", Source: "--wait"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Robots.MinTTL != time.Minute || cfg.Pacing.MaxQueuePerClient != 10 || cfg.Pacing.MaxWait != 20*time.Minute {
		t.Errorf("min_ttl %v, max_queue_per_client %d, max_wait %v; want 1m, 10, 20m", cfg.Robots.MinTTL, cfg.Pacing.MaxQueuePerClient, cfg.Pacing.MaxWait)
	}
}

// The files with secrets may be readable by others, which is said.
func TestSecretsThatOthersCanRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("us:s3cr3t"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := "egress: {upstream_proxy: \"http://p.example\", upstream_proxy_credentials_file: " + path + "}\nauth: {htpasswd_file: " + path + "}\nredis: {url_file: " + path + "}\n"
	for mode, want := range map[os.FileMode]int{0o600: 0, 0o400: 0, 0o640: 3, 0o644: 3} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, warnings, faults := loadText(t, text, Options{})
		if got := strings.Count(warnings, "chmod 600"); faults != "" || got != want || strings.Contains(warnings, "s3cr3t") {
			t.Errorf("mode %04o: %d warnings, want %d: %s %s", mode, got, want, warnings, faults)
		}
	}
}
