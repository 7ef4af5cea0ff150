package policy

// Mode says how a verdict is applied. The zero value enforces it.
type Mode uint8

const (
	Enforce Mode = iota // refuse disallowed requests and delay requests that come too fast
	Report              // judge and compute delays, forward unchanged, record the decision that Enforce would have made
	Off                 // do not fetch robots.txt and do not pace; requests are still recorded
)

var modes = [...]string{Enforce: "enforce", Report: "report", Off: "off"}

// String returns "enforce", "report" or "off".
func (m Mode) String() string { return modes[m] }
