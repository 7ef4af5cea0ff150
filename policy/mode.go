package policy

import "fmt"

// Mode says what becomes of a judgement. The zero value enforces.
type Mode uint8

const (
	Enforce Mode = iota // refuse what is disallowed, make wait what is too fast
	Report              // judge and reckon, change nothing for the crawler, record what would have been
	Off                 // neither fetch robots.txt nor pace; the request is recorded all the same
)

var modes = [...]string{Enforce: "enforce", Report: "report", Off: "off"}

// ParseMode reads "enforce", "report" or "off".
func ParseMode(s string) (Mode, error) {
	for m, word := range modes {
		if s == word {
			return Mode(m), nil
		}
	}
	return Enforce, fmt.Errorf("policy: mode %q is none of enforce, report and off", s)
}

// String returns the word that ParseMode reads.
func (m Mode) String() string { return modes[m] }
