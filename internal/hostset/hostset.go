// Package hostset finds the pattern that matches a host, in a set of up to millions of patterns.
//
//	deny, err := hostset.Load("do-not-crawl.txt")
//	pattern, listed := deny.Match("www.a.example") // "*.a.example", true
//
// A look-up costs a few hashes of the host: one for the host and one for each name above it. Its cost does not grow with
// the set. A Set takes about 10 bytes for each pattern, besides the pattern's own.
package hostset

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash/maphash"
	"net/netip"
	"slices"
	"strings"

	"github.com/robotsproxy/robotsproxy/origin"
)

// Set is a set of host patterns. It does not change, and is safe for concurrent use. A nil Set is empty.
//
// A map of strings would take three times the memory, and the garbage collector would follow a pointer for each
// pattern.
type Set struct {
	names []byte   // each name after a byte with its length: "a.example", ".example" for *.example, "." for *
	slots []uint32 // hash table with open addressing: the place of a name in names, from 1; 0: free
	seed  maphash.Seed
	size  int
	sum   [sha256.Size]byte // of names
}

// New returns the set of patterns in any form that Canonical accepts.
func New(patterns []string) (*Set, error) {
	s := &Set{}
	for _, pattern := range patterns {
		if err := s.add(pattern); err != nil {
			return nil, err
		}
	}
	s.index()
	return s, nil
}

// Canonical returns the canonical form of a pattern: "a.example" is one host, "*.example" are all hosts below example
// but not example, and "*" is every host. Names and addresses have the form of origin.Host and origin.Key.
func Canonical(pattern string) (string, error) {
	if pattern == "*" {
		return pattern, nil
	}
	name, below := strings.CutPrefix(pattern, "*.")
	host, err := origin.Host(name)
	if err != nil {
		return "", err
	}
	if !below {
		return origin.Key(host), nil
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return "", errors.New("no host is below an address")
	}
	return "*." + host, nil
}

// add appends the name of a pattern to names. index must run before the next look-up.
func (s *Set) add(pattern string) error {
	canonical, err := Canonical(pattern)
	if err != nil {
		return err
	}
	name := strings.TrimPrefix(canonical, "*")
	if name == "" {
		name = "."
	}
	s.names = append(append(s.names, byte(len(name))), name...) // at most 253 bytes and a dot
	s.size++
	return nil
}

// index makes the table of all names. At most half of its slots are taken, so that a free one ends each search soon. It
// gives back much spare capacity of names, as that for the comments of a file, and counts a pattern that is listed twice
// once.
func (s *Set) index() {
	if cap(s.names) > len(s.names)+len(s.names)/8 {
		s.names = slices.Clip(slices.Clone(s.names))
	}
	s.sum = sha256.Sum256(s.names)
	s.seed = maphash.MakeSeed()
	slots := 2
	for slots < 2*s.size {
		slots *= 2
	}
	s.slots, s.size = make([]uint32, slots), 0
	for at := 0; at < len(s.names); at += 1 + int(s.names[at]) {
		if slot := s.find(string(s.nameAt(at))); s.slots[slot] == 0 {
			s.slots[slot] = uint32(at) + 1
			s.size++
		}
	}
}

func (s *Set) nameAt(at int) []byte { return s.names[at+1 : at+1+int(s.names[at])] }

// find returns the slot of name: the one that has it, or a free one.
func (s *Set) find(name string) int {
	mask := len(s.slots) - 1
	for slot := int(maphash.String(s.seed, name)) & mask; ; slot = (slot + 1) & mask {
		if at := s.slots[slot]; at == 0 || string(s.nameAt(int(at)-1)) == name {
			return slot
		}
	}
}

func (s *Set) has(name string) bool { return s.slots[s.find(name)] != 0 }

// Len returns the number of patterns.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return s.size
}

// SHA256 returns the SHA-256 of the canonical patterns, in their order, in lower-case hexadecimal.
func (s *Set) SHA256() string { return hex.EncodeToString(s.sum[:]) }

// Match returns the most specific pattern that matches a canonical host: the host, then the longest "*.name", then "*".
// An IPv4 address also matches its NAT64 form (see origin.Key).
func (s *Set) Match(host string) (pattern string, ok bool) {
	if s.Len() == 0 {
		return "", false
	}
	name := origin.Key(host)
	if s.has(name) {
		return name, true
	}
	for {
		dot := strings.IndexByte(name, '.')
		if dot < 0 {
			break
		}
		if s.has(name[dot:]) {
			return "*" + name[dot:], true
		}
		name = name[dot+1:]
	}
	if s.has(".") {
		return "*", true
	}
	return "", false
}
