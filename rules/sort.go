package rules

import (
	"cmp"
	"iter"
	"slices"
	"strings"
)

// sortKey stands for a rule while rules are sorted.
type sortKey struct {
	block uint32
	rule  uint32
	head  uint64 // the first octets of the literal prefix, which settle most comparisons without the arena
}

// sortKeys returns the rules that hold for anyone, by block, literal prefix, and the order in which they decide.
func (r *Ruleset) sortKeys(p *parser, blockOf []uint32) []sortKey {
	keys := p.keys[:0]
	g := 0
	for i := range p.rules {
		for g+1 < len(r.groups) && int(r.groups[g+1].firstRule) <= i {
			g++
		}
		if b := blockOf[g]; b != 0 {
			keys = append(keys, sortKey{block: b, rule: uint32(i)})
		}
	}
	p.scratch = slices.Grow(p.scratch[:0], len(keys))[:len(keys)]
	s := sorter{r, p.rules, p.scratch}
	keys = s.byBlock(keys, len(r.blocks))
	for block := range runs(keys, func(a, b sortKey) bool { return a.block == b.block }) {
		s.sort(block, 0)
	}
	return keys
}

// sorter sorts rules by literal prefix, eight octets at a time.
type sorter struct {
	set     *Ruleset
	rules   []rule
	scratch []sortKey // as long as what is sorted
}

// byBlock returns keys in the order of their blocks.
func (s sorter) byBlock(keys []sortKey, blocks int) []sortKey {
	if slices.IsSortedFunc(keys, func(a, b sortKey) int { return cmp.Compare(a.block, b.block) }) {
		return keys
	}
	next := make([]uint32, blocks)
	for i := range keys {
		next[keys[i].block]++
	}
	sum := uint32(0)
	for b := range next {
		next[b], sum = sum, sum+next[b]
	}
	for i := range keys {
		at := &next[keys[i].block]
		s.scratch[*at] = keys[i]
		*at++
	}
	copy(keys, s.scratch)
	return keys
}

// few is the number of rules up to which they are sorted by comparing them, and many that from which on it pays to sort
// by eight octets at a time and not by one.
const (
	few  = 48
	many = 1024
)

// sort sorts rules whose literal prefixes agree in their first depth octets. A prefix that ends sorts before all that
// go on, since zero stands for its end and a pattern in normal form has no NUL.
func (s sorter) sort(keys []sortKey, depth int) {
	depth += s.agreed(keys, depth)
	for i := range keys {
		keys[i].head = head(s.literal(keys[i])[depth:])
	}
	if len(keys) <= few {
		slices.SortFunc(keys, func(a, b sortKey) int {
			switch {
			case a.head < b.head:
				return -1
			case a.head > b.head:
				return 1
			}
			return s.compare(a, b, depth)
		})
		return
	}
	octets := 8
	if len(keys) <= many {
		octets = 1
	}
	shift := 64 - 8*octets
	s.byHead(keys, shift)
	for run := range runs(keys, func(a, b sortKey) bool { return a.head>>shift == b.head>>shift }) {
		switch {
		case len(run) == 1:
		case byte(run[0].head>>shift) != 0:
			s.sort(run, depth+octets)
		default:
			slices.SortFunc(run, func(a, b sortKey) int { return s.rules[a.rule].compare(&s.rules[b.rule]) })
		}
	}
}

// byHead sorts by the heads without their last shift bits, one octet of them after the other from the last on, and leaves out octets in which all agree.
// It costs eight steps a rule at most, in whatever order they come.
func (s sorter) byHead(keys []sortKey, shift int) {
	differ := uint64(0)
	for i := range keys {
		differ |= keys[i].head ^ keys[0].head
	}
	from, to := keys, s.scratch[:len(keys)]
	for ; shift < 64; shift += 8 {
		if differ>>shift&0xFF == 0 {
			continue
		}
		var next [256]uint32
		for i := range from {
			next[byte(from[i].head>>shift)]++
		}
		sum := uint32(0)
		for b := range next {
			next[b], sum = sum, sum+next[b]
		}
		for i := range from {
			at := &next[byte(from[i].head>>shift)]
			to[*at] = from[i]
			*at++
		}
		from, to = to, from
	}
	if &from[0] != &keys[0] {
		copy(keys, from)
	}
}

// agreed returns how many octets from depth on all literal prefixes have in common.
func (s sorter) agreed(keys []sortKey, depth int) int {
	all := s.literal(keys[0])[depth:]
	for _, k := range keys[1:] {
		all = all[:commonPrefix(all, s.literal(k)[depth:])]
	}
	return len(all)
}

func (s sorter) compare(a, b sortKey, depth int) int {
	if c := strings.Compare(s.literal(a)[depth:], s.literal(b)[depth:]); c != 0 {
		return c
	}
	return s.rules[a.rule].compare(&s.rules[b.rule])
}

func (s sorter) literal(k sortKey) string { return s.set.literal(&s.rules[k.rule]) }

// runs yields the longest pieces of s of which all elements are the same.
func runs[T any](s []T, same func(a, b T) bool) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for len(s) > 0 {
			n := 1
			for n < len(s) && same(s[0], s[n]) {
				n++
			}
			if !yield(s[:n]) {
				return
			}
			s = s[n:]
		}
	}
}

// head returns what first8 does, with zeros behind the end of s.
func head(s string) (h uint64) {
	if len(s) >= 8 {
		return first8(s)
	}
	for i := range len(s) {
		h |= uint64(s[i]) << (56 - 8*i)
	}
	return h
}
