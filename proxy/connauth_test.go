package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/robotsproxy/robotsproxy/policy"
)

// connAuthOrigin is an origin that authenticates a connection by credentials of NTLM or Negotiate. It then answers
// every request on that connection with the secret of that user.
type connAuthOrigin struct {
	challenge string // fields of its 401

	mu   sync.Mutex
	seen []string // the Authorization of each request
}

func (o *connAuthOrigin) serve(conn net.Conn) {
	defer conn.Close()
	in, user := bufio.NewReader(conn), ""
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		io.Copy(io.Discard, req.Body)
		credentials := strings.Join(req.Header["Authorization"], "|")
		o.mu.Lock()
		o.seen = append(o.seen, credentials)
		o.mu.Unlock()
		if lower := strings.ToLower(credentials); strings.Contains(lower, "ntlm") || strings.Contains(lower, "negotiate") {
			user = credentials
		}
		if user != "" || strings.HasPrefix(credentials, "Basic ") {
			body := "the secret of " + user
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			continue
		}
		fmt.Fprintf(conn, "HTTP/1.1 401 Unauthorized\r\n%sContent-Length: 2\r\n\r\nno", o.challenge)
	}
}

// start returns the authority at which o answers.
func (o *connAuthOrigin) start(r *rig) string {
	arrived := make(chan net.Conn)
	authority := r.wire(arrived)
	go func() {
		for {
			select {
			case conn := <-arrived:
				go o.serve(conn)
			case <-r.t.Context().Done():
				return
			}
		}
	}()
	return authority
}

func (o *connAuthOrigin) requests() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.seen)
}

// rawGet sends one request with fields and returns the answer.
func (r *rig) rawGet(authority, fields string) *http.Response {
	r.t.Helper()
	conn := r.raw("GET http://" + authority + "/x HTTP/1.1\r\nHost: " + authority + "\r\n" + fields + "\r\n")
	defer conn.Close()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	resp.Body = io.NopCloser(strings.NewReader(string(body)))
	return resp
}

// Credentials that authenticate a connection are refused in every mode and do not reach the origin. So no pooled
// connection is authenticated, and no client gets the secret of another.
func TestConnectionCredentials(t *testing.T) {
	for _, mode := range []policy.Mode{policy.Enforce, policy.Report, policy.Off} {
		t.Run(mode.String(), func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
			r.change(func(o *Options) { o.Policy = r.newPolicy(policy.Options{Mode: mode}) })
			origin := &connAuthOrigin{challenge: "WWW-Authenticate: Basic realm=\"x\"\r\n"}
			authority := origin.start(r)
			rows := []string{
				"Authorization: NTLM TlRMTVNTUAADAAAA\r\n",
				"Authorization: Negotiate YIIJvwYGKwYBBQUCoIIJ\r\n",
				"authorization: nEgOtIaTe YIIJvwYGKwYBBQUCoIIJ\r\n",
				"Authorization: NTLM\r\n",
				"Authorization:   NTLM\tTlRMTVNTUAADAAAA\r\n",
				"Authorization: Basic eDp4\r\nAuthorization: NTLM TlRMTVNTUAADAAAA\r\n",
				"Authorization: Basic eDp4, Negotiate YIIJvwYGKwYBBQUCoIIJ\r\n",
				"Authorization: , NTLM TlRMTVNTUAADAAAA\r\n",
				"Authorization: Nego2 YIIJvwYGKwYBBQUCoIIJ\r\n",
				"Authorization: Kerberos YIIJvwYGKwYBBQUCoIIJ\r\n",
			}
			for i, row := range rows {
				if resp := r.rawGet(authority, row); resp.StatusCode != 403 || resp.Header.Get("Robotsproxy-Reason") != "connection-auth" {
					t.Errorf("%s: %v; want 403 connection-auth", row, resp)
				}
				if rec := r.last(i + 1); rec.Reason != policy.ReasonConnectionAuth || rec.Decision != policy.Deny || !rec.SentAt.IsZero() {
					t.Errorf("record: %+v", rec)
				}
			}
			if got := origin.requests(); len(got) > 0 {
				t.Errorf("the origin saw %q", got)
			}
			if resp := r.rawGet(authority, ""); resp.StatusCode != 401 {
				t.Errorf("the next client was answered %v", resp)
			}
			if resp := r.rawGet(authority, "Authorization: Basic eDp4\r\n"); resp.StatusCode != 200 {
				t.Errorf("Basic was answered %v", resp)
			}
			if resp := r.rawGet(authority, "Authorization: Bearer ntlm, x=negotiate\r\n"); resp.StatusCode == 403 {
				t.Errorf("a token that is called ntlm was answered %v", resp)
			}
		})
	}
}

// The same holds in a tunnel and over HTTP/2.
func TestConnectionCredentialsInTunnels(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
			req, _ := http.NewRequest("GET", r.url(way.scheme, "/page/1"), nil)
			req.Header.Set("Authorization", "Negotiate YIIJvwYGKwYBBQUCoIIJ")
			resp, err := r.client(way.http1).Do(req)
			if err != nil || resp.StatusCode != 403 || resp.Header.Get("Robotsproxy-Reason") != "connection-auth" {
				t.Fatalf("answer %v, %v", resp, err)
			}
			resp.Body.Close()
			if got := r.site.Requests(); len(got) > 0 {
				t.Errorf("the origin saw %v", got)
			}
		})
	}
}

// Challenges for a connection are removed from a 401, and the others stay unchanged. A 401 with no others becomes 403.
func TestConnectionChallenges(t *testing.T) {
	for name, row := range map[string]struct {
		challenge string
		status    int
		left      []string
	}{
		"Basic before NTLM":          {"WWW-Authenticate: Basic realm=\"x\", NTLM\r\n", 401, []string{`Basic realm="x"`}},
		"NTLM before Basic":          {"WWW-Authenticate: NTLM, Basic realm=\"x\", charset=\"UTF-8\"\r\n", 401, []string{`Basic realm="x", charset="UTF-8"`}},
		"amid a list":                {"WWW-Authenticate: Digest realm=\"a, NTLM\", nonce=\"n\" , Negotiate YII=, ,Bearer\r\n", 401, []string{`Digest realm="a, NTLM", nonce="n", Bearer`}},
		"several fields":             {"WWW-Authenticate: Negotiate\r\nwww-authenticate: NTLM\r\nWww-Authenticate: Basic realm=\"x\"\r\n", 401, []string{`Basic realm="x"`}},
		"escaped quotes":             {"WWW-Authenticate: Basic realm=\"a\\\", NTLM\", Negotiate\r\n", 401, []string{`Basic realm="a\", NTLM"`}},
		"white space around =":       {"WWW-Authenticate: Basic realm = \"x\" , ntlm\r\n", 401, []string{`Basic realm = "x"`}},
		"a parameter called ntlm":    {"WWW-Authenticate: Custom ntlm=1, negotiate=\"2\"\r\n", 401, []string{`Custom ntlm=1, negotiate="2"`}},
		"nothing of the kind":        {"WWW-Authenticate:  Basic realm=\"x\",charset=\"UTF-8\"\r\n", 401, []string{`Basic realm="x",charset="UTF-8"`}},
		"none":                       {"", 401, nil},
		"NTLM alone":                 {"WWW-Authenticate: NTLM\r\n", 403, nil},
		"Negotiate and NTLM":         {"WWW-Authenticate: Negotiate\r\nWWW-Authenticate: NTLM\r\n", 403, nil},
		"Negotiate, NTLM, one field": {"WWW-Authenticate: negotiate, ntlm\r\n", 403, nil},
		"with a token":               {"WWW-Authenticate: NTLM TlRMTVNTUAACAAAA==\r\n", 403, nil},
		"with parameters":            {"WWW-Authenticate: Negotiate realm=\"x\", y=\"z\"\r\n", 403, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
			authority := (&connAuthOrigin{challenge: row.challenge}).start(r)
			resp := r.rawGet(authority, "")
			if got := resp.Header["Www-Authenticate"]; resp.StatusCode != row.status || !slices.Equal(got, row.left) {
				t.Errorf("%s: %d %q; want %d %q", row.challenge, resp.StatusCode, got, row.status, row.left)
			}
			if reason := resp.Header.Get("Robotsproxy-Reason"); row.status == 403 && reason != "connection-auth" {
				t.Errorf("reason %q", reason)
			}
			if rec := r.last(1); rec.Status != row.status || rec.SentAt.IsZero() || row.status == 403 && rec.Reason != policy.ReasonConnectionAuth {
				t.Errorf("record: %+v", rec)
			}
			if v, ok := r.limiter.Peek("a.example"); ok && v.InFlight != 0 {
				t.Errorf("%d places are not given back", v.InFlight)
			}
		})
	}
}
