package seal

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"math/bits"
	"sort"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/robotsproxy/robotsproxy/audit"
)

// Kind says of what a Leaf is the hash.
type Kind byte

const (
	recordKind  Kind = 'r' // a record
	openKind    Kind = 'o' // a record that has not ended
	erasureKind Kind = 'e' // an Erasure
)

// Leaf is a leaf of the tree. Its position in the tree is that in the Log.
type Leaf struct {
	Kind Kind
	ID   int64 // of the record, or the number of the erasure
	Hash tlog.Hash
}

const (
	tileLevel = 8
	tileSize  = 1 << tileLevel // leaves of a full Tile
	leafSize  = 1 + 8 + tlog.HashSize
)

// Tile has up to 256 leaves: those from N*256 on.
type Tile struct {
	N         int64
	Low, High audit.ID // the range of its records; zero if it has none
	Keep      bool     // it has the hash of an erasure, so its Data is not removed
	Root      []byte   // of its leaves, if it is full
	Data      []byte   // the leaves; nil if they were removed after the records were pruned
}

// TileQuery selects tiles: those from number From on and before To, and if High is not zero only those with the ID of a
// record in [Low, High].
type TileQuery struct {
	From, To  int64 // if To is zero, all
	Low, High audit.ID
	Roots     bool // leave out Data
}

var errTile = errors.New("seal: a tile of the hashes is damaged")

// Leaves returns the leaves of t.
func (t *Tile) Leaves() ([]Leaf, error) {
	if len(t.Data)%leafSize != 0 || len(t.Data) > tileSize*leafSize || len(t.Data) == 0 {
		return nil, errTile
	}
	leaves := make([]Leaf, len(t.Data)/leafSize)
	for i := range leaves {
		b := t.Data[i*leafSize:][:leafSize]
		leaves[i] = Leaf{Kind(b[0]), int64(binary.BigEndian.Uint64(b[1:])), tlog.Hash(b[9:])}
	}
	return leaves, nil
}

// add appends a leaf, and completes a full tile.
func (t *Tile) add(leaf Leaf) {
	t.Data = appendID(append(t.Data, byte(leaf.Kind)), leaf.ID)
	t.Data = append(t.Data, leaf.Hash[:]...)
	if leaf.Kind == erasureKind {
		t.Keep = true
	} else {
		id := audit.ID(leaf.ID)
		if t.High == 0 {
			t.Low = id
		}
		t.Low, t.High = min(t.Low, id), max(t.High, id)
	}
	if len(t.Data) == tileSize*leafSize {
		root := tileRoot(t.Data)
		t.Root = root[:]
	}
}

// idRange returns the least and the greatest ID of the records of leaves; zero if there are none.
func idRange(leaves []Leaf) (low, high audit.ID) {
	for _, leaf := range leaves {
		if id := audit.ID(leaf.ID); leaf.Kind != erasureKind {
			if high == 0 {
				low = id
			}
			low, high = min(low, id), max(high, id)
		}
	}
	return low, high
}

func tileRoot(data []byte) tlog.Hash {
	var t tree
	for ; len(data) > 0; data = data[leafSize:] {
		t.add(tlog.Hash(data[9:leafSize]))
	}
	return t.root()
}

func appendID(b []byte, id int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(id)) }

// tree is the compact form of a Merkle tree (RFC 6962 section 2.1): the roots of its largest complete subtrees, from
// left to right.
type tree struct {
	size  int64
	roots []tlog.Hash
}

func (t *tree) add(leaf tlog.Hash) { t.addSubtree(leaf, 0) }

// addTile adds a full tile. The size is a multiple of tileSize.
func (t *tree) addTile(root tlog.Hash) { t.addSubtree(root, tileLevel) }

func (t *tree) addSubtree(h tlog.Hash, level int) {
	for n := t.size >> level; n&1 == 1; n >>= 1 {
		last := len(t.roots) - 1
		h, t.roots = tlog.NodeHash(t.roots[last], h), t.roots[:last]
	}
	t.roots = append(t.roots, h)
	t.size += 1 << level
}

// root returns the root of the tree. That of an empty tree is the hash of nothing.
func (t *tree) root() tlog.Hash {
	if t.size == 0 {
		return sha256.Sum256(nil)
	}
	h := t.roots[bits.OnesCount64(uint64(t.size))-1]
	for i := len(t.roots) - 2; i >= 0; i-- {
		h = tlog.NodeHash(t.roots[i], h)
	}
	return h
}

// idHash hashes the kinds and IDs of leaves, which their hashes do not show once the records are gone.
type idHash struct{ h hash.Hash }

func (h *idHash) add(leaf Leaf) {
	if h.h == nil {
		h.h = sha256.New()
	}
	h.h.Write(appendID([]byte{byte(leaf.Kind)}, leaf.ID))
}

func (h *idHash) sum() tlog.Hash {
	if h.h == nil {
		return sha256.Sum256(nil)
	}
	return tlog.Hash(h.h.Sum(nil))
}

// find returns the index of id in a window, which is in order.
func find(window []candidate, id audit.ID) (int, bool) {
	return sort.Find(len(window), func(i int) int { return compare(id, window[i].id) })
}

func compare(a, b audit.ID) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
