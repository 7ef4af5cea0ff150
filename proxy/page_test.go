package proxy

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/policy"
)

const pageHead = `<!doctype html><head><meta name="robots" content="noai"><meta name="NewsBot" content="noindex"></head><body>`

// pages serves an HTML page with a header field.
func pages(body []byte, field, value string, status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set(field, value)
		w.WriteHeader(status)
		_, _ = w.Write(body)
	}
}

// The preferences in a page are recorded with usage_html, in the codings that are read, and the page passes unchanged
// even if they do not permit the purpose of the client.
func TestPagesAreRead(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(z, pageHead+strings.Repeat("text ", 40_000))
	_ = z.Close()
	const want = "html: robots=newsbot:noindex,noai"
	for _, way := range ways {
		for _, row := range []struct {
			name, path   string
			serve        http.HandlerFunc
			on           bool
			method, want string
		}{
			{"off", "/a", pages([]byte(pageHead), "X-A", "a", 200), false, "GET", ""},
			{"page", "/a", pages([]byte(pageHead), "X-A", "a", 200), true, "GET", want},
			{"page without an end", "/a", pages([]byte(pageHead+strings.Repeat("text ", 100_000)), "Cache-Control", "no-store", 200), true, "GET", want},
			{"gzip", "/a", pages(zipped.Bytes(), "Content-Encoding", "gzip", 200), true, "GET", want},
			{"another coding", "/a", pages([]byte(pageHead), "Content-Encoding", "zstd", 200), true, "GET", ""},
			{"with a header", "/a", pages([]byte(pageHead), "TDM-Reservation", "0", 200), true, "GET", "header: tdm-reservation=0; " + want},
			{"text", "/a", pages([]byte(pageHead), "Content-Type", "text/plain", 200), true, "GET", ""},
			{"a part", "/a", pages([]byte(pageHead), "X-A", "a", 206), true, "GET", ""},
			{"an error", "/a", pages([]byte(pageHead), "X-A", "a", 404), true, "GET", ""},
			{"HEAD", "/a", pages(nil, "X-A", "a", 200), true, "HEAD", ""},
		} {
			t.Run(fmt.Sprint(way.name, " ", row.name), func(t *testing.T) {
				r := enforcing(t, policy.Client{Name: "lab", Purpose: policy.PurposeTrainAI}, policy.Options{})
				r.change(func(o *Options) { o.UsageHTML = row.on })
				var sent bytes.Buffer
				r.site.SetPage("a.example", row.path, func(w http.ResponseWriter, req *http.Request) {
					row.serve(&copied{w, &sent}, req)
				})
				req, err := http.NewRequest(row.method, r.url(way.scheme, row.path), nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("User-Agent", "NewsBot/1.0")
				resp, err := r.client(way.http1).Do(req)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				rec := r.last(1)
				if err != nil || !bytes.Equal(body, sent.Bytes()) {
					t.Errorf("%v: %d bytes differ from the %d that were sent", err, len(body), sent.Len())
				}
				if rec.Usage != row.want || rec.Decision != policy.Allow || rec.Bytes != int64(len(body)) {
					t.Errorf("usage %q, want %q: %+v", rec.Usage, row.want, rec)
				}
			})
		}
	}
}

// copied keeps the body that it writes.
type copied struct {
	http.ResponseWriter
	body *bytes.Buffer
}

func (c *copied) Write(p []byte) (int, error) {
	c.body.Write(p)
	return c.ResponseWriter.Write(p)
}

// A page that is read passes as it comes: the client has the head before the origin sends the rest. Its preferences are
// recorded although the client leaves then.
func TestPagesPassAsTheyCome(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Snapshots, o.UsageHTML = fixed(""), true })
			r.site.SetPage("a.example", "/slow", func(w http.ResponseWriter, req *http.Request) {
				w.Header().Set("Content-Type", "text/html")
				_, _ = io.WriteString(w, pageHead)
				w.(http.Flusher).Flush()
				<-req.Context().Done()
			})
			resp, err := r.client(way.http1).Get(r.url(way.scheme, "/slow"))
			if err != nil {
				t.Fatal(err)
			}
			head := make([]byte, len(pageHead))
			if _, err := io.ReadFull(resp.Body, head); err != nil || string(head) != pageHead {
				t.Errorf("%q, %v", head, err)
			}
			resp.Body.Close()
			if rec := r.last(1); rec.Usage != "html: robots=noai" {
				t.Errorf("usage %q: %+v", rec.Usage, rec)
			}
		})
	}
}
