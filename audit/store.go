package audit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
)

// Errors of a Reader that has no entry of the given name.
var (
	ErrNoRecord = errors.New("audit: no record with this id is kept")
	ErrNoFile   = errors.New("audit: this robots.txt is not kept")
	ErrNoPolicy = errors.New("audit: no policy with this hash is kept")
	ErrChanged  = errors.New("audit: what is kept under this hash was changed")
)

// Store keeps records and the evidence for them. Its methods may be called concurrently.
type Store interface {
	// Write keeps all entries or none. An entry replaces an open one of the same ID.
	Write(ctx context.Context, entries []Entry) error
	Reader
	Close() error
}

// Entry is a record to write, with its evidence.
type Entry struct {
	Record
	Open bool // the request has not ended: the record will be written again, unless the process dies
}

// Evidence is the basis of a decision. A Store keeps each part once, as long as a record refers to it.
type Evidence struct {
	Robots *robots.Snapshot // nil if no robots.txt was read
	Policy *policy.Policy   // nil if nothing was decided
}

// Reader answers questions about the records of a Store.
type Reader interface {
	// Record returns the record with the given ID, or ErrNoRecord.
	Record(ctx context.Context, id ID) (*Record, error)

	// Records returns the records that f selects in order of their IDs, or in reverse order if f.Newest. A record is
	// valid until the next one. The sequence ends after the first error.
	Records(ctx context.Context, f Filter) iter.Seq2[*Record, error]

	// Sums counts the records that f selects, for each combination of values of the given dimensions. The most frequent
	// combination is the first; f.Limit bounds their number. Without dimensions it returns one Sum.
	Sums(ctx context.Context, f Filter, by ...Dimension) ([]Sum, error)

	// Timeline counts the records that f selects in steps of whole minutes from f.Since to f.Until, by decision. It
	// omits steps without records.
	Timeline(ctx context.Context, f Filter, step time.Duration) ([]Point, error)

	// Uses counts the records that f selects for each host, purpose and text of preferences, in the order of the three.
	// f.Limit bounds the number of results. The sequence ends after the first error.
	Uses(ctx context.Context, f Filter) iter.Seq2[Use, error]

	// File returns the robots.txt on which r rests, with its body, or ErrNoFile.
	File(ctx context.Context, r *Record) (*File, error)

	// Files returns the versions of the robots.txt of all origins of a canonical host without their bodies, in order of
	// their first fetches.
	Files(ctx context.Context, host string) ([]File, error)

	// Body returns the body with this SHA-256, in lower-case hexadecimal, or ErrNoFile, or ErrChanged.
	Body(ctx context.Context, sha256 string) ([]byte, error)

	// Policy returns the text of the policy with this SHA-256, in lower-case hexadecimal, or ErrNoPolicy.
	Policy(ctx context.Context, sha256 string) ([]byte, error)
}

// File is a version of the robots.txt of an origin. A version begins with a fetch whose body, status, state or redirects
// differ from the version before. So a file that returns to an earlier text has one more version.
type File struct {
	robots.Answer           // of the first fetch; a 304 that validates a version belongs to it
	State         string    // see robots.Snapshot.State
	Header        string    // fields about the type, version and lifetime of the response, as lines of HTTP/1.1
	Size          int       // of the body, in bytes
	FirstSeen     time.Time // arrival of the first record that refers to it
	LastSeen      time.Time // of the last one
}

// Filter selects records. Empty fields select all.
type Filter struct {
	Since, Until time.Time // of arrival: not before Since, and before Until
	Host         string    // a canonical host, or a pattern: see policy.MatchHost
	Client       string
	Agent        string // the label of the User-Agent, in any case: Record.Agent
	Tag          string
	Decisions    []policy.Outcome
	Reasons      []policy.Reason
	Path         string // the beginning of the path
	Rule         string // the text of the rule, without regard to case
	Vias         []Via  // if empty, all but Robots: requests of clients

	After  ID // only records beyond this ID, in the order of the sequence
	Newest bool
	Limit  int // maximum number of results; if zero, no limit
}

// Dimension is a property by which records are counted.
type Dimension string

const (
	ByHost     Dimension = "host"
	ByPath     Dimension = "path"
	ByClient   Dimension = "client"
	ByAgent    Dimension = "agent"
	ByRule     Dimension = "rule" // "line 3  Disallow: /private/", or the entry of the lists of hosts
	ByReason   Dimension = "reason"
	ByDecision Dimension = "decision"
)

// Dimensions are all dimensions, in the order of their listing.
var Dimensions = []Dimension{ByHost, ByPath, ByClient, ByAgent, ByRule, ByReason, ByDecision}

// Sum counts records that have the same values in some dimensions.
type Sum struct {
	Values    []string      `json:"values"` // of the dimensions, in the order of the question
	Requests  int64         `json:"requests"`
	Blocked   int64         `json:"blocked"` // deny
	WouldDeny int64         `json:"would_deny"`
	Throttled int64         `json:"throttled"` // throttle
	Failed    int64         `json:"failed"`    // error, and forwarded requests that failed at the origin
	Deviating int64         `json:"deviating"` // with a deviation
	Waited    time.Duration `json:"-"`
	Bytes     int64         `json:"bytes"` // of bodies, sent to clients
}

// Use counts the requests to a host for one purpose, to which the host stated the same preferences.
type Use struct {
	Host         string
	Purpose      string // see Record.Purpose
	Usage        string // see Record.Usage
	Requests     int64
	Fetched      int64 // with content for the client, other than robots.txt: see policy.CarriesContent
	Refused      int64 // deny
	ByPreference int64 // of Refused: with the reason usage-preference
}

// Point counts the records that arrived in one step of a timeline.
type Point struct {
	Time      time.Time                `json:"time"` // begin of the step
	Decisions map[policy.Outcome]int64 `json:"decisions"`
}

// RuleText returns the value of ByRule for r. It is empty if no rule decided.
func RuleText(line int, rule string) string {
	if line == 0 {
		return rule
	}
	return fmt.Sprintf("line %d  %s", line, rule)
}
