package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/robotsproxy/robotsproxy/egress"
)

// uploads are how an upload of HTTP/1.1 can come by and go on.
var uploads = []struct {
	name    string
	way     int // of connections
	secure  bool
	origin2 bool
}{
	{"front to HTTP/1.1", 0, false, false},
	{"front to HTTP/2", 0, true, true},
	{"tunnel in clear to HTTP/1.1", 1, false, false},
	{"tunnel with TLS to HTTP/1.1", 2, true, false},
	{"tunnel with TLS to HTTP/2", 2, true, true},
}

// lengths are those of bodies: one that net/http would read to its end, and one that it would not.
var lengths = []int{100_000, 10 << 20}

// sending is one request whose client sends its body piece by piece.
type sending struct {
	conn         net.Conn
	in           *bufio.Reader
	target, host string
	body         []byte // what is to be sent still
	coded        bool   // in chunks
}

// eachUpload runs test for every way, length and framing. The proxy of a way is the same for all, and page is the
// origin.
func eachUpload(t *testing.T, page http.HandlerFunc, test func(*testing.T, *rig, *sending)) {
	for _, way := range uploads {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) {
				o.Snapshots = fixed("")
			})
			if !way.origin2 {
				r.site.HTTP1Only()
			}
			r.site.SetPage("a.example", "/up", page)
			for _, n := range lengths {
				for _, coded := range []bool{false, true} {
					t.Run(fmt.Sprintf("%d octets, chunked %t", n, coded), func(t *testing.T) {
						conn, target, host := connections[way.way].open(r)
						defer conn.Close()
						if way.way == 0 && way.secure {
							host = fmt.Sprintf("a.example:%d", r.site.TLSPort())
							target = "https://" + host
						}
						test(t, r, newSending(conn, target, host, n, coded))
					})
				}
			}
			r.eventually("the end of all", func() bool { return r.server.Active() == 0 })
			if slices.Contains(r.site.Paths("a.example"), "/smuggled") {
				t.Error("a body became a request")
			}
		})
	}
}

// newSending returns a request whose body would be many if it were read as such.
func newSending(conn net.Conn, target, host string, n int, coded bool) *sending {
	smuggled := []byte("GET " + target + "/smuggled HTTP/1.1\r\nHost: " + host + "\r\n\r\n")
	body := bytes.Repeat(smuggled, n/len(smuggled)+1)[:n]
	return &sending{conn: conn, in: bufio.NewReader(conn), target: target, host: host, body: body, coded: coded}
}

func (s *sending) sendHead(fields string) {
	length := fmt.Sprintf("Content-Length: %d\r\n", len(s.body))
	if s.coded {
		length = "Transfer-Encoding: chunked\r\n"
	}
	fmt.Fprintf(s.conn, "POST %s/up HTTP/1.1\r\nHost: %s\r\n%s%s\r\n", s.target, s.host, length, fields)
}

// send sends the next n octets of the body, and its end behind the last.
func (s *sending) send(n int) error {
	for n > 0 {
		piece := s.body[:min(n, 10_000)]
		s.body, n = s.body[len(piece):], n-len(piece)
		if s.coded {
			piece = fmt.Appendf(nil, "%x\r\n%s\r\n", len(piece), piece)
		}
		if s.coded && len(s.body) == 0 {
			piece = append(piece, "0\r\n\r\n"...)
		}
		if _, err := s.conn.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

func (s *sending) sendRest() error { return s.send(len(s.body)) }

// answer reads one answer whole.
func (s *sending) answer(t *testing.T) (*http.Response, string) {
	t.Helper()
	resp, err := http.ReadResponse(s.in, nil)
	if err != nil {
		t.Fatalf("reading the answer: %v", err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("reading the answer's body, of which %q came: %v", body, err)
	}
	return resp, string(body)
}

// next sends another request. Nothing but its answer stands behind the first one, or the connection's end where that
// may be.
func (s *sending) next(t *testing.T, mayEnd bool) {
	t.Helper()
	fmt.Fprintf(s.conn, "GET %s/page/1 HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", s.target, s.host)
	rest, err := io.ReadAll(s.in)
	if len(rest) == 0 && mayEnd && !errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	if resp, malformed := http.ReadResponse(bufio.NewReader(bytes.NewReader(rest)), nil); malformed != nil || resp.StatusCode != 200 {
		t.Errorf("behind the answer came %.100q, %v", rest, err)
	}
}

// manners are in which order a client sends a body and reads the answer that is complete before it.
var manners = []struct {
	name   string
	status int // of an answer to it
	answer func(*testing.T, *sending) (*http.Response, string)
}{
	{"sends all, then reads", 200, func(t *testing.T, s *sending) (*http.Response, string) {
		_ = s.sendRest() // it may find the connection closed, and has its answer still
		return s.answer(t)
	}},
	{"reads while it sends", 413, func(t *testing.T, s *sending) (*http.Response, string) {
		sent := make(chan struct{})
		defer func() { <-sent }()
		go func() {
			defer close(sent)
			_ = s.sendRest()
		}()
		return s.answer(t)
	}},
	{"reads all, then sends", 413, func(t *testing.T, s *sending) (*http.Response, string) {
		_ = s.send(1000)
		defer func() { _ = s.sendRest() }()
		return s.answer(t)
	}},
}

// An origin that answers at once and goes on reading misses nothing, and its client has what is answered before it
// sends the rest.
func TestOriginReadsOnAmidItsAnswer(t *testing.T) {
	arrived := make(chan []byte, 1)
	eachUpload(t, func(w http.ResponseWriter, req *http.Request) {
		control := http.NewResponseController(w)
		control.EnableFullDuplex()
		io.WriteString(w, "begun")
		control.Flush()
		all, err := io.ReadAll(req.Body)
		if err != nil {
			all = nil
		}
		arrived <- all
		io.WriteString(w, ", done")
	}, func(t *testing.T, _ *rig, s *sending) {
		want := s.body
		s.sendHead("")
		s.send(1000)
		resp, err := http.ReadResponse(s.in, nil)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("answer %v, %v", resp, err)
		}
		exactly(t, resp.Body, "begun")
		if err := s.sendRest(); err != nil {
			t.Error(err)
		}
		if got := <-arrived; !bytes.Equal(got, want) {
			t.Errorf("the origin read %d octets, want %d", len(got), len(want))
		}
		exactly(t, resp.Body, ", done")
		io.Copy(io.Discard, resp.Body)
		s.next(t, false)
	})
}

// An origin that answers and wants no more leaves its client with the whole answer, whatever that does first, and with
// a connection that is sound or closed. One of HTTP/2 resets its stream with NO_ERROR.
func TestOriginWantsNoMore(t *testing.T) {
	for _, manner := range manners {
		t.Run(manner.name, func(t *testing.T) {
			t.Parallel()
			eachUpload(t, func(w http.ResponseWriter, _ *http.Request) {
				http.NewResponseController(w).EnableFullDuplex()
				w.WriteHeader(manner.status)
				io.WriteString(w, "done")
			}, func(t *testing.T, _ *rig, s *sending) {
				s.sendHead("")
				if resp, body := manner.answer(t, s); resp.StatusCode != manner.status || body != "done" {
					t.Errorf("answer %s %q", resp.Status, body)
				}
				s.next(t, true)
			})
		})
	}
}

// early is an origin whose answer is complete when it has read a request's head.
type early struct {
	origin2 bool
	status  int
	known   bool            // how long the answer is
	reads   bool            // the request to its end, or else nothing of it
	ends    bool            // the connection behind the answer
	saw     chan []byte     // what it read, nil where that broke off
	done    <-chan struct{} // until when it keeps the connection otherwise
}

func (e early) String() string {
	return fmt.Sprintf("HTTP/2 %t, %d, known %t, reads %t, ends %t", e.origin2, e.status, e.known, e.reads, e.ends)
}

// serve1 speaks HTTP/1.1.
func (e *early) serve1(conn net.Conn) {
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	fmt.Fprintf(conn, "HTTP/1.1 %d Early\r\n", e.status)
	if e.known {
		io.WriteString(conn, "Content-Length: 4\r\n\r\ndone")
	} else {
		io.WriteString(conn, "Transfer-Encoding: chunked\r\n\r\n4\r\ndone\r\n0\r\n\r\n")
	}
	if e.reads {
		all, err := io.ReadAll(req.Body)
		if err != nil {
			all = nil
		}
		e.saw <- all
	}
	if !e.ends {
		<-e.done
	}
}

// serve2 speaks HTTP/2, and resets no stream.
func (e *early) serve2(conn net.Conn) {
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	framer := http2.NewFramer(conn, conn)
	framer.WriteSettings()
	var all []byte
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.HeadersFrame:
			e.answer2(framer, frame.StreamID)
		case *http2.RSTStreamFrame:
			e.saw <- nil
			return
		case *http2.DataFrame:
			all = append(all, frame.Data()...)
			if n := uint32(len(frame.Data())); e.reads && n > 0 {
				framer.WriteWindowUpdate(0, n)
				framer.WriteWindowUpdate(frame.StreamID, n)
			}
			if frame.StreamEnded() {
				e.saw <- all
				return
			}
		}
	}
}

func (e *early) answer2(framer *http2.Framer, stream uint32) {
	var head bytes.Buffer
	encoder := hpack.NewEncoder(&head)
	encoder.WriteField(hpack.HeaderField{Name: ":status", Value: fmt.Sprint(e.status)})
	if e.known {
		encoder.WriteField(hpack.HeaderField{Name: "content-length", Value: "4"})
	}
	framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head.Bytes(), EndHeaders: true})
	framer.WriteData(stream, true, []byte("done"))
}

// open starts e and a proxy, and returns an upload to it.
func (e *early) open(t *testing.T, n int, coded bool) (*rig, *sending) {
	certified := httptest.NewTLSServer(nil)
	t.Cleanup(certified.Close)
	config := &tls.Config{Certificates: certified.TLS.Certificates, NextProtos: []string{"h2"}}
	e.saw, e.done = make(chan []byte, 1), t.Context().Done()
	authority := at(newFlaky(t, func(_ *flaky, conn net.Conn) {
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		if e.origin2 {
			e.serve2(tls.Server(conn, config))
		} else {
			e.serve1(conn)
		}
	}), "a.example")
	r := newRig(t, func(o *Options) {
		o.Snapshots = fixed("")
		o.Transport = egress.NewTransport(egress.TransportOptions{Guard: o.Guard, InsecureHosts: []string{"a.example"}})
	})
	if e.origin2 {
		return r, newSending(tls.Client(r.tunnelTo(authority), &tls.Config{ServerName: "a.example", RootCAs: r.ca}), "", authority, n, coded)
	}
	return r, newSending(r.raw(""), "http://"+authority, authority, n, coded)
}

// Whatever an origin does behind a complete answer, its client has that whole. The origin has all of the body, or sees
// it break off.
func TestAnswerIsCompleteBeforeItsRequest(t *testing.T) {
	for _, e := range []early{
		{status: 200, known: true, reads: true},
		{status: 200, known: true},
		{status: 200, reads: true},
		{status: 200},
		{status: 413, known: true, ends: true},
		{status: 413, ends: true},
		{status: 413, known: true},
		{origin2: true, status: 200, known: true, reads: true},
		{origin2: true, status: 200, reads: true},
		{origin2: true, status: 200},
		{origin2: true, status: 413, known: true, reads: true},
	} {
		for i, manner := range manners {
			coded := i%2 == 0
			t.Run(fmt.Sprintf("%v, %s, chunked %t", e, manner.name, coded), func(t *testing.T) {
				t.Parallel()
				e := e // a connection's own
				r, s := e.open(t, 10<<20, coded)
				want := s.body
				s.sendHead("")
				if resp, body := manner.answer(t, s); resp.StatusCode != e.status || body != "done" {
					t.Errorf("answer %s %q", resp.Status, body)
				}
				if e.reads {
					if got := <-e.saw; got != nil && !bytes.Equal(got, want) {
						t.Errorf("the origin took %d octets for all, and %d were sent", len(got), len(want))
					}
				}
				s.conn.Close()
				r.eventually("the end", func() bool { return r.server.Active() == 0 })
			})
		}
	}
}

// Behind an answer of known length the rest of a body reaches the origin that reads on.
func TestOriginReadsOnBehindItsAnswer(t *testing.T) {
	for _, origin2 := range []bool{false, true} {
		for _, coded := range []bool{false, true} {
			t.Run(fmt.Sprintf("HTTP/2 %t, chunked %t", origin2, coded), func(t *testing.T) {
				var got int
				for range 5 { // a machine that stalls for a second may break an upload off
					e := &early{origin2: origin2, status: 200, known: true, reads: true}
					_, s := e.open(t, 10<<20, coded)
					want := s.body
					s.sendHead("")
					_ = s.send(len(want) - 1000)
					time.Sleep(150 * time.Millisecond) // in which the transport would have let go of the connection
					_ = s.sendRest()
					s.answer(t)
					all := <-e.saw
					if bytes.Equal(all, want) {
						return
					}
					got = len(all)
				}
				t.Errorf("the origin read %d octets of %d", got, 10<<20)
			})
		}
	}
}

// A body that breaks behind its complete answer, or does not go on, ends the connection, with nothing of ours in it.
func TestBrokenRestBehindTheAnswer(t *testing.T) {
	for _, way := range connections {
		for name, rest := range map[string]string{"a chunk without a size": "zz\r\n", "a chunk too long": "1\r\nxyz", "nothing": ""} {
			t.Run(way.name+", "+name, func(t *testing.T) {
				r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
				r.site.SetPage("a.example", "/up", func(w http.ResponseWriter, _ *http.Request) {
					control := http.NewResponseController(w)
					control.EnableFullDuplex()
					io.WriteString(w, "done")
					control.Flush()
				})
				conn, target, host := way.open(r)
				s := newSending(conn, target, host, 1000, true)
				s.sendHead("")
				s.send(500)
				resp, err := http.ReadResponse(s.in, nil)
				if err != nil || resp.StatusCode != 200 {
					t.Fatalf("answer %v, %v", resp, err)
				}
				exactly(t, resp.Body, "done")
				r.last(1) // the answer is complete, of which the client cannot see the end yet
				if rest != "" {
					io.WriteString(conn, rest+"0\r\n\r\nGET "+target+"/smuggled HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
				}
				if more, err := io.ReadAll(resp.Body); err != nil || len(more) > 0 {
					t.Errorf("the answer goes on with %q, %v", more, err)
				}
				if behind, err := io.ReadAll(s.in); err != nil || len(behind) > 0 {
					t.Errorf("behind the answer came %q, %v", behind, err)
				}
				if all := r.records.all(); len(all) != 1 || all[0].Status != 200 || all[0].Error != "" {
					t.Errorf("records: %+v", all)
				}
				if got := fmt.Sprint(r.site.Paths("a.example")); got != "[/up]" {
					t.Errorf("the origin was asked for %v", got)
				}
			})
		}
	}
}

// A body without end is not read for ever when its origin has answered and wants no more.
func TestEndlessUploadThatNobodyWants(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
	amid := make(chan struct{})
	r.site.SetPage("a.example", "/up", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		http.NewResponseController(w).Flush()
		<-amid
	})
	conn := r.raw("POST " + r.url("https", "/up") + " HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n")
	chunk, sent := []byte("100000\r\n"+strings.Repeat("x", 1<<20)+"\r\n"), 0
	for err := error(nil); err == nil && sent < 4*maxUnwanted; sent += len(chunk) {
		if sent == 16*len(chunk) { // more than lies in between: some was for nobody already
			close(amid)
		}
		_, err = conn.Write(chunk)
	}
	if sent >= 4*maxUnwanted {
		t.Errorf("%d octets were read for nobody", sent)
	}
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != 413 {
		t.Errorf("the answer is %v, %v", resp, err)
	}
	r.eventually("the end", func() bool { return r.server.Active() == 0 && r.server.Connections() == 0 })
}

// A client that leaves is noticed, whether the origin has its body and thinks, or has begun to answer before the body's
// end.
func TestUploaderLeaves(t *testing.T) {
	for _, answers := range []bool{false, true} {
		t.Run(fmt.Sprintf("amid the answer %t", answers), func(t *testing.T) {
			began, ended := make(chan struct{}), make(chan struct{})
			eachUpload(t, func(w http.ResponseWriter, req *http.Request) {
				control := http.NewResponseController(w)
				control.EnableFullDuplex()
				if answers {
					control.Flush()
				} else {
					io.Copy(io.Discard, req.Body)
				}
				began <- struct{}{}
				io.Copy(io.Discard, req.Body)
				<-req.Context().Done()
				ended <- struct{}{}
			}, func(t *testing.T, r *rig, s *sending) {
				s.sendHead("")
				if answers {
					s.send(1000)
				} else {
					s.sendRest()
				}
				<-began
				s.conn.Close()
				<-ended
				r.eventually("the end", func() bool { return r.server.Active() == 0 })
			})
		})
	}
}

// A client that waits to be asked for its body, and is answered instead, is not asked.
func TestAnswerInPlaceOfContinue(t *testing.T) {
	eachUpload(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no", http.StatusRequestEntityTooLarge)
	}, func(t *testing.T, _ *rig, s *sending) {
		s.sendHead("Expect: 100-continue\r\n")
		resp, body := s.answer(t)
		if resp.StatusCode != 413 || body != "no\n" || !resp.Close {
			t.Errorf("answer %v %q", resp, body)
		}
	})
}

// An origin's hints, and the word to send the body, come whole, however close to each other.
func TestHintsWithContinue(t *testing.T) {
	const hint = "HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n"
	r := newRig(t, func(o *Options) { o.Snapshots = fixed("") })
	arrived := make(chan net.Conn, 1)
	authority := r.wire(arrived)
	for range 20 { // it takes some to meet
		conn := r.raw("POST http://" + authority + "/ HTTP/1.1\r\nHost: " + authority + "\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
		origin := <-arrived
		req, err := http.ReadRequest(bufio.NewReader(origin))
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(origin, "HTTP/1.1 100 Continue\r\n\r\n"+hint+hint)
		told, in := map[string]int{}, bufio.NewReader(conn)
		for range 3 {
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatalf("behind %v came %v", told, err)
			}
			told[resp.Status]++
		}
		if told["100 Continue"] != 1 || told["103 Early Hints"] != 2 {
			t.Errorf("the client was told %v", told)
		}
		io.WriteString(conn, "hello")
		exactly(t, req.Body, "hello")
		conn.Close()
		origin.Close()
	}
}
