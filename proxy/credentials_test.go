package proxy

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

// hashOf makes a hash that costs a test nothing.
func hashOf(t testing.TB, password string) string {
	t.Helper()
	h, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return string(h)
}

// users returns the credentials of news (s3cr3t) and lab (pass:word).
func users(t testing.TB) *Credentials {
	t.Helper()
	path := filepath.Join(t.TempDir(), "htpasswd")
	lines := "# crawlers\n\nnews:" + hashOf(t, "s3cr3t") + "\r\nlab:" + hashOf(t, "pass:word") + "\n"
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := LoadCredentials(path)
	if err != nil {
		t.Fatal(err)
	}
	return c
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
		{"plaintext", "a:" + good + "\nb:pl4in", `line 2: the password of "b" is no bcrypt hash; "htpasswd -B FILE b" makes one`},
		{"MD5", "b:$apr1$salt$qZqYmT2e6N1vN8rXG3uC9.", `line 1: the password of "b" is no bcrypt hash; "htpasswd -B FILE b" makes one`},
		{"SHA-1", "b:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", `line 1: the password of "b" is no bcrypt hash; "htpasswd -B FILE b" makes one`},
		{"SHA-512 crypt", "b:$6$salt$x", `line 1: the password of "b" is no bcrypt hash; "htpasswd -B FILE b" makes one`},
		{"cut off", "b:" + good[:50], `line 1: the password of "b" is no bcrypt hash; "htpasswd -B FILE b" makes one`},
		{"too long", "b:" + good + "x", `line 1: the password of "b" is no bcrypt hash; "htpasswd -B FILE b" makes one`},
		{"cost of hours", "b:$2a$31" + good[6:], `line 1: the hash of "b" has the cost 31, which takes seconds for each check; 15 is the most`},
		{"no password", "b:", `line 1: the password of "b" is no bcrypt hash; "htpasswd -B FILE b" makes one`},
		{"no user", ":" + good, "line 1: found no user and hash, expected user:hash"},
		{"no colon", "pl4in", "line 1: found no user and hash, expected user:hash"},
		{"user twice", "a:" + good + "\na:" + good, `line 2: the user "a" is there already`},
		{"empty", "\n# nobody\n", "it names no user"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := readCredentials(strings.NewReader(row.text))
			if got := fmt.Sprint(err); got != row.want && !(err == nil && row.want == "") {
				t.Errorf("reading %q: %v, want %q", row.text, err, row.want)
			}
			if err != nil && (strings.Contains(err.Error(), "pl4in") || strings.Contains(err.Error(), good[:20])) {
				t.Errorf("the error tells a secret: %v", err)
			}
		})
	}
	if _, err := LoadCredentials(filepath.Join(t.TempDir(), "nowhere")); err == nil {
		t.Error("a file that is not there was read")
	}
}

func TestCredentials(t *testing.T) {
	c := users(t)
	for _, row := range []struct {
		user, password string
		ok             bool
	}{
		{"news", "s3cr3t", true},
		{"news", "s3cr3t", true}, // by its proof
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
		err := c.check(t.Context(), here, row.user, row.password)
		if wrong := (errGuess{}); (err == nil) != row.ok || err != nil && err != wrong {
			t.Errorf("%.20q with %.20q: %v, want ok=%t", row.user, row.password, err, row.ok)
		}
	}
}

// A user who does not exist costs what one costs who does, so that the time tells nothing: one hash, and of a real account.
func TestUnknownUserCostsAsMuch(t *testing.T) {
	c := users(t)
	for _, a := range c.all {
		a.hash = []byte(hashOf(t, "x"))
	}
	c.slots = make(chan struct{}) // nobody gets one, so whoever wants to compute a hash is seen
	for _, user := range []string{"news", "lab", "nobody", "x", ""} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if err := c.check(ctx, here, user, "wrong"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q: %v, want that it waited for its turn to compute a hash", user, err)
		}
		cancel()
	}
	if first := c.decoy("nobody"); !slices.Contains(c.all, first) || c.decoy("nobody") != first {
		t.Fatal("the decoy of one name changes, which those of real users do not")
	}
}

// A password that was right costs one hash, however often it is sent, and is forgotten when it is not sent for a while.
func TestProofs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := users(t)
		slots := c.slots
		c.slots = make(chan struct{})
		var group sync.WaitGroup
		for range 50 { // a crawler opens its connections at once
			group.Go(func() {
				if err := c.check(t.Context(), here, "news", "s3cr3t"); err != nil {
					t.Error(err)
				}
			})
		}
		<-c.slots // one takes a slot, and gives it back; nobody is there for a second
		c.slots <- struct{}{}
		group.Wait()
		c.slots = slots
		c.accounts["news"].hash = []byte(hashOf(t, "changed")) // from here on only the proof is right
		for range 3 {
			time.Sleep(proofLife - time.Second)
			if err := c.check(t.Context(), there, "news", "s3cr3t"); err != nil {
				t.Errorf("while it is used: %v", err)
			}
		}
		if err := c.check(t.Context(), there, "news", "s3cr3T"); err == nil {
			t.Error("another password passes by the proof")
		}
		time.Sleep(proofLife)
		if err := c.check(t.Context(), there, "news", "s3cr3t"); err == nil {
			t.Error("the proof never ends")
		}
		if allocs := testing.AllocsPerRun(100, func() { c.accounts["news"].proved(c.prove("news", "changed"), time.Now()) }); allocs > 15 {
			t.Errorf("a proof allocates %v times", allocs)
		}
	})
}

// Guessing is slowed for who guesses, and for nobody else: not for other users there, nor for the same user elsewhere.
func TestGuessingIsSlowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := users(t)
		guess := func(from netip.Addr, user string) time.Duration {
			var e errGuess
			if err := c.check(t.Context(), from, user, "wrong"); !errors.As(err, &e) {
				t.Fatalf("a wrong password: %v", err)
			}
			return e.wait
		}
		for i := range freeGuesses + 1 {
			if wait := guess(here, "news"); wait != 0 {
				t.Fatalf("guess %d has to wait %v", i+1, wait)
			}
		}
		for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			if wait := guess(here, "news"); wait != want*time.Second {
				t.Errorf("the wait is %v, want %d s", wait, want)
			}
			if err := c.check(t.Context(), here, "news", "s3cr3t"); err == nil {
				t.Error("the right password is looked at while guesses are not: it would be told from wrong ones")
			}
			if err := c.check(t.Context(), there, "news", "s3cr3t"); err != nil {
				t.Errorf("the same user elsewhere: %v", err)
			}
			c.accounts["news"].until = time.Time{} // no proof helps
			if err := c.check(t.Context(), here, "lab", "pass:word"); err != nil {
				t.Errorf("another user there: %v", err)
			}
			time.Sleep(want * time.Second)
			guess(here, "news")
		}
		for range freeGuesses + 1 {
			guess(here, "nobody")
		}
		if guess(here, "nobody") != time.Second {
			t.Error("who does not exist is slowed otherwise than who does")
		}
		time.Sleep(guessLife + time.Second)
		if err := c.check(t.Context(), here, "news", "s3cr3t"); err != nil {
			t.Errorf("when all is forgotten: %v", err)
		}
	})
}

// Somebody who guesses with a thousand connections leaves others their turn, and leaves nothing behind.
func TestGuessersDoNotBlockOthers(t *testing.T) {
	c := users(t)
	c.slots = make(chan struct{}, 1)
	c.slots <- struct{}{} // the one slot is taken
	var crowd sync.WaitGroup
	ctx, disperse := context.WithCancel(t.Context())
	defer disperse()
	results := make(chan error, 2*maxWaiting)
	for i := range maxWaiting + 10 {
		crowd.Go(func() { results <- c.check(ctx, here, fmt.Sprint("user", i), "wrong") })
	}
	for range 10 { // more than may wait are sent away at once
		if err := <-results; !errors.Is(err, errBusy) {
			t.Fatalf("one too many: %v", err)
		}
	}
	other := make(chan error, 1)
	go func() { other <- c.check(t.Context(), there, "news", "s3cr3t") }()
	for waiting := 0; waiting < 2; time.Sleep(time.Millisecond) { // one of the crowd and the other wait for the slot
		c.turns.mu.Lock()
		waiting = len(c.turns.queue)
		c.turns.mu.Unlock()
	}
	<-c.slots
	if err := <-other; err != nil {
		t.Errorf("who comes from elsewhere: %v", err)
	}
	disperse()
	crowd.Wait()
	if len(c.turns.queue) != 0 || len(c.slots) != 0 {
		t.Errorf("%d queues and %d slots are left", len(c.turns.queue), len(c.slots))
	}
}

// What is remembered of guesses has a bound, whatever is sent.
func TestGuessesAreBounded(t *testing.T) {
	var g guesses
	now := time.Now()
	for i := range uint64(3 * maxGuessers) {
		g.add(i, now)
	}
	if n := len(g.failures); n > maxGuessers {
		t.Errorf("%d guessers are remembered, want %d at most", n, maxGuessers)
	}
	g.add(1<<40, now.Add(guessLife+time.Second))
	if n := len(g.failures); n != 1 {
		t.Errorf("%d guessers are remembered after all but one were forgotten", n)
	}
}

// A check that cannot be made says so in time, and one whose client has left ends.
func TestCheckEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := users(t)
		c.slots = make(chan struct{})
		begun := time.Now()
		if err := c.check(t.Context(), here, "news", "s3cr3t"); !errors.Is(err, errBusy) || time.Since(begun) != checkTime {
			t.Errorf("without a free slot: %v after %v", err, time.Since(begun))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.check(ctx, here, "news", "s3cr3t"); !errors.Is(err, context.Canceled) {
			t.Errorf("of a client that left: %v", err)
		}
	})
}

func TestNetworkOf(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1": "192.0.2.1/32", "::ffff:192.0.2.1": "192.0.2.1/32", "2001:db8:1:2:3::4": "2001:db8:1:2::/64", "fe80::1%eth0": "fe80::/64",
	} {
		if got := networkOf(netip.MustParseAddr(addr)).String(); got != want {
			t.Errorf("the network of %s is %s, want %s", addr, got, want)
		}
	}
}
