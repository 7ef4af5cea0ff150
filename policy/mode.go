package policy

import "fmt"

// Mode says how a verdict is applied. The zero value enforces it.
type Mode uint8

const (
	Enforce Mode = iota // refuse disallowed requests and delay requests that come too fast
	Report              // judge and compute delays, forward unchanged, record the decision that Enforce would have made
	Off                 // do not fetch robots.txt and do not pace; requests are still recorded
)

var modes = [...]string{Enforce: "enforce", Report: "report", Off: "off"}

// ParseMode parses "enforce", "report" or "off".
func ParseMode(s string) (Mode, error) {
	for m, word := range modes {
		if s == word {
			return Mode(m), nil
		}
	}
	return Enforce, fmt.Errorf("policy: mode %q is not enforce, report or off", s)
}

// String returns the word that ParseMode accepts.
func (m Mode) String() string { return modes[m] }
