package redislease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/redistest"
	"github.com/robotsproxy/robotsproxy/ratelimit"
)

// A note is an entry of the document of these tests. Of two notes with one key, the one with the higher Edition is the
// later one.
type note struct {
	Edition int
	Text    string
}

// mergeNotes implements DocumentOptions.Merge.
func mergeNotes(ours, theirs []byte) ([]byte, error) {
	a, b := make(map[string]note), make(map[string]note)
	if err := errors.Join(json.Unmarshal(ours, &a), json.Unmarshal(theirs, &b)); err != nil {
		return nil, err
	}
	for key, n := range b {
		if n.Edition > a[key].Edition {
			a[key] = n
		}
	}
	return json.Marshal(a)
}

// A reader is an instance with a document.
type reader struct {
	t      *testing.T
	client *Client
	*Document
	log syncBuffer

	mu      sync.Mutex
	applied []byte
	failure error // of the next calls of apply
}

func newReader(t *testing.T, name, url string, o DocumentOptions) *reader {
	t.Helper()
	r := &reader{t: t, applied: o.Data}
	r.client = newRedis(t, Options{URL: url, Logger: slog.New(slog.NewTextHandler(&r.log, nil))})
	o.Name, o.Merge, o.Apply = name, mergeNotes, r.apply
	r.Document = r.client.OpenDocument(o)
	return r
}

func newReaders(t *testing.T, url string, names ...string) []*reader {
	t.Helper()
	readers := make([]*reader, len(names))
	for i, name := range names {
		readers[i] = newReader(t, name, url, DocumentOptions{})
	}
	return readers
}

func (r *reader) apply(data []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == nil {
		r.applied = data
	}
	return r.failure
}

func (r *reader) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure = err
}

// text returns the note that was applied last.
func (r *reader) text(key string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	notes := make(map[string]note)
	if err := json.Unmarshal(r.applied, &notes); err != nil && len(r.applied) > 0 {
		r.t.Error(err)
	}
	return notes[key].Text
}

// writeNote returns the change that sets a note.
func writeNote(key, text string) func([]byte) ([]byte, error) {
	return func(data []byte) ([]byte, error) {
		notes := make(map[string]note)
		if len(data) > 0 {
			if err := json.Unmarshal(data, &notes); err != nil {
				return nil, err
			}
		}
		notes[key] = note{notes[key].Edition + 1, text}
		return json.Marshal(notes)
	}
}

func (r *reader) write(key, text string, wait time.Duration) Delivery {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), wait)
	defer cancel()
	d, err := r.Update(ctx, writeNote(key, text))
	if err != nil {
		r.t.Fatal(err)
	}
	return d
}

// acknowledged reports an error unless just the named instances have acknowledged d, and the others are missing.
func acknowledged(t *testing.T, when string, d Delivery, names, missing string) {
	t.Helper()
	var absent []string
	for _, m := range d.Missing {
		absent = append(absent, m.Name)
	}
	if got := strings.Join(d.Acknowledged, " "); got != names || strings.Join(absent, " ") != missing {
		t.Errorf("%s: %q have acknowledged and %q are missing, want %q and %q", when, got, absent, names, missing)
	}
}

// Once Update returns, each instance obeys the change, also one that starts later.
func TestUpdateReachesEachInstance(t *testing.T) {
	server := redistest.Start(t)
	in := newReaders(t, server.URL(), "one", "two", "three")
	for n, r := range in {
		text := fmt.Sprint("text ", n)
		d := r.write("a.example", text, 10*time.Second)
		acknowledged(t, text, d, "one three two", "")
		for _, other := range in {
			if got := other.text("a.example"); got != text || d.Err != nil {
				t.Errorf("after Update %d an instance has %q, want %q; %v", n, got, text, d.Err)
			}
		}
	}
	late := newReader(t, "late", server.URL(), DocumentOptions{})
	if got := late.text("a.example"); got != "text 2" {
		t.Errorf("an instance that starts has %q at once, want text 2", got)
	}
	in[1].client.Close()
	acknowledged(t, "an instance has left", in[0].write("a.example", "last", 10*time.Second), "late one three", "")
}

// No update is lost if two instances change the document at the same time, and every instance ends with the same bytes.
func TestUpdatesAtTheSameTime(t *testing.T) {
	server := redistest.Start(t)
	in := newReaders(t, server.URL(), "one", "two", "three")
	var all sync.WaitGroup
	const each = 20
	for i, r := range in {
		for n := range each {
			all.Go(func() { r.write(fmt.Sprintf("%d-%d.example", i, n), "x", time.Minute) })
		}
	}
	all.Wait()
	for i := range in {
		for n := range each {
			for _, r := range in {
				if key := fmt.Sprintf("%d-%d.example", i, n); r.text(key) != "x" {
					t.Errorf("%s lacks the update of %s", r.options.Name, key)
				}
			}
		}
	}
}

// An instance that cannot reach Redis is missing, obeys its last document, and takes changes of its own operator. When
// it returns, it has the changes of the others and they have its own.
func TestPartitionedInstance(t *testing.T) {
	server := redistest.Start(t)
	relay := redistest.NewRelay(t, server.Addr())
	here, apart := newReader(t, "here", server.URL(), DocumentOptions{}), newReader(t, "apart", relay.URL(), DocumentOptions{})
	acknowledged(t, "at first", here.write("a.example", "first", 10*time.Second), "apart here", "")
	relay.Part()
	unreached(t, apart.client)
	d := here.write("a.example", "second", time.Second)
	acknowledged(t, "partitioned", d, "here", "apart")
	if d.Missing[0].Silent < time.Second/2 || d.Err != nil {
		t.Errorf("the instance is silent for %v, want half a second at least; %v", d.Missing[0].Silent, d.Err)
	}
	began := time.Now()
	own := apart.write("b.example", "own", 10*time.Second)
	acknowledged(t, "on the partitioned instance", own, "apart", "here")
	if took := time.Since(began); own.Err == nil || took > 5*time.Second {
		t.Errorf("Update returns %v after %v, want the error of Redis soon", own.Err, took)
	}
	if a, b := apart.text("a.example"), apart.text("b.example"); a != "first" || b != "own" {
		t.Errorf("the partitioned instance has %q and %q, want first and own", a, b)
	}
	relay.Join()
	eventually(t, "both have both", func() bool {
		return apart.text("a.example") == "second" && here.text("b.example") == "own"
	})
	acknowledged(t, "joined", here.write("a.example", "third", 10*time.Second), "apart here", "")
}

// A Redis that has lost its memory gets the document from the instances, the latest one of each entry.
func TestDocumentOutlivesRedis(t *testing.T) {
	for name, lose := range map[string]func(*redistest.Server){
		"FLUSHALL": func(s *redistest.Server) { s.Do("FLUSHALL") },
		"restart":  func(s *redistest.Server) { s.Kill(); s.Restart() },
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			in := newReaders(t, server.URL(), "one", "two")
			in[0].write("a.example", "first", 10*time.Second)
			d := in[1].write("a.example", "second", 10*time.Second)
			acknowledged(t, "before", d, "one two", "")
			lose(server)
			// An instance with an old copy arrives first.
			old := newReader(t, "old", server.URL(), DocumentOptions{Data: []byte(`{"a.example":{"Edition":1,"Text":"first"}}`)})
			eventually(t, "the old copy is replaced", func() bool { return old.text("a.example") == "second" })
			late := newReader(t, "late", server.URL(), DocumentOptions{})
			if got := late.text("a.example"); got != "second" {
				t.Errorf("a new instance has %q, want second", got)
			}
			acknowledged(t, "after", old.write("b.example", "x", 20*time.Second), "late old one two", "")
		})
	}
}

// An Update right after Redis has lost its memory waits for each instance, although Redis does not know them.
func TestUpdateAfterALossKnowsAllInstances(t *testing.T) {
	server := redistest.Start(t)
	in := newReaders(t, server.URL(), "one", "two")
	in[0].write("a.example", "first", 10*time.Second)
	server.Do("FLUSHALL")
	in[0].client.heartbeat(instanceLasts)
	acknowledged(t, "at once", in[0].write("a.example", "second", 20*time.Second), "one two", "")
	if got := in[1].text("a.example"); got != "second" {
		t.Errorf("the other instance has %q, want second", got)
	}
}

// While Redis is down, a change is obeyed here, and the others get it when Redis returns. An instance keeps its copy over
// its own restart.
func TestUpdateWhileRedisIsDown(t *testing.T) {
	server := redistest.Start(t)
	in := newReaders(t, server.URL(), "one", "two")
	in[0].write("b.example", "x", 10*time.Second) // it knows the other instance
	server.Kill()
	unreached(t, in[0].client)
	d := in[0].write("a.example", "first", 10*time.Second)
	acknowledged(t, "down", d, "one", "two")
	if d.Err == nil || in[0].text("a.example") != "first" {
		t.Errorf("Update has error %v, and the instance has %q", d.Err, in[0].text("a.example"))
	}
	in[0].client.Close()
	again := newReader(t, "one", server.URL(), DocumentOptions{Data: in[0].data})
	server.Restart()
	eventually(t, "the other instance has the change", func() bool { return in[1].text("a.example") == "first" })
	acknowledged(t, "up", again.write("a.example", "second", 20*time.Second), "one two", "")
}

// An instance that ended without Close is missing until another one has its home.
func TestKilledInstanceIsMissing(t *testing.T) {
	server := redistest.Start(t)
	relay := redistest.NewRelay(t, server.Addr())
	one := newReader(t, "one", server.URL(), DocumentOptions{})
	killed := newReader(t, "killed", relay.URL(), DocumentOptions{Home: "host:/data"})
	relay.Part()
	killed.client.Close()
	acknowledged(t, "killed", one.write("a.example", "x", 200*time.Millisecond), "one", "killed")
	newReader(t, "again", server.URL(), DocumentOptions{Home: "host:/data"})
	acknowledged(t, "restarted", one.write("a.example", "x", 20*time.Second), "again one", "")
}

// An instance that cannot obey has not acknowledged, and tries again. At the instance of the operator it is an error.
func TestApplyFails(t *testing.T) {
	server := redistest.Start(t)
	in := newReaders(t, server.URL(), "one", "two")
	in[1].fail(errors.New("the disk is full"))
	acknowledged(t, "it fails", in[0].write("a.example", "x", time.Second), "one", "two")
	if _, err := in[1].Update(t.Context(), writeNote("b.example", "x")); err == nil {
		t.Error("Update returns no error")
	}
	eventually(t, "the log has the error", func() bool { return strings.Contains(in[1].log.String(), "the disk is full") })
	in[1].fail(nil)
	eventually(t, "it obeys", func() bool { return in[1].text("a.example") == "x" })
	acknowledged(t, "it obeys", in[0].write("a.example", "y", 10*time.Second), "one two", "")
	if got := in[0].text("b.example"); got != "" {
		t.Errorf("the update that failed has reached another instance: %q", got)
	}
}

// An instance that has missed the message of a change gets no lease before it obeys the change.
func TestOutdatedInstanceGetsNoLease(t *testing.T) {
	server := redistest.Start(t)
	in := newReaders(t, server.URL(), "one", "two")
	in[1].fail(errors.New("not yet"))
	in[0].write("a.example", "x", time.Millisecond)
	r := ratelimit.LeaseRequest{Key: host, Limit: 8}
	eventually(t, "Redis has the change", func() bool { return server.Do("HEXISTS robotsproxy:{lanes}:document data") == ":1" })
	for range 3 {
		denied(t, in[1].client, r, 0, time.Second)
	}
	granted(t, in[0].client, r).Cancel()
	in[1].fail(nil)
	eventually(t, "a lease is granted", func() bool {
		l := lease(t, in[1].client, r).Lease
		if l != nil {
			l.Cancel()
		}
		return l != nil
	})
	if got := in[1].text("a.example"); got != "x" {
		t.Errorf("the instance got a lease with %q applied", got)
	}
}

// Garbage in Redis is replaced.
func TestDocumentIsGarbage(t *testing.T) {
	for _, command := range []string{
		"HSET robotsproxy:{lanes}:document revision 9:x data {{{", "HSET robotsproxy:{lanes}:document revision x",
		"SET robotsproxy:{lanes}:document x",
		"HSET robotsproxy:{lanes}:document-instances a b", "HSET robotsproxy:{lanes}:memory document x",
		"HSET robotsproxy:{lanes}:document-instances a 1\u00a099999999999999999\u00a0x\u00a0x",
	} {
		server := redistest.Start(t)
		in := newReaders(t, server.URL(), "one", "two")
		in[0].write("a.example", "x", 10*time.Second)
		server.Do(command)
		acknowledged(t, command, in[1].write("b.example", "y", 20*time.Second), "one two", "")
		for _, r := range in {
			if a, b := r.text("a.example"), r.text("b.example"); a != "x" || b != "y" {
				t.Errorf("%s: an instance has %q and %q", command, a, b)
			}
		}
	}
}

// An instance of another version, which writes the same document in another way, does not make the instances write it
// in turns.
func TestOtherFormOfTheDocument(t *testing.T) {
	server := redistest.Start(t)
	server.Do(`HSET robotsproxy:{lanes}:document revision 7:other data '{"a.example":{"Text":"x","Colour":"red","Edition":1}}'`)
	in := newReaders(t, server.URL(), "one", "two")
	if got := in[1].text("a.example"); got != "x" {
		t.Errorf("the instance has %q, want x", got)
	}
	for range 3 {
		for _, r := range in {
			if err := r.synchronize(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if in[0].revision != "7:other" {
		t.Errorf("the revision is %s, want the one of the other version", in[0].revision)
	}
}

// Every key of the document expires.
func TestDocumentDoesNotStayForEver(t *testing.T) {
	server := redistest.Start(t)
	newReader(t, "one", server.URL(), DocumentOptions{}).write("a.example", "x", 10*time.Second)
	for key, life := range map[string]time.Duration{"document": 365 * 24 * time.Hour, "document-instances": time.Hour} {
		ms, err := strconv.Atoi(strings.TrimPrefix(server.Do("PTTL robotsproxy:{lanes}:"+key), ":"))
		if rest := time.Duration(ms) * time.Millisecond; err != nil || rest > life || rest < life-time.Minute {
			t.Errorf("%s lives for %v more, want %v", key, rest, life)
		}
	}
}
