package robots_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// logbook is an Admit that writes down what it is asked and told.
type logbook struct {
	refuse func(h fetch.Hop) error // may be nil
	begin  func(n int) error       // the n-th Begin; may be nil

	mu    sync.Mutex
	lines []string
	begun int
}

func (l *logbook) write(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *logbook) admit(_ context.Context, h fetch.Hop) (fetch.Visit, error) {
	if l.refuse != nil {
		if err := l.refuse(h); err != nil {
			l.write("refused %s", h.URL())
			return nil, err
		}
	}
	return &logged{l, h}, nil
}

type logged struct {
	*logbook
	hop fetch.Hop
}

func (v *logged) Begin(context.Context, http.Header) error {
	v.mu.Lock()
	v.begun++
	n := v.begun
	v.mu.Unlock()
	if v.begin != nil {
		if err := v.begin(n); err != nil {
			v.write("begin: %v", err)
			return err
		}
	}
	v.write("begin %s for %s of %s as %s", v.hop.URL(), v.hop.For, v.hop.Asker.Name, v.hop.UserAgent)
	return nil
}

func (v *logged) End(o fetch.Outcome) {
	status := 0
	if o.Response != nil {
		status = o.Response.StatusCode
	}
	v.write("end %d, %d bytes, address %t, header %t, %v", status, o.Bytes, o.Addr != nil, !o.Header.IsZero(), o.Err)
}

// TestVisits has each request of a fetch begun and ended, whatever came of it.
func TestVisits(t *testing.T) {
	site := robotstest.New(t)
	site.SetRobots("a.example", robotstest.Robots{Redirect: "https://www.a.example/robots.txt"})
	site.SetRobots("www.a.example", robotstest.Robots{Body: file})
	site.SetRobots("lost.example", robotstest.Robots{Redirect: "ftp://b.example"})
	site.SetRobots("cut.example", robotstest.Robots{Handler: robotstest.Truncate})
	for _, row := range []struct {
		from string
		want []string
	}{
		{"http://a.example", []string{
			"begin http://a.example/robots.txt for http://a.example of news as NewsBot robotsproxy/test",
			"end 301, 0 bytes, address true, header true, <nil>",
			"begin https://www.a.example/robots.txt for http://a.example of news as NewsBot robotsproxy/test",
			fmt.Sprintf("end 200, %d bytes, address true, header true, <nil>", len(file)),
		}},
		{"http://lost.example", []string{
			"begin http://lost.example/robots.txt for http://lost.example of news as NewsBot robotsproxy/test",
			"end 301, 0 bytes, address true, header true, <nil>",
		}},
		{"http://cut.example", []string{
			"begin http://cut.example/robots.txt for http://cut.example of news as NewsBot robotsproxy/test",
			"end 200, 18 bytes, address true, header true, unexpected EOF",
		}},
	} {
		var l logbook
		f := newFetcher(t, site, func(o *fetch.Options) { o.Admit = l.admit })
		if _, err := f.Fetch(t.Context(), fetch.Request{Origin: mustOrigin(t, row.from), Asker: robots.Asker{Client: "x", Name: "news", Token: "NewsBot"}}); err != nil {
			t.Errorf("Fetch(%s): %v", row.from, err)
		}
		if diff := cmp.Diff(row.want, l.lines); diff != "" {
			t.Errorf("Fetch(%s): visits (-want +got):\n%s", row.from, diff)
		}
	}
}

// TestVisitThatMayNotBegin has the origin see nothing, and nothing known of its file.
func TestVisitThatMayNotBegin(t *testing.T) {
	site := robotstest.New(t)
	l := logbook{begin: func(int) error {
		return &fetch.LaterError{At: time.Now().Add(20 * time.Second), Err: errors.New("the disk is full")}
	}}
	f := newFetcher(t, site, func(o *fetch.Options) { o.Admit = l.admit })
	c := newCache(t, robots.CacheOptions{Fetch: f.Fetch})
	for range 3 {
		snap, err := c.Snapshot(t.Context(), mustOrigin(t, "http://a.example"), robots.Asker{})
		var later *fetch.LaterError
		if snap != nil || !errors.As(err, &later) || time.Until(later.At) < 10*time.Second {
			t.Errorf("Snapshot = %v, %v, want what Begin returned", snap, err)
		}
	}
	if got := len(site.Requests()); got != 0 || l.begun != 1 {
		t.Errorf("the origin saw %d requests of %d that were tried; want 0 of 1, since it was said when to come back", got, l.begun)
	}
}

// TestVisitSentAgain has a kept connection break under a request, which net/http then sends again: two requests.
func TestVisitSentAgain(t *testing.T) {
	const answered = "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nUser-agent: *"
	for _, row := range []struct {
		name  string
		begin func(n int) error
		want  []string
		sent  int32
	}{
		{"it begins anew", nil, []string{"begin", "end 200", "begin", "end 0", "begin", "end 200"}, 3},
		{"it may not", func(n int) error {
			if n < 3 {
				return nil
			}
			return &fetch.LaterError{Err: errors.New("no turn")}
		}, []string{"begin", "end 200", "begin", "end 0", "begin:"}, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			var conns, sent atomic.Int32
			at := serveRaw(t, func(conn *net.TCPConn) {
				first := conns.Add(1) == 1
				for n := 0; ; n++ {
					if !readsHead(conn) {
						return
					}
					sent.Add(1)
					if first && n == 1 {
						return
					}
					fmt.Fprint(conn, answered)
				}
			})
			l := logbook{begin: row.begin}
			transport := &http.Transport{}
			t.Cleanup(transport.CloseIdleConnections)
			f := newFetcherOver(t, transport, func(o *fetch.Options) { o.Admit = l.admit })
			r := fetch.Request{Origin: mustOrigin(t, "http://"+at)}
			if _, err := f.Fetch(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			_, err := f.Fetch(t.Context(), r)
			if refused := errors.As(err, new(*fetch.LaterError)); refused != (row.begin != nil) {
				t.Errorf("Fetch: %v", err)
			}
			var got []string
			for _, line := range l.lines {
				words := strings.Fields(strings.ReplaceAll(line, ",", " "))
				if words[0] == "end" {
					words[0] += " " + words[1]
				}
				got = append(got, words[0])
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("visits (-want +got):\n%s\n%s", diff, strings.Join(l.lines, "\n"))
			}
			if sent.Load() != row.sent {
				t.Errorf("the origin saw %d requests, want %d", sent.Load(), row.sent)
			}
		})
	}
}

// readsHead reads the header of a request, and reports whether there was one.
func readsHead(conn net.Conn) bool {
	var head []byte
	for octets := make([]byte, 4096); !strings.Contains(string(head), "\r\n\r\n"); {
		n, err := conn.Read(octets)
		if err != nil {
			return false
		}
		head = append(head, octets[:n]...)
	}
	return true
}
