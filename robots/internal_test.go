package robots

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
	"github.com/robotsproxy/robotsproxy/rules"
)

func originOf(t *testing.T, host string) origin.Origin {
	t.Helper()
	o, err := origin.Parse("http://" + host)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// counted returns a Cache that has the file everywhere, and how often it was fetched.
func counted(t *testing.T) (c *Cache, fetches *int) {
	t.Helper()
	fetches = new(int)
	c, err := NewCache(CacheOptions{Fetch: func(_ context.Context, r fetch.Request) (*Answer, error) {
		*fetches++
		return &Answer{Origin: r.Origin, Availability: Found, Fetched: time.Now(), Expires: time.Now().Add(time.Hour)}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return c, fetches
}

func jobFor(c *Cache, o origin.Origin) job { return job{origin: o, key: c.key(o)} }

// TestJobLooksAgain has a fetch that begins when another for the same origin has landed.
func TestJobLooksAgain(t *testing.T) {
	c, fetches := counted(t)
	defer c.Close()
	e := jobFor(c, originOf(t, "a.example"))
	fly := func() (result, error) {
		f := c.start(e, true)
		<-f.done
		return f.result, f.err
	}
	first, err := fly()
	if err != nil {
		t.Fatal(err)
	}
	if second, err := fly(); second.snap != first.snap || err != nil || *fetches != 1 {
		t.Errorf("the second fetch brought %p, %v after %d fetches, want the first one's %p after 1", second.snap, err, *fetches, first.snap)
	}
}

// TestJobAfterClose has one that begins too late.
func TestJobAfterClose(t *testing.T) {
	c, fetches := counted(t)
	c.Close()
	o := originOf(t, "a.example")
	for range 20 {
		f := c.start(job{origin: o}, true)
		<-f.done
		if l, err := f.result, f.err; l.snap != nil || !errors.Is(err, context.Canceled) || *fetches != 0 {
			t.Fatalf("fly = %v, %v after %d fetches, want %v after none", l.snap, err, *fetches, context.Canceled)
		}
	}
}

// TestResultForOthers has a fetch fail for reasons of the client that began it.
func TestResultForOthers(t *testing.T) {
	for _, row := range []struct {
		client    string
		err, want error
	}{
		{"one", &BusyError{}, ErrBusy},
		{"other", &BusyError{}, errAgain},
		{"other", &fetch.LaterError{Err: ErrBusy}, errAgain},
		{"one", &fetch.LaterError{Err: ErrBusy}, ErrBusy},
		{"one", errUnwanted, errAgain}, // it has asked again meanwhile
		{"other", errSlow, errSlow},
	} {
		f := &inflight{job: job{asker: Asker{Client: "one"}}, err: fmt.Errorf("fetching: %w", row.err)}
		if _, err := f.outcome(row.client); !errors.Is(err, row.want) {
			t.Errorf("of a fetch that one began and that failed with %v, %s gets %v; want %v", row.err, row.client, err, row.want)
		}
	}
}

// TestSameKey has two origins whose hashes are equal.
func TestSameKey(t *testing.T) {
	c, _ := counted(t)
	defer c.Close()
	a, b := originOf(t, "a.example"), originOf(t, "b.example")
	f := c.start(job{origin: a, key: 1}, true)
	if <-f.done; f.err != nil {
		t.Fatal(f.err)
	}
	if snap := c.inMemory(1, b); snap != nil {
		t.Errorf("for %s the cache has the file of %s", b, snap.Origin)
	}
}

// TestKept has more origins than recent holds, and far less than the memory.
func TestKept(t *testing.T) {
	c, fetches := counted(t)
	defer c.Close()
	const origins = 4 * recentCount
	for range 2 {
		for i := range origins {
			if _, err := c.Snapshot(t.Context(), originOf(t, fmt.Sprintf("host-%d.example", i)), Asker{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if *fetches != origins {
		t.Errorf("%d fetches for %d origins, asked for twice", *fetches, origins)
	}
}

func TestRecent(t *testing.T) {
	r := newRecent(1 << 20)
	add := func(host string, size int) {
		r.add(&Snapshot{Answer: Answer{Origin: originOf(t, host), Body: make([]byte, size)}, Rules: &rules.Ruleset{}})
	}
	add("hot.example", 1)
	add("cold.example", 1)
	for i := range 2000 {
		add(fmt.Sprintf("host-%d.example", i), i)
		if r.get(originOf(t, "hot.example")) == nil {
			t.Fatalf("the one in use was dropped when number %d came", i)
		}
		if len(r.queue) != len(r.at) || len(r.queue) > recentCount || r.bytes > r.limit+4096 {
			t.Fatalf("%d entries, %d in order, %d octets; want at most %d and %d", len(r.at), len(r.queue), r.bytes, recentCount, r.limit)
		}
	}
	if r.get(originOf(t, "cold.example")) != nil {
		t.Error("one that nobody asked for is still there")
	}
	add("hot.example", 2<<20)
	if r.get(originOf(t, "hot.example")) == nil || len(r.at) != 1 {
		t.Errorf("%d entries, want the newest alone, which is larger than the limit", len(r.at))
	}
}

// TestCopy fills every field, so that one which is added and forgotten is seen.
func TestCopy(t *testing.T) {
	s := new(Snapshot)
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.CanSet() {
			fill(t, v.Type().Field(i).Name, f)
		}
	}
	c := reflect.ValueOf(s.copy()).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if v.Field(i).CanSet() && !reflect.DeepEqual(v.Field(i).Interface(), c.Field(i).Interface()) {
			t.Errorf("%s is not copied", name)
		}
	}
}

func fill(t *testing.T, name string, f reflect.Value) {
	switch f.Interface().(type) {
	case origin.Origin:
		f.Set(reflect.ValueOf(originOf(t, "a.example")))
	case time.Time:
		f.Set(reflect.ValueOf(time.Unix(1, 0)))
	case []string:
		f.Set(reflect.ValueOf([]string{"a"}))
	case []byte:
		f.SetBytes([]byte("a"))
	case *rules.Ruleset:
		f.Set(reflect.ValueOf(&rules.Ruleset{}))
	case error:
		f.Set(reflect.ValueOf(errors.New("a")))
	case nil:
		f.Set(reflect.ValueOf(errors.New("a"))) // Err, which holds none yet
	case string:
		f.SetString("a")
	case bool:
		f.SetBool(true)
	case int:
		f.SetInt(1)
	case Availability, Flags:
		f.SetUint(1)
	case Answer:
		for i := range f.NumField() {
			fill(t, f.Type().Field(i).Name, f.Field(i))
		}
	default:
		t.Fatalf("%s has the type %s, which this test does not know", name, f.Type())
	}
}

// TestSaverIsBounded adds more than a saver may hold, and more origins than it may note as lost.
func TestSaverIsBounded(t *testing.T) {
	snapOf := func(host string) *Snapshot {
		return (&Snapshot{Answer: Answer{Origin: originOf(t, host), Fetched: time.Now()}}).prepare()
	}
	first := snapOf("first.example")
	s := newSaver(first.size())
	s.add(&unsaved{snap: first})
	for i := range maxLost + 50 {
		s.add(&unsaved{snap: snapOf(fmt.Sprintf("h%d.example", i))})
	}
	if len(s.queue) != 1 || s.bytes != first.size() || len(s.latest) != 1 || len(s.lost) > maxLost {
		t.Errorf("%d wait, of %d bytes, %d origins; %d are lost, want 1, %d, 1 and %d at most",
			len(s.queue), s.bytes, len(s.latest), len(s.lost), first.size(), maxLost)
	}
	if !s.outdated(first) || s.outdated(snapOf("later.example")) {
		t.Error("after too many were lost, what was fetched before that counts, or what was fetched later does not")
	}
	if s.trusts(originOf(t, fmt.Sprintf("h%d.example", maxLost+49))) {
		t.Error("the Store is read for an origin that was lost last")
	}
	s.done(s.next(1)[0], nil)
	if s.next(1) != nil || s.bytes != 0 || len(s.latest) != 0 {
		t.Errorf("after all was saved %d bytes and %d origins wait", s.bytes, len(s.latest))
	}
}

// TestSaverDropsTheLatest has no room for the second Snapshot of an origin: the Save of the first does not make the
// Store one that may be read.
func TestSaverDropsTheLatest(t *testing.T) {
	snap := (&Snapshot{Answer: Answer{Origin: originOf(t, "a.example")}}).prepare()
	s := newSaver(snap.size())
	s.add(&unsaved{snap: snap})
	s.add(&unsaved{snap: snap.copy()})
	s.done(s.next(1)[0], nil)
	if s.trusts(snap.Origin) || s.get(snap.Origin) != nil {
		t.Error("the Store is read although the latest Snapshot was not saved")
	}
}
