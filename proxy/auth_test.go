package proxy

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/robotsproxy/robotsproxy/auth"
	"github.com/robotsproxy/robotsproxy/policy"
)

func basicField(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// hashOf returns the cheapest hash of password.
func hashOf(t testing.TB, password string) string {
	t.Helper()
	h, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return string(h)
}

// users returns the users news (s3cr3t) and lab (pass:word).
func users(t testing.TB) *auth.Users {
	t.Helper()
	return loadUsers(t, "news:"+hashOf(t, "s3cr3t"), "lab:"+hashOf(t, "pass:word"))
}

func loadUsers(t testing.TB, lines ...string) *auth.Users {
	t.Helper()
	path := filepath.Join(t.TempDir(), "htpasswd")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	u, err := auth.LoadUsers(path)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// as makes c send credentials to the proxy.
func as(c *http.Client, user, password string) *http.Client {
	t := c.Transport.(*http.Transport)
	direct := t.Proxy
	t.Proxy = func(r *http.Request) (*url.URL, error) {
		u, err := direct(r)
		if err != nil {
			return nil, err
		}
		with := *u
		with.User = url.UserPassword(user, password)
		return &with, nil
	}
	return c
}

// The user, the addresses, or both identify a client, which is asked for credentials only if they can help.
func TestAddressesOfClients(t *testing.T) {
	s := &settings{Options: Options{Clients: []Client{{Client: policy.Client{Name: "lab"}, Prefixes: []netip.Prefix{
		netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("fe80::/10"),
	}}}}}
	for from, want := range map[string]bool{
		"192.0.2.1:80": true, "[::ffff:192.0.2.1]:80": true, "[::ffff:c000:201%lo]:80": true, "[fe80::1]:80": true, "[fe80::1%lo]:80": true,
		"192.0.3.1:80": false, "[64:ff9b::c000:201]:80": false, "[::192.0.2.1]:80": false, "[2001:db8::1%lo]:80": false,
	} {
		if _, c, ref := s.identify(&http.Request{RemoteAddr: from}); (c != nil) != want || ref != nil {
			t.Errorf("who comes from %s is a client: %t, %v; want %t", from, c != nil, ref, want)
		}
	}
}

func TestWhoIsWho(t *testing.T) {
	const ours, theirs = "127.0.0.0/8", "10.0.0.0/8"
	client := func(name, user string, prefixes ...string) Client {
		c := Client{Client: policy.Client{Name: name}, User: user}
		for _, p := range prefixes {
			c.Prefixes = append(c.Prefixes, netip.MustParsePrefix(p))
		}
		return c
	}
	for _, row := range []struct {
		name     string
		off      bool // nobody has a password
		required bool
		clients  []Client
		user     string // sends credentials, with password s3cr3t; news' are right
		want     string // the client's name, or status and reason
	}{
		{"nobody listed, none sent", false, false, nil, "", "local"},
		{"nobody listed, right ones", false, false, nil, "news", "news"},
		{"nobody listed, wrong ones", false, false, nil, "lab", "407 auth"},
		{"nobody listed, an unknown user", false, false, nil, "nobody", "407 auth"},
		{"required, none sent", false, true, nil, "", "407 auth"},
		{"required, right ones", false, true, nil, "news", "news"},
		{"required, address listed, none sent", false, true, []Client{client("here", "", ours)}, "", "407 auth"},
		{"required, address listed, right ones", false, true, []Client{client("here", "", ours)}, "news", "here"},
		{"required, another address listed, right ones", false, true, []Client{client("there", "", theirs)}, "news", "403 identity"},
		{"address listed, none sent", false, false, []Client{client("here", "", ours)}, "", "here"},
		{"address listed, wrong ones", false, false, []Client{client("here", "", ours)}, "lab", "407 auth"},
		{"user listed, none sent", false, false, []Client{client("n", "news")}, "", "407 auth"},
		{"user listed, right ones", false, false, []Client{client("n", "news")}, "news", "n"},
		{"another user listed", false, false, []Client{client("l", "lab")}, "news", "403 identity"},
		{"user and address", false, false, []Client{client("n", "news", ours)}, "news", "n"},
		{"user at another address", false, false, []Client{client("n", "news", theirs)}, "news", "403 identity"},
		{"user at another address, then anybody here", false, false, []Client{client("n", "news", theirs), client("here", "", ours)}, "news", "here"},
		{"the first that matches", false, false, []Client{client("here", "", ours), client("n", "news")}, "news", "here"},
		{"neither user nor address", false, false, []Client{client("empty", "")}, "news", "403 identity"},
		{"off, none sent", true, false, nil, "", "local"},
		{"off, some sent", true, false, nil, "news", "local"},
		{"off, address listed, some sent", true, false, []Client{client("here", "", ours)}, "nobody", "here"},
	} {
		for _, way := range ways[:2] {
			t.Run(row.name+"/"+way.name, func(t *testing.T) {
				r := newRig(t, func(o *Options) {
					o.Clients, o.AuthRequired, o.Snapshots = row.clients, row.required, fixed(disallow)
					if !row.off {
						o.Users = users(t)
					}
				})
				c := r.client(way.http1)
				if row.user != "" {
					as(c, row.user, "s3cr3t")
				}
				resp, err := c.Get(r.url(way.scheme, "/page/1"))
				if err != nil && !strings.Contains(err.Error(), "auth: ") { // what Go tells of a CONNECT: its reason phrase
					t.Fatal(err)
				}
				if err == nil {
					resp.Body.Close()
				}
				rec := r.last(1)
				got := rec.Client
				if rec.Status != 200 {
					got = fmt.Sprint(rec.Status, " ", rec.Reason)
				}
				if got != row.want {
					t.Errorf("it is %s, want %s", got, row.want)
				}
				if asked := len(r.site.Requests()); (asked > 0) != (rec.Status == 200) {
					t.Errorf("status %d, and the origin was asked %d times", rec.Status, asked)
				}
			})
		}
	}
}

// The refusal on the wire, for each way to send missing or wrong credentials.
func TestProxyAuthenticationRequired(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Users, o.AuthRequired = users(t), true })
	answers := make(map[string]string)
	for name, field := range map[string]string{
		"none":            "",
		"wrong password":  "Proxy-Authorization: " + basicField("news", "wrong") + "\r\n",
		"unknown user":    "Proxy-Authorization: " + basicField("nobody", "wrong") + "\r\n",
		"another scheme":  "Proxy-Authorization: Bearer s3cr3t\r\n",
		"no base64":       "Proxy-Authorization: Basic s3cr3t!\r\n",
		"no colon":        "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("s3cr3t")) + "\r\n",
		"two fields":      strings.Repeat("Proxy-Authorization: "+basicField("news", "s3cr3t")+"\r\n", 2),
		"the wrong field": "Authorization: " + basicField("news", "s3cr3t") + "\r\n",
	} {
		for _, target := range []string{"CONNECT a.example:443", "GET " + r.url("http", "/page/1"), "POST " + r.url("http", "/echo")} {
			rest := "\r\n"
			if strings.HasPrefix(target, "POST") {
				rest = "Content-Length: 5\r\n\r\nhello"
			}
			method, _, _ := strings.Cut(target, " ")
			conn := r.raw(target + " HTTP/1.1\r\nHost: a.example:443\r\n" + field + rest)
			br := bufio.NewReader(conn)
			line, err := br.ReadString('\n')
			want := "HTTP/1.1 407 Proxy Authentication Required\r\n"
			if method == http.MethodConnect {
				want = "HTTP/1.1 407 auth: " // the cause: most clients show no more than this line
			}
			if err != nil || !strings.HasPrefix(line, want) {
				t.Errorf("%s with %s: %q, %v", method, name, line, err)
				continue
			}
			resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(strings.NewReader(line), br)), nil)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Errorf("%s with %s: %v", method, name, err)
			}
			checkChallenge(t, method+" with "+name, resp.Header)
			answers[method+name] = strings.Split(string(text), "request:")[0]
		}
	}
	for _, method := range []string{"CONNECT", "GET", "POST"} {
		if wrong, unknown := answers[method+"wrong password"], answers[method+"unknown user"]; wrong != unknown || wrong == "" {
			t.Errorf("%s: a wrong password is told from an unknown user:\n%s\n%s", method, wrong, unknown)
		}
	}
	if got := r.site.Requests(); len(got) > 0 {
		t.Errorf("the origin was asked: %v", got)
	}
	for _, rec := range r.records.all() {
		if text := fmt.Sprintf("%+v", rec); strings.Contains(text, "s3cr3t") || strings.Contains(text, "wrong ") || strings.Contains(text, "nobody") || rec.Decision != policy.Deny || rec.Host != "a.example" {
			t.Errorf("the record: %s", text)
		}
	}
	if text := r.log.String(); strings.Contains(text, "s3cr3t") {
		t.Errorf("the log tells a password: %s", text)
	}
}

func checkChallenge(t *testing.T, what string, h http.Header) {
	t.Helper()
	for field, want := range map[string]string{
		"Proxy-Authenticate": `Basic realm="robotsproxy"`, "Robotsproxy-Reason": "auth", "Robotsproxy-Decision": "deny", "Cache-Control": "no-store",
	} {
		if got := h.Get(field); got != want {
			t.Errorf("%s: %s is %q, want %q", what, field, got, want)
		}
	}
	if !strings.HasPrefix(h.Get("Proxy-Status"), "robotsproxy; error=http_request_denied;") || h.Get("Robotsproxy-Request-Id") == "" {
		t.Errorf("%s: %v", what, h)
	}
}

// The credentials of a CONNECT are those of all requests inside, and are not forwarded. Credentials inside have no
// effect.
func TestCredentialsStayHere(t *testing.T) {
	for _, off := range []bool{false, true} {
		for _, way := range ways {
			t.Run(fmt.Sprintf("off=%t/%s", off, way.name), func(t *testing.T) {
				r := newRig(t, func(o *Options) {
					if !off {
						o.Users, o.AuthRequired = users(t), true
					}
				})
				c := as(r.client(way.http1), "news", "s3cr3t")
				for i := range 2 {
					req, err := http.NewRequest("GET", r.url(way.scheme, fmt.Sprintf("/page/%d", i+1)), nil)
					if err != nil {
						t.Fatal(err)
					}
					if way.scheme == "https" {
						req.Header.Set("Proxy-Authorization", basicField("lab", "pass:word"))
					}
					resp, err := c.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					if resp.Body.Close(); resp.StatusCode != 200 {
						t.Errorf("request %d: %s %v", i+1, resp.Status, resp.Header)
					}
					if rec := r.last(i + 1); rec.Client != map[bool]string{false: "news", true: "local"}[off] {
						t.Errorf("request %d is %q's", i+1, rec.Client)
					}
				}
				for _, arrived := range r.site.Requests() {
					if v, there := arrived.Header["Proxy-Authorization"]; there {
						t.Errorf("%s came with Proxy-Authorization %q", arrived.Target, v)
					}
				}
			})
		}
	}
}

// A client that continues to guess gets Retry-After.
func TestTooManyGuesses(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Users = users(t) })
	c := as(r.client(true), "news", "wrong")
	for i := range 6 { // the first delay follows the sixth
		if resp, _ := r.get(c, r.url("http", "/page/1")); resp.StatusCode != 407 || resp.Header.Get("Retry-After") != "" {
			t.Errorf("guess %d: %s, Retry-After %q", i+1, resp.Status, resp.Header.Get("Retry-After"))
		}
	}
	resp, _ := r.get(as(r.client(true), "news", "s3cr3t"), r.url("http", "/page/1"))
	if resp.StatusCode != 407 || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("the next: %s, Retry-After %q", resp.Status, resp.Header.Get("Retry-After"))
	}
	if resp, _ := r.get(as(r.client(true), "lab", "pass:word"), r.url("http", "/page/1")); resp.StatusCode != 200 {
		t.Errorf("another user: %s", resp.Status)
	}
}

// Credentials that the proxy cannot check are refused as a fault of the proxy.
func TestCredentialsCannotBeChecked(t *testing.T) {
	if testing.Short() {
		t.Skip("its checks take seconds each")
	}
	u := loadUsers(t, "news:"+"$2a$15"+hashOf(t, "s3cr3t")[6:]) // seconds for each check
	r := newRig(t, func(o *Options) { o.Users = u })
	ctx, cancel := context.WithCancel(t.Context())
	var crowd sync.WaitGroup
	defer crowd.Wait()
	defer cancel()
	results := make(chan error, 1010)
	for i := range cap(results) { // at most a thousand of one network wait
		crowd.Go(func() { results <- u.Check(ctx, netip.MustParseAddr("127.0.0.1"), fmt.Sprint("user", i), "wrong") })
	}
	for range 10 {
		if err := <-results; !errors.Is(err, auth.ErrBusy) {
			t.Fatalf("one too many: %v", err)
		}
	}
	resp, _ := r.get(as(r.client(true), "news", "s3cr3t"), r.url("http", "/page/1"))
	if resp.StatusCode != 503 || resp.Header.Get("Robotsproxy-Reason") != "overload" || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("%s %v", resp.Status, resp.Header)
	}
}

func TestRequiredWithoutCredentials(t *testing.T) {
	var o Options
	newRig(t, func(complete *Options) { o = *complete })
	o.AuthRequired = true
	if _, err := New(o); err == nil {
		t.Error("a proxy that lets nobody in was made")
	}
}

// TestRejectedPasswordsAreLogged guesses for two users, outside and inside a CONNECT. Each user is one line.
func TestRejectedPasswordsAreLogged(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Users, o.AuthRequired = users(t), true })
	for range 3 {
		r.get(as(r.client(true), "news", "guess"), r.url("http", "/page/1"))
		_, _ = as(r.client(true), "news", "guess").Get(r.url("https", "/page/1"))
	}
	r.get(as(r.client(true), "e\x1b[31mvil\n"+strings.Repeat("x", 100), "guess"), r.url("http", "/page/1"))
	r.last(7)
	r.server.Close()
	log := r.log.String()
	if n := strings.Count(log, "a password is refused"); n != 2 {
		t.Errorf("%d lines, want 2:\n%s", n, log)
	}
	for _, want := range []string{"user=news client_addr=127.0.0.1:", "failures=1 ", `user="e\x1b[31mvil\nxxx`} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not contain %q:\n%s", want, log)
		}
	}
	if strings.Contains(log, "guess") || strings.Contains(log, strings.Repeat("x", 65)) {
		t.Errorf("the log has a password, or a user of any length:\n%s", log)
	}
}

// TestFaultLinesAreBounded has many strangers fail, for many users each.
func TestFaultLinesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f faultLog
		lines := 0
		fail := func(from netip.Addr, fault string) int {
			unlogged, due := f.due(from, fault)
			if due {
				lines++
			}
			return unlogged
		}
		one := netip.MustParseAddr("192.0.2.1")
		for range 100 {
			fail(one, "a")
		}
		if lines != 1 {
			t.Errorf("%d lines about one fault, want 1", lines)
		}
		time.Sleep(time.Minute)
		if n := fail(one, "a"); n != 99 || lines != 2 {
			t.Errorf("a minute later: %d lines, %d faults were not logged; want 2 and 99", lines, n)
		}
		addr := netip.MustParseAddr("2001:db8::")
		for i := range 10 * maxFaults {
			addr = addr.Next()
			fail(addr, "b")
			fail(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i)}), "b")
		}
		if lines != maxFaultLines+1 || len(f.entries) > maxFaults {
			t.Errorf("%d lines in a minute, %d entries; want %d and at most %d", lines-1, len(f.entries), maxFaultLines, maxFaults)
		}
	})
}
