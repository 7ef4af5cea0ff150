package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
	"github.com/robotsproxy/robotsproxy/policy"
)

const signals = "Content-Usage: search=y\r\nX-Robots-Tag: noai\r\nTDM-Reservation: 1\r\n"

// The preferences in robots.txt and in the response are recorded, and the response passes unchanged. A price passes with
// its status 402, and so do the fields by which a crawler agrees to it.
func TestUsageIsRecorded(t *testing.T) {
	const robots = "User-agent: *\nContent-Signal: search=yes, ai-train=no\n"
	for _, row := range []struct {
		name, robots, answer, usage, price string
		status                             int
	}{
		{"nothing", "", sound + "\r\nhi", "", "", 200},
		{"robots.txt", robots, sound + "\r\nhi", "robots.txt: ai-train=no search=yes", "", 200},
		{"header", "", sound + signals + "\r\nhi", "header: search=y tdm-reservation=1 x-robots-tag=noai", "", 200},
		{"both", robots, sound + "X-Robots-Tag: none\r\n\r\nhi", "robots.txt: ai-train=no search=yes; header: x-robots-tag=none", "", 200},
		{"a price", "", "HTTP/1.1 402 Payment Required\r\nConnection: close\r\ncrawler-price: USD 0.01\r\n\r\nhi", "", "USD 0.01", 402},
		{"a secret", "", sound + "TDM-Policy: https://u:p@a.example/?token=s3cr3t\r\n\r\nhi", "header: tdm-policy=https://a.example/?token=***", "", 200},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed(row.robots) })
			authority := r.rawOrigin(func(conn net.Conn) { io.WriteString(conn, row.answer) })
			resp, body := r.get(r.client(true), "http://"+authority+"/x")
			if resp.StatusCode != row.status || string(body) != "hi" || resp.Header.Get("Crawler-Price") != row.price {
				t.Errorf("%s %v %s", resp.Status, resp.Header, body)
			}
			rec := r.last(1)
			if rec.Usage != row.usage || rec.CrawlerPrice != row.price || rec.Status != row.status || rec.Decision != policy.Allow {
				t.Errorf("record: usage %q, price %q, %d %s", rec.Usage, rec.CrawlerPrice, rec.Status, rec.Decision)
			}
		})
	}
}

// A request for a purpose that robots.txt does not permit is refused before anything is sent, with the line.
func TestUsageIsEnforced(t *testing.T) {
	for _, way := range ways {
		for accept, want := range map[string]string{
			"text/html":        "does not permit this use",
			"text/html, */*":   "/page/1 -A Go-http-client --purpose train-ai</code>",
			"application/json": `"rule":"line 2: Content-Signal: ai-train=no"`,
			"*/*":              "reason:  usage-preference",
		} {
			t.Run(fmt.Sprint(way.name, " ", accept), func(t *testing.T) {
				r := newRig(t, func(o *Options) {
					o.Snapshots, o.Policy = fixed("User-agent: *\nContent-Signal: ai-train=no\n"), mustPolicy(t, policy.Options{Usage: policy.UsageEnforce})
					o.Clients = []Client{{
						Client:   policy.Client{Name: "lab", Purpose: policy.PurposeTrainAI},
						Prefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
					}}
				})
				req, err := http.NewRequest("GET", r.url(way.scheme, "/page/1"), nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Accept", accept)
				resp, err := r.client(way.http1).Do(req)
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if resp.StatusCode != 403 || resp.Header.Get("Robotsproxy-Reason") != "usage-preference" ||
					resp.Header.Get("Robotsproxy-Rule") != "line 2: Content-Signal: ai-train=no" || !strings.Contains(string(body), want) {
					t.Errorf("%s %v %s", resp.Status, resp.Header, body)
				}
				rec := r.last(1)
				if rec.Decision != policy.Deny || rec.Reason != policy.ReasonUsage || rec.RuleLine != 2 || rec.Purpose != "train-ai" ||
					rec.Rule != "Content-Signal: ai-train=no" || rec.Usage != "robots.txt: ai-train=no" || len(r.site.Requests()) > 0 {
					t.Errorf("record: %+v", rec)
				}
			})
		}
	}
}

// enforcing returns a rig that enforces preferences for one client with a purpose.
func enforcing(t *testing.T, client policy.Client, o policy.Options) *rig {
	o.Usage = policy.UsageEnforce
	return newRig(t, func(all *Options) {
		all.Snapshots, all.Policy = fixed("User-agent: *\nAllow: /allowed\n"), mustPolicy(t, o)
		all.Clients = []Client{{Client: client, Prefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}}
	})
}

// Content is withheld if only the header of its response does not permit the purpose of the client. The origin does not
// send the rest, and the next request is served.
func TestHeaderIsEnforced(t *testing.T) {
	for _, way := range ways {
		for accept, want := range map[string]string{
			"text/html":        "The response has X-Robots-Tag: noai, which does not permit the purpose of this client, train-ai. Its body is withheld.",
			"application/json": `"rule":"header X-Robots-Tag: noai"`,
			"*/*":              "rule:    header X-Robots-Tag: noai",
		} {
			t.Run(fmt.Sprint(way.name, " ", accept), func(t *testing.T) {
				r := enforcing(t, policy.Client{Name: "lab", Purpose: policy.PurposeTrainAI}, policy.Options{})
				stopped := make(chan struct{})
				r.site.SetPage("a.example", "/allowed", func(w http.ResponseWriter, req *http.Request) {
					defer close(stopped)
					w.Header().Set("X-Robots-Tag", "noai")
					robotstest.Endless(w, req)
				})
				client := r.client(way.http1)
				req, err := http.NewRequest("GET", r.url(way.scheme, "/allowed"), nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Accept", accept)
				resp, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if resp.StatusCode != 403 || resp.Header.Get("Robotsproxy-Reason") != "usage-preference" ||
					resp.Header.Get("Robotsproxy-Rule") != "header X-Robots-Tag: noai" || !strings.Contains(string(body), want) ||
					!strings.Contains(resp.Header.Get("Proxy-Status"), "error=http_request_denied") {
					t.Errorf("%s %v %s", resp.Status, resp.Header, body)
				}
				rec := r.last(1)
				if rec.Decision != policy.Deny || rec.Reason != policy.ReasonUsage || rec.RuleLine != 0 || rec.GroupLine != 0 || rec.Status != 403 ||
					rec.Rule != "header X-Robots-Tag: noai" || rec.Usage != "header: x-robots-tag=noai" || rec.SentAt.IsZero() || rec.Bytes != int64(len(body)) {
					t.Errorf("record: %+v", rec)
				}
				<-stopped
				if resp, _ := r.get(client, r.url(way.scheme, "/page/1")); resp.StatusCode != 200 {
					t.Errorf("the next request: %s", resp.Status)
				}
			})
		}
	}
}

// What the header of a response decides, by its kind, the purpose, the mode and the exemptions.
func TestHeaderDecides(t *testing.T) {
	const noai = "X-Robots-Tag: noai"
	report, off := policy.Report, policy.Off
	train := policy.Client{Name: "lab", Purpose: policy.PurposeTrainAI}
	in := func(mode *policy.Mode) policy.Client {
		client := train
		client.Mode = mode
		return client
	}
	for _, row := range []struct {
		name           string
		client         policy.Client
		method, status string
		field, want    string // status, decision, reason and rule
	}{
		{"content", train, "GET", "200 OK", noai, "403 deny usage-preference header X-Robots-Tag: noai"},
		{"a part", train, "GET", "206 Partial Content", noai, "403 deny usage-preference header X-Robots-Tag: noai"},
		{"of a POST", train, "POST", "201 Created", noai, "403 deny usage-preference header X-Robots-Tag: noai"},
		{"HEAD", train, "HEAD", "200 OK", noai, "200 allow  "},
		{"no content", train, "GET", "204 No Content", noai, "204 allow  "},
		{"a redirect", train, "GET", "302 Found\r\nLocation: /y", noai, "302 allow  "},
		{"not modified", train, "GET", "304 Not Modified", noai, "304 allow  "},
		{"an error", train, "GET", "404 Not Found", noai, "404 allow  "},
		{"a price", train, "GET", "402 Payment Required\r\nCrawler-Price: USD 1", noai, "402 allow  "},
		{"no purpose", policy.Client{Name: "lab"}, "GET", "200 OK", noai, "200 allow  "},
		{"another purpose", policy.Client{Name: "lab", Purpose: policy.PurposeSearch}, "GET", "200 OK", noai, "200 allow  "},
		{"mode report", in(&report), "GET", "200 OK", noai, "200 would_deny report header X-Robots-Tag: noai"},
		{"mode off", in(&off), "GET", "200 OK", noai, "200 allow off "},
		{"an exemption", policy.Client{Name: "licensed", Purpose: policy.PurposeTrainAI}, "GET", "200 OK", noai, "200 exempt exemption header X-Robots-Tag: noai"},
		{"Content-Usage", train, "GET", "200 OK", "Content-Usage: search=y, train-ai=n", "403 deny usage-preference header Content-Usage: train-ai=n"},
		{"Content-Signal", train, "GET", "200 OK", "Content-Signal: ai-train=no", "403 deny usage-preference header Content-Signal: ai-train=no"},
		{"TDMRep", train, "GET", "200 OK", "TDM-Reservation: 1", "403 deny usage-preference header TDM-Reservation: 1"},
		{"another crawler", train, "GET", "200 OK", "X-Robots-Tag: otherbot: noai", "200 allow  "},
		{"this crawler", train, "GET", "200 OK", "X-Robots-Tag: NewsBot: noai", "403 deny usage-preference header X-Robots-Tag: newsbot:noai"},
		{"permitted", train, "GET", "200 OK", "Content-Usage: train-ai=y", "200 allow  "},
		{"many tags", train, "GET", "200 OK", "X-Robots-Tag: " + manyTags() + "noai", "403 deny usage-preference header X-Robots-Tag: newsbot:noai"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := enforcing(t, row.client, policy.Options{Exemptions: []policy.Exemption{
				{Host: "*", Client: "licensed", Effect: policy.EffectAllow, Reason: "licensed", Owner: "legal"},
			}})
			authority := r.rawOrigin(func(conn net.Conn) {
				io.WriteString(conn, "HTTP/1.1 "+row.status+"\r\nConnection: close\r\nContent-Length: 0\r\n"+row.field+"\r\n\r\n")
			})
			req, err := http.NewRequest(row.method, "http://"+authority+"/x", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("User-Agent", "NewsBot/1.0")
			resp, err := r.client(true).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			rec := r.last(1)
			if got := fmt.Sprint(resp.StatusCode, " ", rec.Decision, " ", rec.Reason, " ", rec.Rule); got != row.want || rec.Usage == "" || rec.Status != resp.StatusCode {
				t.Errorf("got  %s\nwant %s\n%+v", got, row.want, rec)
			}
		})
	}
}

// manyTags returns tags for other crawlers, of more bytes than a record has.
func manyTags() string {
	var b strings.Builder
	for i := range 100 {
		fmt.Fprintf(&b, "b%02d: noai, ", i)
	}
	return b.String() + "newsbot: "
}

// The refusal reaches a client that still sends its request, and the origin gets no more of it.
func TestHeaderOfAnEarlyAnswerIsEnforced(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			r := enforcing(t, policy.Client{Name: "lab", Purpose: policy.PurposeTrainAI}, policy.Options{})
			r.site.SetPage("a.example", "/early", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Robots-Tag", "noai")
				w.WriteHeader(http.StatusOK)
				w.(http.Flusher).Flush()
			})
			pipe, upload := io.Pipe()
			defer upload.Close()
			go func() {
				for {
					if _, err := upload.Write(make([]byte, 1<<10)); err != nil {
						return
					}
				}
			}()
			resp, err := r.client(way.http1).Post(r.url(way.scheme, "/early"), "text/plain", pipe)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			rec := r.last(1)
			if resp.StatusCode != 403 || rec.Reason != policy.ReasonUsage || rec.Rule != "header X-Robots-Tag: noai" {
				t.Errorf("%s: %+v", resp.Status, rec)
			}
		})
	}
}
