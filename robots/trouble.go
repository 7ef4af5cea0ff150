package robots

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// For how long a good copy stays in use while its origin gives no better one.
const (
	patience     = 30 * 24 * time.Hour // if it is unreachable (RFC 9309 section 2.3.1.4)
	wallPatience = 24 * time.Hour      // if it answers with a web page, 401 or 403: a bot wall may be short-lived
)

// grace is the time for which a stale copy stays in use while the origin is asked again, so that no request waits for a
// site that does not answer.
const grace = time.Minute

// longestError is the longest time for which a failure is kept, unless the origin asked for more.
const longestError = 30 * time.Minute

// supersede returns the Snapshot that counts after answer: answer itself, or before as a stale copy. Before may be nil.
// It may change answer.
func supersede(before, answer *Snapshot, unreachableAllows bool) *Snapshot {
	failed, walled := answer.Availability == Unreachable, answer.Flags&fetch.Wall != 0
	if !failed && !walled {
		return answer
	}
	t := troubleOf(before, answer)
	switch lasted := answer.Fetched.Sub(t.since); {
	case before.isGood() && lasted < answer.patience():
		return before.outlive(answer, t)
	case !failed:
		return answer // a wall without a good copy, or an old one, counts as Options say
	case !walled && lasted >= patience && unreachableAllows: // a refused wall is our choice, which time does not change
		answer.Availability = Unavailable
	}
	answer.Since, answer.Failures, answer.Expires = t.since, t.failures, t.expires
	return answer
}

// patience returns for how long a good copy counts in place of a Snapshot with the flags of s.
func (s *Snapshot) patience() time.Duration {
	if s.Flags&fetch.Wall != 0 {
		return wallPatience
	}
	return patience
}

// isGood reports whether s has rules from the origin.
func (s *Snapshot) isGood() bool {
	return s != nil && s.Availability == Found && (s.Stale || s.Flags&WebPage == 0)
}

// trouble describes the failures of an origin in a row.
type trouble struct {
	since    time.Time
	failures int
	expires  time.Time // when to fetch again
}

// troubleOf adds answer to the failures of before. Each failure doubles the time to the next fetch.
func troubleOf(before, answer *Snapshot) trouble {
	t := trouble{since: answer.Fetched, failures: 1}
	asked := longestError
	if answer.Availability == Unreachable { // else it has the lifetime of a good answer
		asked = answer.Expires.Sub(answer.Fetched)
	}
	if before != nil && before.Failures > 0 {
		t.since, t.failures = answer.since(before), before.Failures+1
	}
	doubled := min(asked<<min(t.failures-1, 16), longestError) // 16 doublings of a day fit a Duration
	t.expires = answer.Fetched.Add(max(asked, doubled))
	return t
}

// since returns when the trouble of s began, if before was in trouble. An origin that goes from failures to a wall, or
// back, begins anew, but only within the patience of one of them: an old copy must not count forever.
func (s *Snapshot) since(before *Snapshot) time.Time {
	same := (before.Flags&fetch.Wall == 0) == (s.Flags&fetch.Wall == 0)
	if same || before.Stale && s.Fetched.Sub(before.Fetched) > patience {
		return before.Since
	}
	return s.Fetched
}

// outlive returns the copy s as it counts in place of answer.
func (s *Snapshot) outlive(answer *Snapshot, t trouble) *Snapshot {
	stale := s.copy()
	stale.Stale, stale.Status = true, answer.Status
	stale.Since, stale.Failures, stale.Expires = t.since, t.failures, t.expires.Add(grace)
	stale.Flags = s.Flags&^fetch.Wall | answer.Flags&fetch.Wall
	stale.Cause, stale.Err = cmp.Or(answer.Cause, "destination_unavailable"), answer.Err
	if stale.Err == nil {
		stale.Err = answer.wallError()
	}
	if answer.Status == http.StatusNotModified {
		stale.ETag, stale.LastModified = "", "" // the 304 did not match them: the next request must not be conditional
	}
	return stale
}

// wallError returns the error of s, which is a wall without an error.
func (s *Snapshot) wallError() error {
	if s.Flags&WebPage != 0 {
		return fetch.ErrWebPage
	}
	return fmt.Errorf("the origin answers %d, where it had a file", s.Status)
}

// errPaused is the error of a copy that stays in use while its host is paused.
var errPaused = errors.New("the host is paused, and its file has expired")

// extend returns the copy s as it counts until the given time, or nil if s is too old for that.
func (s *Snapshot) extend(now, until time.Time, why error) *Snapshot {
	if !s.isGood() || s.Stale && now.Sub(s.Since) >= s.patience() {
		return nil
	}
	stale := s.copy()
	stale.Stale, stale.Expires = true, now.Add(min(until.Sub(now), fetch.MaxTTL)+grace)
	if !s.Stale {
		stale.Since, stale.Cause, stale.Err = now, "destination_unavailable", why
	}
	return stale
}

// changeOf returns the change from before to s, or nil. It compares the bodies of files only: the body of a web page
// may differ each time.
func changeOf(before, s *Snapshot) *Change {
	if before == nil || before.State() == s.State() && (!s.isGood() || before.SHA256 == s.SHA256) {
		return nil
	}
	c := &Change{
		Origin: s.Origin, Time: time.Now(),
		OldSHA256: before.SHA256, NewSHA256: s.SHA256, OldState: before.State(), NewState: s.State(),
	}
	if s.Err != nil {
		c.Why = s.Err.Error()
	}
	return c
}
