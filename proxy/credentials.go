package proxy

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// Credentials are the users of an htpasswd file and their passwords. They are asked for every request, so a password that
// was right is known again for a while by a keyed hash; everything else costs one bcrypt, whether the user exists or not.
type Credentials struct {
	accounts map[string]*account
	all      []*account
	key      [sha256.Size]byte // of the proofs, in this process alone
	seed     maphash.Seed
	slots    chan struct{} // one for each bcrypt at a time: guessing may not take the whole machine
	turns    turns
	guesses  guesses
}

// account is what is known of one user.
type account struct {
	hash []byte // bcrypt

	mu    sync.Mutex        // guards what follows
	proof [sha256.Size]byte // of the password that was right
	until time.Time         // when the proof is forgotten
}

const (
	proofLife = 5 * time.Minute  // after its last use
	checkTime = 10 * time.Second // how long a check may wait for its turn
	maxCost   = 15               // of a bcrypt hash: beyond, one check takes seconds
)

// errGuess is what a check ends with that found no such user with this password. Which of the two was wrong is not known
// to anybody outside.
type errGuess struct{ wait time.Duration }

func (e errGuess) Error() string {
	if e.wait > 0 {
		return fmt.Sprintf("too many wrong credentials; the next are looked at in %v", e.wait.Round(time.Second))
	}
	return "no user has these credentials"
}

// errBusy is for a check that could not be made in time.
var errBusy = errors.New("too many credentials are being checked")

// LoadCredentials reads an htpasswd file: user:hash on each line, blank lines and # comments aside. Hashes are bcrypt's
// ($2a$, $2b$, $2y$), as "htpasswd -B" makes them; every other kind is refused, since it is weak or no hash at all. The
// file is read once.
func LoadCredentials(path string) (*Credentials, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("proxy: reading passwords: %w", err)
	}
	defer f.Close()
	c, err := readCredentials(f)
	if err != nil {
		return nil, fmt.Errorf("proxy: %s: %w", path, err)
	}
	return c, nil
}

func readCredentials(r io.Reader) (*Credentials, error) {
	c := &Credentials{accounts: make(map[string]*account), seed: maphash.MakeSeed(), slots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1))}
	if _, err := rand.Read(c.key[:]); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if err := c.add(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(c.all) == 0 {
		return nil, errors.New("it names no user")
	}
	return c, nil
}

// add takes in one line. Its errors repeat nothing of the hash, which may be a password in clear.
func (c *Credentials) add(line string) error {
	user, hash, ok := strings.Cut(line, ":")
	if !ok || user == "" {
		return errors.New("found no user and hash, expected user:hash")
	}
	if _, twice := c.accounts[user]; twice {
		return fmt.Errorf("the user %q is there already", user)
	}
	cost, err := bcrypt.Cost([]byte(hash))
	switch {
	case err != nil || len(hash) != 60:
		return fmt.Errorf(`the password of %q is no bcrypt hash; "htpasswd -B FILE %s" makes one`, user, user)
	case cost > maxCost:
		return fmt.Errorf("the hash of %q has the cost %d, which takes seconds for each check; %d is the most", user, cost, maxCost)
	}
	a := &account{hash: []byte(hash)}
	c.accounts[user] = a
	c.all = append(c.all, a)
	return nil
}

// Has reports whether user is one of the file.
func (c *Credentials) Has(user string) bool {
	_, ok := c.accounts[user]
	return ok
}

// check returns nil if password is user's, and else an errGuess, errBusy, or that ctx has ended. Guesses from one network
// are checked one after the other, so that those from others get their turn.
func (c *Credentials) check(ctx context.Context, from netip.Addr, user, password string) error {
	a, known := c.accounts[user]
	proof := c.prove(user, password)
	if known && a.proved(proof, time.Now()) {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, checkTime, errBusy)
	defer cancel()
	network := networkOf(from)
	leave, err := c.turns.take(ctx, network)
	if err != nil {
		return err
	}
	defer leave()
	if known && a.proved(proof, time.Now()) {
		return nil // by the check that we waited for: crawlers open many connections at once
	}
	guess := maphash.Comparable(c.seed, guesser{network, user})
	if wait := c.guesses.wait(guess, time.Now()); wait > 0 {
		return errGuess{wait}
	}
	if !known {
		a = c.decoy(user)
	}
	right, err := c.compare(ctx, a, password)
	if err != nil {
		return err
	}
	if !known || !right {
		c.guesses.add(guess, time.Now())
		return errGuess{}
	}
	a.keep(proof, time.Now())
	return nil
}

// guesser is who tries to be whom.
type guesser struct {
	network netip.Prefix
	user    string
}

// compare computes the hash, when there is a free slot.
func (c *Credentials) compare(ctx context.Context, a *account, password string) (bool, error) {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	return bcrypt.CompareHashAndPassword(a.hash, []byte(password)) == nil, nil
}

// decoy returns the account whose hash is computed for a user who does not exist: always the same for one name, as it is
// for those who do, so that hashes of different cost tell nothing.
func (c *Credentials) decoy(user string) *account {
	return c.all[maphash.String(c.seed, user)%uint64(len(c.all))]
}

// prove returns what is kept of a password in its place.
func (c *Credentials) prove(user, password string) (proof [sha256.Size]byte) {
	h := hmac.New(sha256.New, c.key[:])
	h.Write([]byte(user + ":" + password)) // a user name holds no colon (RFC 7617 section 2)
	h.Sum(proof[:0])
	return proof
}

// proved reports whether proof is that of the password that was right, and keeps it then.
func (a *account) proved(proof [sha256.Size]byte, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !now.Before(a.until) || !hmac.Equal(proof[:], a.proof[:]) {
		return false
	}
	a.until = now.Add(proofLife)
	return true
}

func (a *account) keep(proof [sha256.Size]byte, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.proof, a.until = proof, now.Add(proofLife)
}
