package robots

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// For how long a good copy counts while its origin gives none.
const (
	patience     = 30 * 24 * time.Hour // where it cannot be reached (RFC 9309 section 2.3.1.4)
	wallPatience = 24 * time.Hour      // where a web page, 401 or 403 stands in its place: a bot wall may go as it came
)

// grace is for how long a copy still counts after it was time to ask again: so nobody waits for a site that hangs.
const grace = time.Minute

// longestError is how long a failure is kept at the most, unless the origin itself asked for more.
const longestError = 30 * time.Minute

// weigh returns what counts after answer has come, where before was kept until now, which may be nil: answer, or the good
// copy that it cannot take the place of. Answer is nobody else's yet.
func weigh(before, answer *Snapshot, unreachableAllows bool) *Snapshot {
	failed, walled := answer.Availability == Unreachable, answer.Marks&wall != 0
	if !failed && !walled {
		return answer
	}
	t := troubleOf(before, answer)
	switch lasted := answer.Fetched.Sub(t.since); {
	case before.isGood() && lasted < answer.patience():
		return before.outlive(answer, t)
	case !failed:
		return answer // a wall in the place of nothing, or one that has stood for long enough, counts as configured
	case !walled && lasted >= patience && unreachableAllows: // that we refuse a wall is our own choice, which time does not change
		answer.Availability = Unavailable
	}
	answer.Since, answer.Failures, answer.Expires = t.since, t.failures, t.expires
	return answer
}

// patience returns for how long a good copy counts in the place of what has the marks of s.
func (s *Snapshot) patience() time.Duration {
	if s.Marks&wall != 0 {
		return wallPatience
	}
	return patience
}

// isGood reports whether s holds rules that the origin gave.
func (s *Snapshot) isGood() bool {
	return s != nil && s.Availability == Found && (s.Stale || s.Marks&WebPage == 0)
}

// trouble is what an origin is in that gives no good answer.
type trouble struct {
	since    time.Time
	failures int       // in a row
	expires  time.Time // when to ask again
}

// troubleOf counts answer among the failures in a row, and doubles the time until the next for each before it.
func troubleOf(before, answer *Snapshot) trouble {
	t := trouble{since: answer.Fetched, failures: 1}
	asked := longestError
	if answer.Availability == Unreachable { // else its lifetime is that of an answer that counts
		asked = answer.Expires.Sub(answer.Fetched)
	}
	if before != nil && before.Failures > 0 {
		t.since, t.failures = answer.since(before), before.Failures+1
	}
	doubled := min(asked<<min(t.failures-1, 16), longestError) // 16 doublings of a day still fit a Duration
	t.expires = answer.Fetched.Add(max(asked, doubled))
	return t
}

// since returns when the trouble of s began, where before was in trouble. A wall is another than a failure, since who
// answers is reached; but an origin that changes between the two has the patience of one, or an old copy would count for
// ever.
func (s *Snapshot) since(before *Snapshot) time.Time {
	same := (before.Marks&wall == 0) == (s.Marks&wall == 0)
	if same || before.Stale && s.Fetched.Sub(before.Fetched) > patience {
		return before.Since
	}
	return s.Fetched
}

// outlive returns the copy s as it counts in the place of answer.
func (s *Snapshot) outlive(answer *Snapshot, t trouble) *Snapshot {
	stale := s.copy()
	stale.Stale, stale.Status = true, answer.Status
	stale.Since, stale.Failures, stale.Expires = t.since, t.failures, t.expires.Add(grace)
	stale.Marks = s.Marks&^wall | answer.Marks&wall
	stale.Cause, stale.Err = cmp.Or(answer.Cause, "destination_unavailable"), answer.Err
	if stale.Err == nil {
		stale.Err = answer.wallError()
	}
	if answer.Status == http.StatusNotModified {
		stale.ETag, stale.LastModified = "", "" // it was no answer to these: the next request is to be without
	}
	return stale
}

// wallError is why s, which holds or tells nothing wrong, does not count at once.
func (s *Snapshot) wallError() error {
	if s.Marks&WebPage != 0 {
		return errWebPage
	}
	return fmt.Errorf("the origin answers %d, where it had a file", s.Status)
}

// errPaused is why an older copy counts while its host wants no requests.
var errPaused = errors.New("the host is paused, and its file has expired")

// wait returns the copy s as it counts until a pause of its host ends, or nil where it is too old for that.
func (s *Snapshot) wait(now, until time.Time, why error) *Snapshot {
	if !s.isGood() || s.Stale && now.Sub(s.Since) >= s.patience() {
		return nil
	}
	stale := s.copy()
	stale.Stale, stale.Expires = true, now.Add(min(until.Sub(now), longest)+grace)
	if !s.Stale {
		stale.Since, stale.Cause, stale.Err = now, "destination_unavailable", why
	}
	return stale
}

// changeOf returns how s differs from what was kept before it; nil if it does not. A body counts only where it is a file: a
// web page is another one each time.
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
