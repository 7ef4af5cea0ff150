package rules

import (
	"cmp"
	"slices"
	"strings"
)

// covers finds, for a rule, another rule that matches every path that it matches.
//
// The matcher itself decides whether one pattern covers another. Each wildcard of the second is replaced by a byte
// that no pattern contains, and that byte is appended if the pattern is open at the end. A pattern that matches this
// text can match those bytes only by its own wildcards, so it matches anything in their place. A pattern that does not
// match the text does not cover the second.
type covers struct {
	byPrefix map[string][]*lintRule // by the text before the first wildcard; each list in order
	lengths  []int                  // of those prefixes, ascending
	order    func(a, b *lintRule) int
}

// newCovers returns a covers over the picked rules of a block, in the given order.
func newCovers(rules []lintRule, picked func(*lintRule) bool, order func(a, b *lintRule) int) *covers {
	c := &covers{byPrefix: make(map[string][]*lintRule), order: order}
	for i := range rules {
		if r := &rules[i]; picked(r) {
			prefix := r.form[:r.literal()]
			c.byPrefix[prefix] = append(c.byPrefix[prefix], r)
		}
	}
	for prefix, list := range c.byPrefix {
		slices.SortStableFunc(list, order)
		c.lengths = append(c.lengths, len(prefix))
	}
	slices.Sort(c.lengths)
	c.lengths = slices.Compact(c.lengths)
	return c
}

// hasStars picks the rules with a wildcard: only these can be longer than a rule that they cover.
func hasStars(r *lintRule) bool { return r.stars }

// isPrefix picks the rules that match all paths with a prefix.
func isPrefix(r *lintRule) bool { return !r.ends && r.literal() == len(r.form) }

// byPrecedence orders rules so that the first decides if both match (2.2.2).
func byPrecedence(a, b *lintRule) int {
	return cmp.Or(cmp.Compare(b.octets, a.octets), cmp.Compare(kindOf(b), kindOf(a)), byLine(a, b))
}

func byLine(a, b *lintRule) int { return cmp.Compare(a.line, b.line) }

const anything = 1 // not a byte of a pattern in normal form

// find returns the first rule in order that covers r and precedes it. It returns nil if no rule does, or if no steps
// are left.
func (c *covers) find(r *lintRule, steps *int) (best *lintRule) {
	if len(c.lengths) == 0 || *steps <= 0 {
		return nil
	}
	text := strings.ReplaceAll(r.form, "*", string(rune(anything)))
	if !r.ends {
		text += string(rune(anything))
	}
	for _, n := range c.lengths {
		if n > r.literal() {
			break
		}
		*steps -= 16 + n
		for _, other := range c.byPrefix[text[:n]] {
			if *steps <= 0 || c.order(other, r) >= 0 || best != nil && c.order(other, best) >= 0 {
				break
			}
			*steps -= len(text) + len(other.form)
			if other.matches(text[n:], n) {
				best = other
				break
			}
		}
	}
	return best
}

// literal returns the part of a rule's form before its first wildcard.
func (r *lintRule) literal() int {
	if i := strings.IndexByte(r.form, '*'); i >= 0 {
		return i
	}
	return len(r.form)
}

// matches reports whether r matches the rest of a text, after its prefix of n bytes.
func (r *lintRule) matches(rest string, n int) bool {
	if n == len(r.form) {
		return !r.ends || rest == ""
	}
	matched, _ := matchWildcards(r.form[n:], rest, r.ends)
	return matched
}
