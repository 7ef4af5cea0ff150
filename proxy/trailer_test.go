package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Fields that name another path do not reach the origin, in a header or a trailer, in any spelling that net/http
// accepts.
func TestPathFieldsAreDropped(t *testing.T) {
	names := []string{"X-Original-URL", "x-original-url", "X_Original_URL", "X-Original_Url", "X.Original.URL", "X-Rewrite-URL", "x_rewrite_url", "X!Rewrite~URL"}
	kept := []string{"X-Original-Url-2", "X-Original", "Xoriginalurl"}
	for _, way := range connections {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
			var arrived []http.Header
			r.site.SetPage("a.example", "/up", func(_ http.ResponseWriter, req *http.Request) {
				io.Copy(io.Discard, req.Body)
				arrived = append(arrived, req.Header.Clone(), req.Trailer.Clone())
			})
			conn, target, host := way.open(r)
			request := fmt.Sprintf("POST %s/up HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nTrailer: X-Original-URL, X-Sum\r\n", target, host)
			for _, name := range append(names, kept...) {
				request += name + ": /private/x\r\n"
			}
			request += "\r\n1\r\nx\r\n0\r\nX-Original-URL: /private/x\r\nX-Sum: 1\r\n\r\n"
			io.WriteString(conn, request)
			if all, err := answers(conn); err != nil || len(all) != 1 || all[0].StatusCode != 200 {
				t.Fatalf("answers: %v, %v", all, err)
			}
			for _, h := range arrived {
				for _, name := range names {
					if values := h[http.CanonicalHeaderKey(name)]; values != nil {
						t.Errorf("the origin saw %s: %q", name, values)
					}
				}
			}
			for _, name := range kept {
				if arrived[0].Get(name) == "" {
					t.Errorf("the origin did not see %s in %v", name, arrived[0])
				}
			}
			if arrived[1].Get("X-Sum") != "1" {
				t.Errorf("trailers at the origin: %v", arrived[1])
			}
		})
	}
}

// The trailers of a request reach the origin, except for the proxy's own. (Trailers that belong in a header are refused
// by net/http in HTTP/2; for HTTP/1.1 TestRequestOnTheWire has them.)
func TestTrailersOfRequests(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
			arrived := make(chan http.Header, 1)
			r.site.SetPage("a.example", "/up", func(_ http.ResponseWriter, req *http.Request) {
				io.Copy(io.Discard, req.Body)
				arrived <- req.Trailer
			})
			req, err := http.NewRequest("PUT", r.url(way.scheme, "/up"), io.MultiReader(strings.NewReader("hello")))
			if err != nil {
				t.Fatal(err)
			}
			req.Trailer = http.Header{"Sum": {"1"}, "Robotsproxy-Tag": {"x"}}
			resp, err := r.client(way.http1).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if diff := cmp.Diff(http.Header{"Sum": {"1"}}, <-arrived); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
