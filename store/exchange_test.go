package store_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/redistest"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/ratelimit/redislease"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/store"
)

// failures collects the errors that an ExchangedFiles reports.
type failures struct {
	mu  sync.Mutex
	all []string
}

func (f *failures) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, err.Error())
}

func (f *failures) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.all, "\n")
}

// exchanged returns the files of one instance with a state.db of its own.
func exchanged(tb testing.TB, url string) (*store.ExchangedFiles, *failures) {
	tb.Helper()
	c, err := redislease.New(redislease.Options{URL: url})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	f := new(failures)
	return store.ShareOver(c.Values(), fresh(tb), store.SharedOptions{ClaimTime: 500 * time.Millisecond, Failed: f.add}), f
}

// watch has f do in the background what it does in a running proxy.
func watch(t *testing.T, f *store.ExchangedFiles) {
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { f.Watch(ctx, func(origin.Origin, time.Time) {}, func() {}) })
	t.Cleanup(func() {
		cancel()
		watching.Wait()
	})
}

// today returns a snapshot that is fresh now, with bytes of every kind.
func today(o origin.Origin, body string) *robots.Snapshot {
	now := time.Now().Truncate(time.Microsecond).UTC()
	s := found(o, body, now)
	s.Expires = now.Add(time.Hour)
	s.ContentType, s.ETag, s.LastModified = "text/plain\xff", "\"\xfe\"", "then\x01"
	s.Redirects, s.Fields = []string{"https://a.example/\xff?\x00"}, "Cache-Control: max-age=60\xff\r\n"
	return s
}

// TestExchangedFiles saves at one instance and reads at another, with Redis and without.
func TestExchangedFiles(t *testing.T) {
	ctx := context.Background()
	server := redistest.Start(t)
	one, faults := exchanged(t, server.URL())
	two, _ := exchanged(t, server.URL())
	o := mustOrigin(t, "https://a.example")
	if _, err := two.Load(ctx, o); !errors.Is(err, robots.ErrNoSnapshot) {
		t.Fatalf("Load of an empty exchange: %v", err)
	}
	first := today(o, file)
	if err := one.SaveAll(ctx, []robots.StoreEntry{{Snapshot: first}}); err != nil {
		t.Fatal(err)
	}
	got, err := two.Load(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if d := differ(got, first); d != "" {
		t.Errorf("another instance loads a snapshot that differs: %s", d)
	}
	later := today(o, "User-agent: *\nDisallow: /later\n")
	later.Fetched = first.Fetched.Add(time.Second)
	if err := errors.Join(two.Save(ctx, later, nil), one.Save(ctx, first, nil)); err != nil { // the last one is late
		t.Fatal(err)
	}
	if got, err = one.Load(ctx, o); err != nil || got.SHA256 != later.SHA256 {
		t.Errorf("Load = %v, %v, want what another instance fetched later", got, err)
	}
	if faults.String() != "" {
		t.Errorf("failures: %s", faults)
	}
	watch(t, one)
	for saved := ""; saved != later.SHA256; time.Sleep(time.Millisecond) { // the test times out if it is not saved
		if got, err := one.State.Load(ctx, o); err == nil {
			saved = got.SHA256
		}
	}
	server.Kill()
	if got, err = one.Load(ctx, o); err != nil || got.SHA256 != later.SHA256 {
		t.Errorf("Load without Redis = %v, %v, want what was loaded last", got, err)
	}
	if err := one.Save(ctx, later, nil); err != nil || !strings.Contains(faults.String(), "redislease") {
		t.Errorf("Save without Redis: %v; failures: %q", err, faults)
	}
	if _, claimed := one.Claim(ctx, o); !claimed {
		t.Error("without Redis a fetch cannot be claimed")
	}
}

// TestExchangedClaims has many callers claim one fetch, whose holder then dies.
func TestExchangedClaims(t *testing.T) {
	ctx := context.Background()
	server := redistest.Start(t)
	one, _ := exchanged(t, server.URL())
	two, _ := exchanged(t, server.URL())
	o := mustOrigin(t, "https://a.example")
	dying, die := context.WithCancel(ctx)
	release, claimed := one.Claim(dying, o)
	if !claimed {
		t.Fatal("the first claim was refused")
	}
	time.Sleep(time.Second) // it is renewed
	if _, claimed := two.Claim(ctx, o); claimed {
		t.Error("a fetch was claimed twice")
	}
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		two.AwaitClaim(ctx, o)
	}()
	release()
	select {
	case <-waited:
	case <-time.After(10 * time.Second):
		t.Fatal("AwaitClaim goes on after the release")
	}
	die()
	if release, claimed := two.Claim(ctx, o); !claimed {
		t.Error("a fetch cannot be claimed after the release")
	} else {
		release()
	}
	key := "robotsproxy:{lanes}:claim:" + o.String()
	server.Do("SET " + key + " gone PX 500")
	two.AwaitClaim(ctx, o)
	if got := server.Do("EXISTS " + key); got != ":0" {
		t.Errorf("AwaitClaim has returned before the claim of a dead instance ended: %s", got)
	}
	for _, damage := range []string{"SET " + key + " someone", "LPUSH " + key + " x"} {
		server.Do(damage)
		two.AwaitClaim(ctx, o) // the test times out if it waits for no instance
		release, claimed := two.Claim(ctx, o)
		if !claimed {
			t.Fatalf("after %s a fetch cannot be claimed", damage)
		}
		release()
		if got := server.Do("EXISTS " + key); got != ":0" {
			t.Errorf("after %s and a release: %s", damage, got)
		}
	}
}

// TestExchangedNotices passes changes of one instance on to another.
func TestExchangedNotices(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	server := redistest.Start(t)
	one, _ := exchanged(t, server.URL())
	two, _ := exchanged(t, server.URL())
	o := mustOrigin(t, "https://a.example")
	changed, lost := make(chan time.Time, 1000), make(chan struct{}, 10)
	var watching sync.WaitGroup
	watching.Go(func() {
		two.Watch(ctx, func(got origin.Origin, before time.Time) {
			if got == o {
				changed <- before
			}
		}, func() { lost <- struct{}{} })
	})
	defer watching.Wait()
	defer cancel()
	next := func() time.Time {
		select {
		case at := <-changed:
			return at
		case <-time.After(10 * time.Second):
			t.Fatal("no notice")
		}
		return time.Time{}
	}
	snap := today(o, file)
	for len(changed) == 0 { // until the subscription is made
		snap.Fetched = snap.Fetched.Add(time.Second)
		if err := one.Save(ctx, snap, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if at := next(); at.Before(snap.Fetched.Add(-time.Minute)) {
		t.Errorf("a notice says that files fetched before %v do not count", at)
	}
	if _, err := two.Load(ctx, o); err != nil {
		t.Fatal(err)
	}
	if err := one.Delete(ctx, o); err != nil {
		t.Fatal(err)
	}
	next()
	if _, err := two.Load(ctx, o); !errors.Is(err, robots.ErrNoSnapshot) {
		t.Errorf("Load after another instance has deleted the snapshot: %v", err)
	}
	<-lost // the first subscription
	server.Do("CLIENT KILL TYPE pubsub")
	select {
	case <-lost:
	case <-time.After(20 * time.Second):
		t.Error("a subscription that broke is not reported")
	}
}

// TestExchangedDamage puts values into Redis that no instance has stored: none of them counts.
func TestExchangedDamage(t *testing.T) {
	store.Long(t)
	ctx := context.Background()
	server := redistest.Start(t)
	one, _ := exchanged(t, server.URL())
	for i, damage := range []string{
		"HSET %s data garbage", "HSET %s data \x01garbage", "HSET %s data {}", "HSET %s version 9000000000000000000 data x", "SET %s x", "DEL %s",
		`HSET %s data "\x00{\"Version\":2}"`, `HSET %s data "\x00{\"Version\":1,\"Availability\":2}"`,
		`HSET %s data "\x00{\"Version\":1,\"Origin\":\"https://other.example\"}"`,
	} {
		o := mustOrigin(t, fmt.Sprintf("https://h%d.example", i))
		snap := today(o, file)
		if err := one.Save(ctx, snap, nil); err != nil {
			t.Fatal(err)
		}
		server.Do(fmt.Sprintf(damage, "robotsproxy:{lanes}:value:"+o.String()))
		two, _ := exchanged(t, server.URL())
		got, err := two.Load(ctx, o)
		if err == nil && got.SHA256 != snap.SHA256 || err != nil && !errors.Is(err, robots.ErrNoSnapshot) {
			t.Errorf("%s: Load = %+v, %v", damage, got, err)
		}
		if got, err = one.Load(ctx, o); err != nil || got.SHA256 != snap.SHA256 {
			t.Errorf("%s: Load of the instance that has fetched it: %v, %v", damage, got, err)
		}
		snap.Fetched = snap.Fetched.Add(time.Second)
		three, _ := exchanged(t, server.URL())
		if err := one.Save(ctx, snap, nil); err != nil {
			t.Fatal(err)
		}
		if got, err := three.Load(ctx, o); err != nil || got.SHA256 != snap.SHA256 {
			t.Errorf("%s: Load after the next fetch: %v, %v", damage, got, err)
		}
	}
}

// TestExchangeWithoutRoom has Redis refuse to store more: the files count at the instance that fetched them.
func TestExchangeWithoutRoom(t *testing.T) {
	ctx := context.Background()
	server := redistest.Start(t)
	one, faults := exchanged(t, server.URL())
	server.Do("CONFIG SET maxmemory 1000000") // it has used more than three quarters
	o := mustOrigin(t, "https://a.example")
	snap := today(o, file)
	if err := one.Save(ctx, snap, nil); err != nil {
		t.Fatal(err)
	}
	if got := server.Do("EXISTS robotsproxy:{lanes}:value:" + o.String()); got != ":0" {
		t.Errorf("the file is stored: %s", got)
	}
	if got, err := one.Load(ctx, o); err != nil || got.SHA256 != snap.SHA256 || faults.String() != "" {
		t.Errorf("Load = %v, %v; failures: %q", got, err, faults)
	}
}

// noise returns a comment of n bytes that cannot be compressed to less than half.
func noise(n int) string {
	text := make([]byte, n/2)
	_, _ = rand.Read(text)
	return "# " + hex.EncodeToString(text) + "\n"
}

// TestExchangedVersionThatIsNotShared replaces a file that others have by one that is too large to be shared, or for which
// Redis has no room: the others fetch theirs.
func TestExchangedVersionThatIsNotShared(t *testing.T) {
	ctx := context.Background()
	for name, row := range map[string]struct{ command, body string }{
		"too large": {"PING", noise(300_000)},
		"no room":   {"CONFIG SET maxmemory 1000000", "User-agent: *\nDisallow: /later\n"}, // it has used more than three quarters
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			one, faults := exchanged(t, server.URL())
			two, _ := exchanged(t, server.URL())
			o := mustOrigin(t, "https://a.example")
			old := today(o, file)
			old.Fetched = old.Fetched.Add(-time.Hour)
			if err := errors.Join(one.Save(ctx, old, nil), two.State.Save(ctx, old, nil)); err != nil {
				t.Fatal(err)
			}
			server.Do(row.command)
			now := today(o, row.body)
			if err := one.Save(ctx, now, nil); err != nil {
				t.Fatal(err)
			}
			if got, err := two.Load(ctx, o); !errors.Is(err, robots.ErrNoSnapshot) {
				t.Errorf("another instance loads a file: %v, and %v", got != nil, err)
			}
			if got, err := one.Load(ctx, o); err != nil || got.SHA256 != now.SHA256 {
				t.Errorf("the instance that has fetched it loads %v, %v", got, err)
			}
			own := today(o, row.body)
			if err := two.Save(ctx, own, nil); err != nil {
				t.Fatal(err)
			}
			for _, f := range []*store.ExchangedFiles{one, two} { // else they would fetch it in turn without end
				if got, err := f.Load(ctx, o); err != nil || got.SHA256 != now.SHA256 {
					t.Errorf("after a fetch of each an instance loads %v, %v", got, err)
				}
			}
			server.Do("CONFIG SET maxmemory 0")
			small := today(o, file)
			if err := one.Save(ctx, small, nil); err != nil {
				t.Fatal(err)
			}
			if got, err := two.Load(ctx, o); err != nil || got.SHA256 != small.SHA256 || faults.String() != "" {
				t.Errorf("a version that is shared again: %v, %v; failures: %q", got, err, faults)
			}
		})
	}
}

// TestExchangedPurge purges a file at one instance. The other one does not hear of it, and saves the file that it has
// fetched before.
func TestExchangedPurge(t *testing.T) {
	ctx := context.Background()
	server := redistest.Start(t)
	one, _ := exchanged(t, server.URL())
	two, _ := exchanged(t, server.URL())
	o := mustOrigin(t, "https://a.example")
	snap := today(o, file)
	if err := errors.Join(one.Save(ctx, snap, nil), two.State.Save(ctx, snap, nil), one.Delete(ctx, o)); err != nil {
		t.Fatal(err)
	}
	gone := func(when string) {
		t.Helper()
		for _, f := range []*store.ExchangedFiles{one, two} {
			if got, err := f.Load(ctx, o); !errors.Is(err, robots.ErrNoSnapshot) {
				t.Errorf("%s: Load returns a file: %v, and %v", when, got != nil, err)
			}
		}
	}
	gone("after the purge")
	if err := two.Save(ctx, snap, nil); err != nil {
		t.Fatal(err)
	}
	gone("after a late Save")
	next := today(o, "User-agent: *\nDisallow: /next\n")
	if err := two.Save(ctx, next, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := one.Load(ctx, o); err != nil || got.SHA256 != next.SHA256 {
		t.Errorf("after the next fetch: Load = %v, %v", got, err)
	}
}

// TestExchangedVersionThatExpires saves a version that expires before an older one: an instance with the older one must not
// use that again.
func TestExchangedVersionThatExpires(t *testing.T) {
	ctx := context.Background()
	server := redistest.Start(t)
	one, _ := exchanged(t, server.URL())
	two, _ := exchanged(t, server.URL())
	o := mustOrigin(t, "https://a.example")
	old, failed := today(o, file), unreachable(o, time.Now())
	old.Fetched = old.Fetched.Add(-time.Minute)
	failed.Expires = failed.Fetched.Add(10 * time.Millisecond)
	if err := errors.Join(one.Save(ctx, old, nil), two.State.Save(ctx, old, nil), one.Save(ctx, failed, nil)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1500 * time.Millisecond) // a value lasts for a second at least
	if got, err := two.Load(ctx, o); err != nil || got.Availability != robots.Unreachable {
		t.Errorf("Load = %v, %v, want the failure that another instance met later", got, err)
	}
}

// TestExchangedAfterAnOutage fetches a new version without Redis, which still has the older one when it returns.
func TestExchangedAfterAnOutage(t *testing.T) {
	ctx := context.Background()
	server := redistest.Start(t)
	one, _ := exchanged(t, server.URL())
	two, _ := exchanged(t, server.URL())
	o := mustOrigin(t, "https://a.example")
	old := today(o, file)
	now := today(o, "User-agent: *\nDisallow: /later\n")
	old.Fetched = old.Fetched.Add(-time.Minute)
	if err := errors.Join(one.Save(ctx, old, nil), one.State.Save(ctx, now, nil)); err != nil { // as Save does without Redis
		t.Fatal(err)
	}
	for _, f := range []*store.ExchangedFiles{one, two} {
		if got, err := f.Load(ctx, o); err != nil || got.SHA256 != now.SHA256 {
			t.Errorf("Load = %v, %v, want the later version", got, err)
		}
	}
}

// A fast is the Exchange of a machine whose clock is five minutes ahead of that of Redis.
type fast struct{ store.Exchange }

func (x fast) Get(ctx context.Context, name string) (version time.Time, data []byte, err error) {
	version, data, err = x.Exchange.Get(ctx, name)
	return version.Add(5 * time.Minute), data, err
}

func (x fast) Put(ctx context.Context, name string, version time.Time, data []byte, lasts time.Duration, notice string) error {
	return x.Exchange.Put(ctx, name, version.Add(-5*time.Minute), data, lasts, notice)
}

// TestExchangedWithClocksThatDiffer fetches at an instance whose clock is ahead, and then at another.
func TestExchangedWithClocksThatDiffer(t *testing.T) {
	ctx := context.Background()
	server := redistest.Start(t)
	c, err := redislease.New(redislease.Options{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ahead := store.ShareOver(fast{c.Values()}, fresh(t), store.SharedOptions{Failed: func(err error) { t.Error(err) }})
	right, _ := exchanged(t, server.URL())
	o := mustOrigin(t, "https://a.example")
	first, second := today(o, file), today(o, "User-agent: *\nDisallow: /later\n")
	now := first.Fetched
	first.Fetched, first.Expires = now.Add(5*time.Minute-2*time.Second), first.Expires.Add(5*time.Minute-2*time.Second)
	if err := ahead.Save(ctx, first, nil); err != nil {
		t.Fatal(err)
	}
	got, err := right.Load(ctx, o)
	if err != nil || !got.Fetched.Equal(now.Add(-2*time.Second)) || got.Expires.Sub(got.Fetched) != time.Hour {
		t.Fatalf("Load = %+v, %v, want one of two seconds ago", got, err)
	}
	if err := right.Save(ctx, second, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := ahead.Load(ctx, o); err != nil || got.SHA256 != second.SHA256 || !got.Fetched.Equal(second.Fetched.Add(5*time.Minute)) {
		t.Errorf("Load = %+v, %v, want the second version", got, err)
	}
}

// TestExchangedLossAfterAnOutage loads a file while Redis does not answer in time, although the subscription stays. The
// memory must not keep the copy of the instance after that.
func TestExchangedLossAfterAnOutage(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	server := redistest.Start(t)
	one, _ := exchanged(t, server.URL())
	o := mustOrigin(t, "https://a.example")
	if err := one.Save(ctx, today(o, file), nil); err != nil {
		t.Fatal(err)
	}
	lost := make(chan struct{}, 100)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { one.Watch(ctx, func(origin.Origin, time.Time) {}, func() { lost <- struct{}{} }) })
	<-lost // the subscription
	server.Do("CLIENT PAUSE 1500")
	if _, err := one.Load(ctx, o); err != nil {
		t.Fatal(err)
	}
	select {
	case <-lost:
	case <-time.After(30 * time.Second):
		t.Error("Load has returned the copy of the instance, and the memory keeps that")
	}
}
