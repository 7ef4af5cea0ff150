package robots

import "github.com/robotsproxy/robotsproxy/rules"

// Parsed returns a Snapshot of a with its rules, as a Cache makes it.
func Parsed(a *Answer) *Snapshot {
	return &Snapshot{Answer: *a, Rules: parse(a, rules.DialectRFC9309)}
}
