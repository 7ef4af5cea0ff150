package seal

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
)

// Erasure is the record of an erasure. It does not name the client: that is erased.
type Erasure struct {
	N         int64     `json:"erasure"` // from 1 on
	Time      time.Time `json:"time"`
	By        string    `json:"by,omitempty"`
	Reason    string    `json:"reason"`
	Records   int       `json:"records"`
	IDsSHA256 string    `json:"ids_sha256"` // of the IDs, 8 bytes each in big-endian order
}

// StoredErasure is an Erasure as a Log keeps it: its JSON, of which the hash is a leaf, and the IDs of its records.
type StoredErasure struct {
	N    int64
	Text []byte
	IDs  []byte // 8 bytes each, big-endian, in order
}

// NewErasure returns the erasure of the records with the given IDs, which must be in order.
func NewErasure(n int64, now time.Time, by, reason string, ids []audit.ID) (*StoredErasure, error) {
	s := &StoredErasure{N: n, IDs: make([]byte, 0, 8*len(ids))}
	for _, id := range ids {
		s.IDs = appendID(s.IDs, int64(id))
	}
	sum := sha256.Sum256(s.IDs)
	var err error
	s.Text, err = json.Marshal(Erasure{
		N: n, Time: now.UTC().Truncate(time.Microsecond), By: by, Reason: reason,
		Records: len(ids), IDsSHA256: hex.EncodeToString(sum[:]),
	})
	return s, err
}

// Open returns the erasure, after it has checked that the IDs are those of its text.
func (s *StoredErasure) Open() (e *Erasure, err error) {
	if err := json.Unmarshal(s.Text, &e); err != nil || e == nil {
		return nil, fmt.Errorf("seal: erasure %d is damaged", s.N)
	}
	if sum := sha256.Sum256(s.IDs); e.N != s.N || hex.EncodeToString(sum[:]) != e.IDsSHA256 {
		return nil, fmt.Errorf("seal: erasure %d names other records than its hash", s.N)
	}
	return e, nil
}

// ids returns the IDs of the records.
func (s *StoredErasure) ids() []audit.ID {
	ids := make([]audit.ID, 0, len(s.IDs)/8)
	for b := s.IDs; len(b) >= 8; b = b[8:] {
		ids = append(ids, audit.ID(binary.BigEndian.Uint64(b)))
	}
	return ids
}
