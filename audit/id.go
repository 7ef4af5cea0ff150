package audit

import (
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// ID identifies a request permanently: 53 bits of microseconds since 2026, unique in the process, and 10 bits of the
// instance's number. IDs of one instance increase, so they sort in order of arrival.
type ID int64

// InstanceBits is the number of bits of an ID for the instance; the others count microseconds since the year 2026.
const InstanceBits = 10

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// FirstMinute is the first minute of 2026, in minutes since 1970.
var FirstMinute = epoch.Unix() / 60

// alphabet is the order-preserving base32 of RFC 4648 section 7 in lower case.
var alphabet = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// String returns the ID as 13 characters, which sort like the number.
func (id ID) String() string { return string(id.append(nil)) }

func (id ID) append(b []byte) []byte {
	var octets [8]byte
	binary.BigEndian.PutUint64(octets[:], uint64(id))
	return alphabet.AppendEncode(b, octets[:])
}

// ParseID parses the result of String.
func ParseID(s string) (ID, error) {
	b, err := alphabet.DecodeString(s)
	if err != nil || len(b) != 8 || b[0] > 0x7f {
		return 0, fmt.Errorf("audit: %q is not an id of 13 characters", s)
	}
	id := ID(binary.BigEndian.Uint64(b))
	if id.String() != s { // the last character has a bit that no id uses
		return 0, fmt.Errorf("audit: %q is not an id: no id ends with %q", s, s[len(s)-1:])
	}
	return id, nil
}

// MarshalText returns the 13 characters of String.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText parses them.
func (id *ID) UnmarshalText(b []byte) (err error) {
	*id, err = ParseID(string(b))
	return err
}

// Time returns the time at which the ID was made, to the microsecond.
func (id ID) Time() time.Time { return epoch.Add(time.Duration(id>>InstanceBits) * time.Microsecond) }

// Instance returns the number of the instance that made the ID.
func (id ID) Instance() int { return int(id & (Instances - 1)) }

// IDAt returns the least ID that is made at t or later. It is at least 1, and the greatest ID if t is after all IDs.
func IDAt(t time.Time) ID {
	return max(1, ID(min(t.Sub(epoch).Microseconds(), math.MaxInt64>>InstanceBits)<<InstanceBits))
}

// Instances is the number of instances whose IDs differ.
const Instances = 1 << InstanceBits

// Sequence generates the IDs of one instance.
type Sequence struct {
	Instance func() int // the number of the instance, from 0 to Instances-1, which may change; if nil, 0
	last     atomic.Int64
}

// Next returns an ID greater than all before it, even if the clock was set back.
func (s *Sequence) Next(now time.Time) ID {
	micros, instance := now.Sub(epoch).Microseconds(), 0
	if s.Instance != nil {
		instance = s.Instance()
	}
	for {
		last := s.last.Load()
		next := max(micros, last+1)
		if s.last.CompareAndSwap(last, next) {
			return ID(next<<InstanceBits | int64(instance&(Instances-1)))
		}
	}
}
