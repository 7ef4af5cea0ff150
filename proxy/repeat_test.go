package proxy

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/sign"
)

// A flaky origin answers the first request of each connection, and closes the connection under the second, unanswered,
// which is what net/http repeats by itself. It notes when requests came.
type flaky struct {
	listener net.Listener
	mu       sync.Mutex
	came     []time.Time
}

func newFlaky(t *testing.T, serve func(*flaky, net.Conn)) *flaky {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &flaky{listener: l}
	var all sync.WaitGroup
	all.Go(func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			all.Go(func() {
				defer conn.Close()
				serve(f, conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return f
}

func (f *flaky) note() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.came = append(f.came, time.Now())
}

func (f *flaky) times() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]time.Time(nil), f.came...)
}

// serveOnce speaks HTTP/1.1.
func serveOnce(f *flaky, conn net.Conn) {
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	r := bufio.NewReader(conn)
	for i := 0; ; i++ {
		if _, err := http.ReadRequest(r); err != nil {
			return
		}
		f.note()
		if i == 1 {
			return
		}
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	}
}

// refuseOnce speaks HTTP/2, and refuses the first stream of its origin (RFC 9113 section 8.7).
func refuseOnce(f *flaky, conn net.Conn) {
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(conn, preface); err != nil {
		return
	}
	framer := http2.NewFramer(conn, conn)
	framer.WriteSettings()
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		headers, ok := frame.(*http2.HeadersFrame)
		if !ok {
			continue
		}
		f.note()
		if len(f.times()) == 1 {
			framer.WriteRSTStream(headers.StreamID, http2.ErrCodeRefusedStream)
			continue
		}
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: headers.StreamID, BlockFragment: []byte{0x88}, EndHeaders: true, EndStream: true}) // :status 200
	}
}

const repeatDelay = 1500 * time.Millisecond // of which a busy machine may take half

// TestRepeatsArePaced has net/http send a request again by itself: the origin sees it once more, and not before the
// Delay has passed.
func TestRepeatsArePaced(t *testing.T) {
	f := newFlaky(t, serveOnce)
	r := newRig(t, func(o *Options) { o.Snapshots = fixed("User-agent: *\nCrawl-delay: 1.5\n") })
	for i := range 2 {
		if resp, body := r.get(r.client(true), "http://"+at(f, "a.example")+"/page"); resp.StatusCode != 200 {
			t.Fatalf("request %d: status %d\n%s", i, resp.StatusCode, body)
		}
	}
	came := f.times()
	if len(came) != 3 {
		t.Fatalf("the origin saw %d requests, want 3: two, and one again", len(came))
	}
	if gap := came[2].Sub(came[1]); gap < repeatDelay*3/4 {
		t.Errorf("the repetition came %v after the request, want %v", gap, repeatDelay)
	}
	r.checkRepeated(came)
	for _, rec := range r.records.all()[1:] {
		if time.Duration(rec.Waited) < repeatDelay*3/4 || time.Duration(rec.Gap) < repeatDelay {
			t.Errorf("the record of one sending: %+v, want its own wait and gap", rec)
		}
	}
}

// checkRepeated has the last two of the records be those of two sendings of one request, at the times when the origin
// saw them, of which the first had no answer.
func (r *rig) checkRepeated(came []time.Time) {
	r.t.Helper()
	r.last(len(came))
	all := r.records.all()
	if len(all) != len(came) {
		r.t.Fatalf("%d records of %d requests that the origin saw: %+v", len(all), len(came), all)
	}
	first, second := all[len(all)-2], all[len(all)-1]
	if first.Decision != policy.Allow || first.Reason != policy.ReasonUpstream || first.Status != 0 || first.Error == "" || first.EndedAt.Before(first.SentAt) {
		r.t.Errorf("the record of the first sending: %+v, want that it was allowed and failed", first)
	}
	if second.Decision != policy.Allow || second.Status != 200 || second.Error != "" || second.ID == first.ID || second.Time.Before(first.EndedAt) {
		r.t.Errorf("the record of the second sending: %+v, want its answer", second)
	}
	if second.Path != first.Path || second.Host != first.Host || second.Client != first.Client || second.RobotsSHA256 != first.RobotsSHA256 {
		r.t.Errorf("the records differ in what was asked: %+v and %+v", first, second)
	}
	for i, rec := range []audit.Record{first, second} {
		if at := came[len(came)-2+i]; rec.SentAt.IsZero() || rec.SentAt.After(at) || rec.EndedAt.Before(at) || rec.UpstreamAddr == "" {
			r.t.Errorf("record %d: sent at %v, ended at %v, and the origin saw it at %v: %+v", i, rec.SentAt, rec.EndedAt, at, rec)
		}
	}
}

// What is sent twice has two records in the modes that pace nothing as well.
func TestRepeatsAreRecordedInEveryMode(t *testing.T) {
	for _, mode := range []policy.Mode{policy.Enforce, policy.Report, policy.Off} {
		t.Run(mode.String(), func(t *testing.T) {
			f := newFlaky(t, serveOnce)
			var r *rig
			r = newRig(t, func(o *Options) {
				o.Snapshots, o.Policy, o.ResponseFields = fixed(""), r.newPolicy(policy.Options{Mode: mode}), true
			})
			var resp *http.Response
			for range 2 {
				if resp, _ = r.get(r.client(true), "http://"+at(f, "a.example")+"/page"); resp.StatusCode != 200 {
					t.Fatalf("status %d", resp.StatusCode)
				}
			}
			r.checkRepeated(f.times())
			if rec := r.last(3); rec.Mode != mode.String() || resp.Header.Get("Robotsproxy-Request-Id") != rec.ID.String() {
				t.Errorf("the client was told %v, record %+v", resp.Header, rec)
			}
		})
	}
}

// The client is told of both waits, since it subtracts them.
func TestRepeatsTellTheWholeWait(t *testing.T) {
	f := newFlaky(t, serveOnce)
	r := newRig(t, func(o *Options) { o.Snapshots, o.ResponseFields = fixed("User-agent: *\nCrawl-delay: 0.5\n"), true })
	var resp *http.Response
	for range 2 {
		resp, _ = r.get(r.client(true), "http://"+at(f, "a.example")+"/page")
	}
	r.last(3)
	all := r.records.all()
	want := time.Duration(all[1].Waited + all[2].Waited).Seconds()
	if got := resp.Header.Get("Robotsproxy-Waited"); got != fmt.Sprintf("%.3f", want) {
		t.Errorf("the client was told of a wait of %s s, want %.3f", got, want)
	}
}

// What is sent again by itself is recorded before, or not sent; it is judged again; and it does not go to a host that
// was stopped meanwhile.
func TestRepeatsThatMayNotBeSent(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*rig)
		mode   policy.Mode
		status int
		reason policy.Reason
	}{
		"not recorded":         {func(r *rig) { r.records.refuseFrom(true) }, policy.Enforce, 503, policy.ReasonAuditUnavailable},
		"not recorded, report": {func(r *rig) { r.records.refuseFrom(true) }, policy.Report, 503, policy.ReasonAuditUnavailable},
		"stopped":              {func(r *rig) { r.stop(policy.Options{Mode: policy.Enforce}, time.Time{}) }, policy.Enforce, 503, policy.ReasonStopped},
		"stopped, report":      {func(r *rig) { r.stop(policy.Options{Mode: policy.Report}, time.Time{}) }, policy.Report, 503, policy.ReasonStopped},
		"stopped, off":         {func(r *rig) { r.stop(policy.Options{Mode: policy.Off}, time.Time{}) }, policy.Off, 503, policy.ReasonStopped},
	} {
		t.Run(name, func(t *testing.T) {
			var r *rig
			f := newFlaky(t, func(f *flaky, conn net.Conn) {
				serveOnce(f, conn)
				row.change(r)
			})
			r = newRig(t, func(o *Options) {
				p, err := policy.New(policy.Options{Mode: row.mode})
				if err != nil {
					t.Fatal(err)
				}
				o.Snapshots, o.Policy = fixed(""), p
			})
			url := "http://" + at(f, "a.example") + "/page"
			r.get(r.client(true), url)
			resp, _ := r.get(r.client(true), url)
			if reason := resp.Header.Get("Robotsproxy-Reason"); resp.StatusCode != row.status || reason != string(row.reason) {
				t.Errorf("status %d, %s; want %d, %s", resp.StatusCode, reason, row.status, row.reason)
			}
			if came := f.times(); len(came) != 2 {
				t.Errorf("the origin saw %d requests, want 2", len(came))
			}
			if rec := r.last(2); rec.Decision != policy.Allow || rec.SentAt.IsZero() || rec.Error == "" {
				t.Errorf("the record of the first sending: %+v", rec)
			}
			if row.reason == policy.ReasonAuditUnavailable {
				return
			}
			if rec := r.last(3); rec.Reason != row.reason || !rec.SentAt.IsZero() {
				t.Errorf("the record of what was not sent: %+v", rec)
			}
			if v, _ := r.limiter.Peek("a.example"); v.InFlight != 0 {
				t.Errorf("%d places are not given back", v.InFlight)
			}
		})
	}
}

// A repetition's wait is not counted towards the time that a request may take, as its first one is not.
func TestRepeatsLeaveTheWaitOut(t *testing.T) {
	f := newFlaky(t, serveOnce)
	r := newRig(t, func(o *Options) {
		o.Snapshots, o.Limits.RequestTimeout = fixed("User-agent: *\nCrawl-delay: 1.5\n"), time.Second
	})
	for i := range 2 {
		if resp, body := r.get(r.client(true), "http://"+at(f, "a.example")+"/page"); resp.StatusCode != 200 {
			t.Fatalf("request %d: status %d\n%s", i, resp.StatusCode, body)
		}
	}
	if came := f.times(); len(came) != 3 {
		t.Errorf("the origin saw %d requests, want 3: two, and one again", len(came))
	}
}

// TestRepeatsThatMayNotWait has the host slowed down while a request is under way: there is no place for the repetition
// within MaxWait, so it is not sent, and the client is told when to come back.
func TestRepeatsThatMayNotWait(t *testing.T) {
	var r *rig
	f := newFlaky(t, func(f *flaky, conn net.Conn) {
		serveOnce(f, conn)
		if err := r.limiter.SetFloor("a.example", time.Hour); err != nil {
			t.Errorf("SetFloor: %v", err)
		}
	})
	r = newRig(t, func(o *Options) { o.Snapshots, o.MaxWait = fixed(""), time.Second })
	url := "http://" + at(f, "a.example") + "/page"
	r.get(r.client(true), url)
	resp, _ := r.get(r.client(true), url)
	if resp.StatusCode != 429 || resp.Header.Get("Robotsproxy-Reason") != "pace" || resp.Header.Get("Retry-After") != "3600" {
		t.Errorf("status %d, fields %v; want 429, pace, and an hour", resp.StatusCode, resp.Header)
	}
	if came := f.times(); len(came) != 2 {
		t.Errorf("the origin saw %d requests, want 2: the repetition has no place", len(came))
	}
	if rec := r.last(2); rec.Decision != policy.Allow || rec.Reason != policy.ReasonUpstream || rec.SentAt.IsZero() {
		t.Errorf("the record of the first sending: %+v", rec)
	}
	if rec := r.last(3); rec.Decision != policy.Throttle || rec.Reason != policy.ReasonPace || !rec.SentAt.IsZero() {
		t.Errorf("the record of the second sending: %+v; want a throttle of what was not sent", rec)
	}
}

// TestRepeatsOverHTTP2ArePaced has an origin refuse a stream, which net/http's HTTP/2 repeats by itself.
func TestRepeatsOverHTTP2ArePaced(t *testing.T) {
	certified := httptest.NewTLSServer(nil)
	defer certified.Close()
	config := &tls.Config{Certificates: certified.TLS.Certificates, NextProtos: []string{"h2"}}
	f := newFlaky(t, func(f *flaky, conn net.Conn) { refuseOnce(f, tls.Server(conn, config)) })
	r := newRig(t, func(o *Options) {
		o.Snapshots, o.Signer = fixed("User-agent: *\nCrawl-delay: 1.5\n"), newSigner(t)
		o.Transport = &http.Transport{DialContext: o.Guard.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, IdleConnTimeout: time.Second}
		t.Cleanup(o.Transport.(*http.Transport).CloseIdleConnections)
	})
	if resp, body := r.get(r.client(true), "https://"+at(f, "a.example")+"/page"); resp.StatusCode != 200 {
		t.Fatalf("status %d\n%s", resp.StatusCode, body)
	}
	came := f.times()
	if len(came) != 2 {
		t.Fatalf("the origin saw %d requests, want 2: one, and once again", len(came))
	}
	if gap := came[1].Sub(came[0]); gap < repeatDelay*3/4 {
		t.Errorf("the repetition came %v after the request, want %v", gap, repeatDelay)
	}
	r.checkRepeated(came)
	if all := r.records.all(); all[0].SignatureNonce == "" || all[0].SignatureNonce == all[1].SignatureNonce {
		t.Errorf("the nonces of the two sendings are %q and %q, want two", all[0].SignatureNonce, all[1].SignatureNonce)
	}
}

// at returns the authority of the flaky origin under a name that the rig resolves.
func at(f *flaky, host string) string {
	_, port, _ := net.SplitHostPort(f.listener.Addr().String())
	return host + ":" + port
}

// What is sent again has a signature of its own: a site may refuse a nonce that it has seen, and the Delay before the
// second sending may be longer than a signature lasts.
func TestRepeatsAreSignedAnew(t *testing.T) {
	inputs := make(chan string, 3)
	serve := func(_ *flaky, conn net.Conn) {
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		r := bufio.NewReader(conn)
		for i := range 2 {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			inputs <- req.Header.Get("Signature-Input")
			if i == 0 {
				io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			}
		}
	}
	f := newFlaky(t, serve)
	r := newRig(t, func(o *Options) { o.Snapshots, o.Signer = fixed(""), newSigner(t) })
	for range 2 {
		if resp, body := r.get(r.client(true), "http://"+at(f, "a.example")+"/page"); resp.StatusCode != 200 {
			t.Fatalf("status %d\n%s", resp.StatusCode, body)
		}
	}
	r.last(3)
	seen := make(map[string]bool)
	for i, rec := range r.records.all() {
		input := <-inputs
		if !strings.Contains(input, `;nonce="`+rec.SignatureNonce+`"`) || rec.SignatureNonce == "" || seen[rec.SignatureNonce] {
			t.Errorf("sending %d has Signature-Input %s and is recorded with the nonce %q, want one of its own", i, input, rec.SignatureNonce)
		}
		seen[rec.SignatureNonce] = true
	}
}

func newSigner(t *testing.T) *sign.Signer {
	s, err := sign.New(sign.Options{Agent: "https://crawler.example.org", Keys: sign.NewKeys(time.Now())})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
