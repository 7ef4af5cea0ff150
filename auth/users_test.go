package auth

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// hashOf returns the cheapest hash of password.
func hashOf(t testing.TB, password string) string {
	t.Helper()
	h, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return string(h)
}

// users returns the users news (s3cr3t) and lab (pass:word).
func users(t testing.TB) *Users {
	t.Helper()
	path := filepath.Join(t.TempDir(), "htpasswd")
	lines := "# crawlers\n\nnews:" + hashOf(t, "s3cr3t") + "\r\nlab:" + hashOf(t, "pass:word") + "\n"
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	u, err := LoadUsers(path)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

var (
	here  = netip.MustParseAddr("192.0.2.1")
	there = netip.MustParseAddr("192.0.2.2")
)

func TestHtpasswdFiles(t *testing.T) {
	good := hashOf(t, "x")
	for _, row := range []struct{ name, text, want string }{
		{"bcrypt", "a:" + good, ""},
		{"bcrypt as Apache writes it", "a:$2y$" + good[4:], ""},
		{"bcrypt as OpenBSD writes it", "a:$2b$" + good[4:], ""},
		{"plaintext", "a:" + good + "\nb:pl4in", `line 2: the password of "b" is not a bcrypt hash; create one with "htpasswd -B FILE b"`},
		{"MD5", "b:$apr1$salt$qZqYmT2e6N1vN8rXG3uC9.", `line 1: the password of "b" is not a bcrypt hash; create one with "htpasswd -B FILE b"`},
		{"SHA-1", "b:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", `line 1: the password of "b" is not a bcrypt hash; create one with "htpasswd -B FILE b"`},
		{"SHA-512 crypt", "b:$6$salt$x", `line 1: the password of "b" is not a bcrypt hash; create one with "htpasswd -B FILE b"`},
		{"cut off", "b:" + good[:50], `line 1: the password of "b" is not a bcrypt hash; create one with "htpasswd -B FILE b"`},
		{"too long", "b:" + good + "x", `line 1: the password of "b" is not a bcrypt hash; create one with "htpasswd -B FILE b"`},
		{"cost of hours", "b:$2a$31" + good[6:], `line 1: the hash of "b" has the cost 31, which takes seconds for each check; the maximum is 15`},
		{"no password", "b:", `line 1: the password of "b" is not a bcrypt hash; create one with "htpasswd -B FILE b"`},
		{"no user", ":" + good, "line 1: found no user and hash, expected user:hash"},
		{"no colon", "pl4in", "line 1: found no user and hash, expected user:hash"},
		{"user twice", "a:" + good + "\na:" + good, `line 2: the user "a" is listed twice`},
		{"empty", "\n# nobody\n", "the file has no user"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := readUsers(strings.NewReader(row.text))
			if got := fmt.Sprint(err); got != row.want && !(err == nil && row.want == "") {
				t.Errorf("reading %q: %v, want %q", row.text, err, row.want)
			}
			if err != nil && (strings.Contains(err.Error(), "pl4in") || strings.Contains(err.Error(), good[:20])) {
				t.Errorf("the error repeats a secret: %v", err)
			}
		})
	}
	if _, err := LoadUsers(filepath.Join(t.TempDir(), "nowhere")); err == nil {
		t.Error("a missing file was read")
	}
}

func TestCheck(t *testing.T) {
	u := users(t)
	for _, row := range []struct {
		user, password string
		ok             bool
	}{
		{"news", "s3cr3t", true},
		{"news", "s3cr3t", true}, // by its digest
		{"news", "S3cr3t", false},
		{"news", "", false},
		{"news", "s3cr3t\x00", false},
		{"lab", "pass:word", true},
		{"lab", "s3cr3t", false},
		{"lab", "pass", false},
		{"News", "s3cr3t", false},
		{"", "s3cr3t", false},
		{"nobody", "s3cr3t", false},
		{strings.Repeat("n", 60<<10), strings.Repeat("p", 60<<10), false},
	} {
		err := u.Check(t.Context(), here, row.user, row.password)
		var wrong *RejectedError
		if (err == nil) != row.ok || err != nil && (!errors.As(err, &wrong) || wrong.RetryAfter != 0) {
			t.Errorf("%.20q with %.20q: %v, want ok=%t", row.user, row.password, err, row.ok)
		}
	}
}

// TestUnknownUserCostsAsMuch checks that an unknown user costs one hash of a real account, as a known user does.
func TestUnknownUserCostsAsMuch(t *testing.T) {
	u := users(t)
	for _, a := range u.all {
		a.hash = []byte(hashOf(t, "x"))
	}
	u.hashing = make(chan struct{}) // never free, so that a check that computes a hash times out
	for _, user := range []string{"news", "lab", "nobody", "x", ""} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if err := u.Check(ctx, here, user, "wrong"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q: %v, want that it waited to compute a hash", user, err)
		}
		cancel()
	}
	if first := u.decoy("nobody"); !slices.Contains(u.all, first) || u.decoy("nobody") != first {
		t.Fatal("the decoy of one name changes, which those of real users do not")
	}
}

// TestDigests checks that a password that was right costs one hash for many checks, and is forgotten when it is not
// used.
func TestDigests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := users(t)
		slots := u.hashing
		u.hashing = make(chan struct{})
		var group sync.WaitGroup
		for range 50 { // a crawler opens its connections at once
			group.Go(func() {
				if err := u.Check(t.Context(), here, "news", "s3cr3t"); err != nil {
					t.Error(err)
				}
			})
		}
		<-u.hashing // one computes a hash; a second one would block forever
		u.hashing <- struct{}{}
		group.Wait()
		u.hashing = slots
		u.accounts["news"].hash = []byte(hashOf(t, "changed")) // from here on only the digest is right
		for range 3 {
			time.Sleep(digestLife - time.Second)
			if err := u.Check(t.Context(), there, "news", "s3cr3t"); err != nil {
				t.Errorf("while it is used: %v", err)
			}
		}
		if err := u.Check(t.Context(), there, "news", "s3cr3T"); err == nil {
			t.Error("the digest accepts another password")
		}
		time.Sleep(digestLife)
		if err := u.Check(t.Context(), there, "news", "s3cr3t"); err == nil {
			t.Error("the digest never expires")
		}
		if allocs := testing.AllocsPerRun(100, func() { u.accounts["news"].recall(u.digest("news", "changed"), time.Now()) }); allocs > 15 {
			t.Errorf("recall allocates %v times", allocs)
		}
	})
}

// TestGuessingIsSlowed checks that failures delay one user at one network: neither other users there nor the same user
// elsewhere.
func TestGuessingIsSlowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := users(t)
		guess := func(from netip.Addr, user string) time.Duration {
			var e *RejectedError
			if err := u.Check(t.Context(), from, user, "wrong"); !errors.As(err, &e) {
				t.Fatalf("a wrong password: %v", err)
			}
			return e.RetryAfter
		}
		for i := range freeFailures + 1 {
			if wait := guess(here, "news"); wait != 0 {
				t.Fatalf("guess %d has to wait %v", i+1, wait)
			}
		}
		for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			if wait := guess(here, "news"); wait != want*time.Second {
				t.Errorf("the wait is %v, want %d s", wait, want)
			}
			if err := u.Check(t.Context(), here, "news", "s3cr3t"); err == nil {
				t.Error("the right password is accepted while guesses are delayed: that tells it from wrong ones")
			}
			if err := u.Check(t.Context(), there, "news", "s3cr3t"); err != nil {
				t.Errorf("the same user elsewhere: %v", err)
			}
			if err := u.Check(t.Context(), here, "lab", "pass:word"); err != nil {
				t.Errorf("another user there: %v", err)
			}
			time.Sleep(want * time.Second)
			guess(here, "news")
		}
		for range freeFailures + 1 {
			guess(here, "nobody")
		}
		if guess(here, "nobody") != time.Second {
			t.Error("an unknown user is delayed differently from a known one")
		}
		time.Sleep(failureLife + time.Second)
		if err := u.Check(t.Context(), here, "news", "s3cr3t"); err != nil {
			t.Errorf("after the failures expired: %v", err)
		}
	})
}

// TestGuessersDoNotBlockOthers checks that a thousand guesses of one network do not delay another, and leave no state.
func TestGuessersDoNotBlockOthers(t *testing.T) {
	u := users(t)
	u.hashing = make(chan struct{}, 1)
	u.hashing <- struct{}{} // occupied
	var crowd sync.WaitGroup
	ctx, disperse := context.WithCancel(t.Context())
	defer disperse()
	results := make(chan error, 2*maxWaiting)
	for i := range maxWaiting + 10 {
		crowd.Go(func() { results <- u.Check(ctx, here, fmt.Sprint("user", i), "wrong") })
	}
	for range 10 { // those over maxWaiting end at once
		if err := <-results; !errors.Is(err, ErrBusy) {
			t.Fatalf("one too many: %v", err)
		}
	}
	other := make(chan error, 1)
	go func() { other <- u.Check(t.Context(), there, "news", "s3cr3t") }()
	for waiting := 0; waiting < 2; time.Sleep(time.Millisecond) { // one of the crowd and the other wait to compute a hash
		u.networks.mu.Lock()
		waiting = len(u.networks.locks)
		u.networks.mu.Unlock()
	}
	<-u.hashing
	if err := <-other; err != nil {
		t.Errorf("from elsewhere: %v", err)
	}
	disperse()
	crowd.Wait()
	if len(u.networks.locks) != 0 || len(u.hashing) != 0 {
		t.Errorf("%d locks and %d hashes are left", len(u.networks.locks), len(u.hashing))
	}
}

// TestGuessesAreBounded checks that the failures that are kept have a bound.
func TestGuessesAreBounded(t *testing.T) {
	var g throttle
	now := time.Now()
	for i := range uint64(3 * maxAttempts) {
		g.fail(i, now)
	}
	if n := len(g.failures); n > maxAttempts {
		t.Errorf("%d attempts are kept, want at most %d", n, maxAttempts)
	}
	g.fail(1<<40, now.Add(failureLife+time.Second))
	if n := len(g.failures); n != 1 {
		t.Errorf("%d attempts are kept after all but one expired", n)
	}
}

// TestCheckEnds checks that a check that cannot be made ends after a time, and with its context.
func TestCheckEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := users(t)
		u.hashing = make(chan struct{})
		begun := time.Now()
		if err := u.Check(t.Context(), here, "news", "s3cr3t"); !errors.Is(err, ErrBusy) || time.Since(begun) != checkTimeout {
			t.Errorf("without a free processor: %v after %v", err, time.Since(begun))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := u.Check(ctx, here, "news", "s3cr3t"); !errors.Is(err, context.Canceled) {
			t.Errorf("of a client that left: %v", err)
		}
	})
}

func TestNetwork(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1": "192.0.2.1/32", "::ffff:192.0.2.1": "192.0.2.1/32", "2001:db8:1:2:3::4": "2001:db8:1:2::/64", "fe80::1%eth0": "fe80::/64",
	} {
		if got := Network(netip.MustParseAddr(addr)).String(); got != want {
			t.Errorf("the network of %s is %s, want %s", addr, got, want)
		}
	}
}

// TestUsersAreReadAgain replaces the file by good and bad ones. Failed attempts are not forgotten.
func TestUsersAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := users(t)
		for range freeFailures + 1 {
			_ = old.Check(t.Context(), here, "news", "guess")
		}
		path := filepath.Join(t.TempDir(), "htpasswd")
		for text, want := range map[string]string{
			"news:pl4in": "is not a bcrypt hash", "": "the file has no user", "news:" + hashOf(t, "x")[:30]: "is not a bcrypt hash",
		} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if next, err := old.Reload(path); next != nil || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Reload of %q = %v, %v; want %q", text, next, err, want)
			}
		}
		if err := os.WriteFile(path, []byte("news:"+hashOf(t, "changed")+"\nnext:"+hashOf(t, "pw")), 0o600); err != nil {
			t.Fatal(err)
		}
		next, err := old.Reload(path)
		if err != nil {
			t.Fatal(err)
		}
		var rejected *RejectedError
		if err := next.Check(t.Context(), here, "news", "changed"); !errors.As(err, &rejected) || rejected.RetryAfter <= 0 || rejected.Failures != freeFailures+1 {
			t.Errorf("after the reload a guesser is answered %v, %+v; want a delay after %d failures", err, rejected, freeFailures+1)
		}
		for password, want := range map[string]bool{"s3cr3t": false, "changed": true} {
			if err := next.Check(t.Context(), there, "news", password); (err == nil) != want {
				t.Errorf("after the reload %q: %v, want it accepted: %t", password, err, want)
			}
		}
		if next.Has("lab") || !next.Has("next") || !old.Has("lab") {
			t.Error("the reload changed the old users, or not the new ones")
		}
	})
}
