// Package auth checks the passwords of proxy users against an htpasswd file, and slows down guessing.
//
//	users, err := auth.LoadUsers("crawlers.htpasswd")
//	...
//	err = users.Check(ctx, remoteAddr, "news", password)
//	var rejected *auth.RejectedError
//	if errors.As(err, &rejected) && rejected.RetryAfter > 0 {
//		// too many failures from there: the password was not looked at
//	}
//
// Check is called for every request, so a password that was right is recognised for a while by a keyed hash. Every
// other check costs one bcrypt, whether or not the user exists, so that neither the error nor the time tells an unknown
// user from a wrong password. The checks of one network run one at a time, and after several failures for one user they
// are delayed; other networks and other users are not affected.
//
// The package does not watch the file, and does not parse HTTP. Reload reads a file that has changed.
//
// Certificates are the other way to know a client: by the subject of its TLS certificate.
package auth

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
	"iter"
	"maps"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// Users are the users of an htpasswd file. LoadUsers returns them; the zero value is not usable. All methods may be
// called concurrently.
type Users struct {
	accounts map[string]*account
	all      []*account
	key      [sha256.Size]byte // of the digests; random for each Users
	*guesses
}

// guesses slow down guessing. Users that replace others have theirs.
type guesses struct {
	seed     maphash.Seed
	hashing  chan struct{} // a semaphore: bcrypt may not occupy every processor
	networks networkLocks
	throttle throttle
}

// account is one user.
type account struct {
	hash []byte // bcrypt

	mu      sync.Mutex        // guards the fields below
	digest  [sha256.Size]byte // of the password that was right
	expires time.Time         // of digest
}

const (
	digestLife   = 5 * time.Minute  // after its last use
	checkTimeout = 10 * time.Second // for one Check, including the wait for others
	maxCost      = 15               // of a bcrypt hash: one check with a higher cost takes seconds
)

// ErrBusy is the error of a check that was not made within 10 seconds, or that found 1000 others of its network
// waiting.
var ErrBusy = errors.New("too many credentials are being checked")

// RejectedError is the error for wrong credentials. It does not say whether the user or the password was wrong.
type RejectedError struct {
	// RetryAfter is the time until the next attempt is checked. It is zero if this attempt was checked, and positive if
	// it was rejected unseen because of earlier failures.
	RetryAfter time.Duration

	// Failures is how many attempts for that user have failed from that network, this one included if it was checked. Ten
	// minutes after the last one they are forgotten.
	Failures int
}

func (e *RejectedError) Error() string {
	if e.RetryAfter > 0 {
		return fmt.Sprintf("too many invalid credentials; the next are checked in %v", e.RetryAfter.Round(time.Second))
	}
	return "invalid user or password"
}

// LoadUsers reads an htpasswd file: user:hash on each line; blank lines and # comments are skipped. It accepts the
// bcrypt hashes ($2a$, $2b$, $2y$) that "htpasswd -B" writes, and rejects a file with any other: those are weak or no
// hash.
func LoadUsers(path string) (*Users, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("auth: reading passwords: %w", err)
	}
	defer f.Close()
	u, err := readUsers(f)
	if err != nil {
		return nil, fmt.Errorf("auth: %s: %w", path, err)
	}
	return u, nil
}

// Reload returns the Users of the htpasswd file at path, to replace u: they remember the failed attempts of u, so that
// guesses are delayed as before. It does not change u. Its errors are those of LoadUsers.
func (u *Users) Reload(path string) (*Users, error) {
	next, err := LoadUsers(path)
	if err != nil {
		return nil, err
	}
	next.guesses = u.guesses
	return next, nil
}

func readUsers(r io.Reader) (*Users, error) {
	u := &Users{accounts: make(map[string]*account), guesses: &guesses{
		seed: maphash.MakeSeed(), hashing: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1)),
	}}
	rand.Read(u.key[:]) // never fails
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if err := u.add(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(u.all) == 0 {
		return nil, errors.New("the file has no user")
	}
	return u, nil
}

// add adds the user of one line. Its errors do not repeat the hash, which may be a password in clear.
func (u *Users) add(line string) error {
	name, hash, ok := strings.Cut(line, ":")
	if !ok || name == "" {
		return errors.New("found no user and hash, expected user:hash")
	}
	if _, twice := u.accounts[name]; twice {
		return fmt.Errorf("the user %q is listed twice", name)
	}
	cost, err := bcrypt.Cost([]byte(hash))
	switch {
	case err != nil || len(hash) != 60:
		return fmt.Errorf(`the password of %q is not a bcrypt hash; create one with "htpasswd -B FILE %s"`, name, name)
	case cost > maxCost:
		return fmt.Errorf("the hash of %q has the cost %d, which takes seconds for each check; the maximum is %d",
			name, cost, maxCost)
	}
	a := &account{hash: []byte(hash)}
	u.accounts[name] = a
	u.all = append(u.all, a)
	return nil
}

// Has reports whether the file lists name.
func (u *Users) Has(name string) bool {
	_, ok := u.accounts[name]
	return ok
}

// Names returns the users of the file, in no particular order.
func (u *Users) Names() iter.Seq[string] { return maps.Keys(u.accounts) }

// Check returns nil if name has password. Otherwise it returns a *RejectedError, ErrBusy, or the cause of ctx's end.
// The checks for one Network of from run one at a time, so that guesses from one network do not delay other networks.
func (u *Users) Check(ctx context.Context, from netip.Addr, name, password string) error {
	a, known := u.accounts[name]
	digest := u.digest(name, password)
	network := Network(from)
	key := maphash.Comparable(u.seed, attempt{network, name})
	// Before recall: it costs so little that guesses at the remembered password would be fast.
	if err := u.delayed(key); err != nil {
		return err
	}
	if known && a.recall(digest, time.Now()) {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, ErrBusy)
	defer cancel()
	unlock, err := u.networks.lock(ctx, network)
	if err != nil {
		return err
	}
	defer unlock()
	if err := u.delayed(key); err != nil {
		return err
	}
	// Look again: a crawler opens many connections at once, and the check before this one may have been for the same
	// password.
	if known && a.recall(digest, time.Now()) {
		return nil
	}
	if !known {
		a = u.decoy(name)
	}
	right, err := u.compare(ctx, a, password)
	if err != nil {
		return err
	}
	if !known || !right {
		return &RejectedError{Failures: u.throttle.fail(key, time.Now())}
	}
	a.remember(digest, time.Now())
	return nil
}

// delayed returns a *RejectedError if the attempts of key are delayed.
func (u *Users) delayed(key uint64) error {
	if wait := u.throttle.wait(key, time.Now()); wait > 0 {
		return &RejectedError{RetryAfter: wait, Failures: u.throttle.count(key)}
	}
	return nil
}

// attempt identifies the attempts that the throttle counts together.
type attempt struct {
	network netip.Prefix
	user    string
}

// compare compares password with the hash of a, once the semaphore is free.
func (u *Users) compare(ctx context.Context, a *account, password string) (bool, error) {
	select {
	case u.hashing <- struct{}{}:
		defer func() { <-u.hashing }()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	return bcrypt.CompareHashAndPassword(a.hash, []byte(password)) == nil, nil
}

// decoy returns the account whose hash is computed for an unknown user. It depends on the name alone, as it does for a
// known user, so that hashes of different cost do not tell the two apart.
func (u *Users) decoy(name string) *account {
	return u.all[maphash.String(u.seed, name)%uint64(len(u.all))]
}

// digest returns what is kept in memory instead of a password.
func (u *Users) digest(name, password string) (digest [sha256.Size]byte) {
	h := hmac.New(sha256.New, u.key[:])
	h.Write([]byte(name + ":" + password)) // a user name contains no colon (RFC 7617 section 2)
	h.Sum(digest[:0])
	return digest
}

// recall reports whether digest is that of the password that was right, and if so extends its life.
func (a *account) recall(digest [sha256.Size]byte, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !now.Before(a.expires) || !hmac.Equal(digest[:], a.digest[:]) {
		return false
	}
	a.expires = now.Add(digestLife)
	return true
}

func (a *account) remember(digest [sha256.Size]byte, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.digest, a.expires = digest, now.Add(digestLife)
}
