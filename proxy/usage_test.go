package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

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
