package robots

import (
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
)

// Version is one text that an origin's robots.txt has had, as a Store keeps it beside the last Snapshot for those who ask
// later.
type Version struct {
	Origin    origin.Origin
	SHA256    string // of the body, in hexadecimal
	Size      int    // of the body, in octets
	Status    int    // of the answer that first brought it
	Redirects []string
	FirstSeen time.Time
	LastSeen  time.Time
}
