// Package seal makes records tamper-evident: it keeps a Merkle tree of their hashes (RFC 6962) beside them, and signs
// its root with Ed25519.
//
//	key, _, err := seal.OpenKey(dir, "") // made at the first use
//	c, err := seal.Seal(ctx, log, key, seal.Options{})
//	os.Stdout.WriteString(c.Note) // to be given away
//	report, err := seal.Verify(ctx, log, seal.VerifyOptions{Keys: []seal.Verifier{v}})
//
// A leaf is the hash of the canonical JSON of a record (audit.AppendCanonical) or of an Erasure. A seal appends a leaf
// for each record that has ended and has none, in order of their IDs, and then signs a Checkpoint. Records that end
// later come with the next seal. A request can last for days, but the process may also have died: a record that has not
// ended OpenFor after its arrival is sealed as it is, and sealed again if it ends after all.
//
// A Checkpoint proves that the records that it covers existed when it was signed, and Verify that they are unchanged
// since. Neither proves that the proxy recorded the truth. A person with the key can sign another tree; checkpoints that
// were given away before reveal that.
package seal

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/robotsproxy/robotsproxy/audit"
)

const (
	// OpenFor is the age at which a record is sealed although it has not ended.
	OpenFor = 24 * time.Hour
	// written is the longest time between the end of a request and the commit of its record, if the store works.
	written = 250 * time.Millisecond
	// late is how far before the last seal Seal looks for records that were written late.
	late = time.Hour
)

// attempts is how often Seal begins again because another process was faster.
const attempts = 100

// ErrMoved is returned by a Log to which another process has appended.
var ErrMoved = errors.New("seal: another process has sealed records at the same time")

// Records are the records that are sealed. audit.Store implements it.
type Records interface {
	Record(ctx context.Context, id audit.ID) (*audit.Record, error)
	Records(ctx context.Context, f audit.Filter) iter.Seq2[*audit.Record, error]
}

// Log keeps the tree beside the records. Its methods may be called by several processes at once.
type Log interface {
	Records

	SealState(ctx context.Context) (State, error)

	// Tiles returns the tiles that q selects in order of their numbers.
	Tiles(ctx context.Context, q TileQuery) iter.Seq2[*Tile, error]

	// AppendTiles replaces the last tile, if it is among tiles, and appends the others. The tree has from leaves before
	// and to leaves after that; if it has another number of leaves, AppendTiles changes nothing and returns ErrMoved.
	AppendTiles(ctx context.Context, tiles []Tile, from, to int64) error

	// Checkpoints returns the notes of all checkpoints in order of their sizes.
	Checkpoints(ctx context.Context) ([]string, error)

	// AppendCheckpoint adds a checkpoint of the tree with its size. The last checkpoint before it covers last leaves, 0 if
	// there is none. If either is otherwise, it changes nothing and returns ErrMoved. The next seal begins with the record
	// next. AppendCheckpoint also removes the Data of the full tiles of the leaves before c.Dropped, except tiles to keep
	// and those in which a checkpoint ends.
	AppendCheckpoint(ctx context.Context, c *Checkpoint, last int64, next audit.ID) error

	// Prunes returns the prunes of records from the given ID on, in order of their beginnings. Log writes a prune and
	// State.Pruned in one transaction.
	Prunes(ctx context.Context, from audit.ID) ([]Prune, error)

	// Erasures returns the erasures with numbers greater than after.
	Erasures(ctx context.Context, after int64) iter.Seq2[*StoredErasure, error]

	// Hidden returns the records, 20 at most, that lists leave out because an index contradicts their contents.
	Hidden(ctx context.Context) ([]audit.ID, error)

	// Texts returns the stored bodies of robots.txt files and policies, with the SHA-256 by which they are known.
	Texts(ctx context.Context) iter.Seq2[*Text, error]

	// Missing counts the evidence that records refer to and that is not kept.
	Missing(ctx context.Context) (Missing, error)
}

// State is the state of a Log.
type State struct {
	Size   int64    // number of leaves
	Next   audit.ID // records before it are sealed or pruned, or were written late
	Pruned audit.ID // all records before it are pruned
}

// Text is a body of a robots.txt, or a policy.
type Text struct {
	Kind   string // "body" or "policy"
	SHA256 string // in lower-case hexadecimal
	Data   []byte
}

// Missing are numbers of different SHA-256 that records have.
type Missing struct {
	Bodies   int64 `json:"bodies"`   // of robots.txt files; a store may drop them to save room
	Versions int64 `json:"versions"` // of robots.txt files: no version of any origin has the SHA-256
	Policies int64 `json:"policies"`
}

// Options change what Seal does.
type Options struct {
	Now  func() time.Time // if nil, time.Now
	Late bool             // also seal records that were written late, more than an hour after their arrival
	Wait time.Duration    // for records that have ended and are not written; if zero, 250 ms; if negative, none
	// Rotate allows a key that did not sign the last checkpoint.
	Rotate bool
	// Progress is called with the number of new leaves; it may be nil.
	Progress func(leaves int64)
}

// Seal appends a leaf for each record that has ended and has none, and signs a checkpoint. If there is nothing to seal,
// it returns the last checkpoint, or nil if there is none. If the process dies, the next Seal continues.
func Seal(ctx context.Context, log Log, key *Key, o Options) (*Checkpoint, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Wait == 0 {
		o.Wait = written
	}
	if o.Progress == nil {
		o.Progress = func(int64) {}
	}
	var err error
	for range attempts {
		var c *Checkpoint
		c, err = (&sealer{log: log, key: key, options: o, cut: o.Now()}).seal(ctx)
		if !errors.Is(err, ErrMoved) {
			return c, err
		}
	}
	return nil, err
}

// sealer makes one checkpoint.
type sealer struct {
	log     Log
	key     *Key
	options Options
	cut     time.Time // records that ended before it are sealed

	state  State
	last   *Checkpoint // nil if there is none
	tree   tree        // with all leaves of the log
	tail   Tile        // the last tile, which is not full
	since  idHash      // of the leaves after last
	erased int64       // number of the last sealed erasure
	prunes []Prune     // that no checkpoint confirms yet
	drop   int64       // leaves, from the first on, of pruned records

	tiles []Tile   // not yet written
	next  audit.ID // the first record that is not sealed
}

func (s *sealer) seal(ctx context.Context) (*Checkpoint, error) {
	if err := sleep(ctx, s.options.Wait); err != nil {
		return nil, err
	}
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	if err := s.addRecords(ctx); err != nil {
		return nil, err
	}
	if err := s.addErasures(ctx); err != nil {
		return nil, err
	}
	if err := s.flush(ctx); err != nil {
		return nil, err
	}
	if s.tree.size == s.covered() {
		return s.last, nil
	}
	return s.sign(ctx)
}

// covered returns the number of leaves that the last checkpoint covers.
func (s *sealer) covered() int64 {
	if s.last == nil {
		return 0
	}
	return s.last.Size
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// load reads the tree and checks that the last checkpoint is of this tree, so that no signature covers a changed tree.
func (s *sealer) load(ctx context.Context) (err error) {
	if s.last, err = s.lastCheckpoint(ctx); err != nil {
		return err
	}
	if s.state, err = s.log.SealState(ctx); err != nil { // after the checkpoint, so that its leaves are there
		return err
	}
	if err := s.checkPruned(ctx); err != nil {
		return err
	}
	covered := s.covered()
	if s.state.Size < covered {
		return fmt.Errorf("seal: %d hashes are kept and the last checkpoint covers %d; run: robotsproxy audit verify",
			s.state.Size, covered)
	}
	if err := s.loadRoots(ctx, covered/tileSize); err != nil {
		return err
	}
	if err := s.findPruned(ctx, covered/tileSize); err != nil {
		return err
	}
	for tile, err := range s.log.Tiles(ctx, TileQuery{From: covered / tileSize}) {
		if err != nil {
			return err
		}
		if err := s.loadTile(tile, covered); err != nil {
			return err
		}
	}
	if s.tree.size != s.state.Size {
		return ErrMoved
	}
	return nil
}

// checkPruned checks that a pruning is recorded, so that no checkpoint confirms a mark that was set to hide a removal.
func (s *sealer) checkPruned(ctx context.Context) (err error) {
	var confirmed audit.ID
	if s.last != nil {
		confirmed = s.last.Pruned
	}
	if s.prunes, err = s.log.Prunes(ctx, confirmed); err != nil {
		return err
	}
	if s.state.Pruned > max(confirmed, recorded(s.prunes)) {
		return fmt.Errorf("seal: records before %s are marked as pruned, and no pruning of them is recorded; run: "+
			"robotsproxy audit verify", stamp(s.state.Pruned.Time()))
	}
	later := func(p Prune) bool { return audit.IDAt(p.Before) > s.state.Pruned }
	s.prunes = slices.DeleteFunc(s.prunes, later)
	return nil
}

// loadRoots adds the first n tiles, which are full, by their roots.
func (s *sealer) loadRoots(ctx context.Context, n int64) error {
	for tile, err := range s.log.Tiles(ctx, TileQuery{To: n, Roots: true}) {
		if err != nil {
			return err
		}
		if tile.N*tileSize != s.tree.size || len(tile.Root) != tlog.HashSize {
			return s.damaged()
		}
		s.tree.addTile(tlog.Hash(tile.Root))
	}
	return s.checkRoot()
}

// findPruned finds the first tiles, before number end, of which all records are pruned.
func (s *sealer) findPruned(ctx context.Context, end int64) error {
	if s.last != nil {
		s.drop = s.last.Dropped
	}
	from := s.drop / tileSize
	if from >= end {
		return nil
	}
	for tile, err := range s.log.Tiles(ctx, TileQuery{From: from, To: end}) {
		if err != nil {
			return err
		}
		leaves, err := tile.Leaves()
		if err != nil {
			return fmt.Errorf("seal: the hashes from number %d on are missing or damaged; run: robotsproxy audit verify",
				tile.N*tileSize+1)
		}
		if _, high := idRange(leaves); high >= s.state.Pruned {
			return nil
		}
		s.drop = (tile.N + 1) * tileSize
	}
	return nil
}

// checkRoot compares the tree with the last checkpoint if it has that size.
func (s *sealer) checkRoot() error {
	if s.last != nil && s.tree.size == s.last.Size && s.tree.root() != s.last.Root {
		return errors.New("seal: the hashes have changed since the last checkpoint and are not signed again; " +
			"run: robotsproxy audit verify")
	}
	return nil
}

func (s *sealer) damaged() error {
	return fmt.Errorf("seal: the hashes from number %d on are missing or damaged; run: robotsproxy audit verify",
		s.tree.size+1)
}

func (s *sealer) loadTile(tile *Tile, covered int64) error {
	leaves, err := tile.Leaves()
	if err != nil || tile.N*tileSize != s.tree.size {
		return s.damaged()
	}
	for _, leaf := range leaves {
		s.tree.add(leaf.Hash)
		if err := s.checkRoot(); err != nil {
			return err
		}
		if s.tree.size > covered {
			s.since.add(leaf)
		}
	}
	if len(leaves) < tileSize {
		s.tail = *tile
		s.tail.Data = append([]byte(nil), tile.Data...)
	}
	return nil
}

func (s *sealer) lastCheckpoint(ctx context.Context) (*Checkpoint, error) {
	notes, err := s.log.Checkpoints(ctx)
	if err != nil || len(notes) == 0 {
		return nil, err
	}
	last, err := OpenCheckpoint(notes[len(notes)-1], s.key.verifier)
	switch {
	case err == nil:
		s.erased = last.Erasures
		return last, nil
	case s.options.Rotate:
		last, err = parseUnverified(notes[len(notes)-1])
		if err == nil {
			s.erased = last.Erasures
		}
		return last, err
	}
	return nil, fmt.Errorf("seal: this key did not sign the last checkpoint (%w); "+
		"copy the first seal.key here, or begin to use this one with --new-key", err)
}

// addRecords adds leaves for records from State.Next on. It looks for the leaves that are there in windows of records,
// since those that ended late are not in order.
func (s *sealer) addRecords(ctx context.Context) error {
	s.next = max(s.state.Pruned, audit.IDAt(s.cut.Add(-late)))
	after := s.state.Next - 1
	if s.options.Late {
		after = 0
	}
	for {
		window, last, err := s.window(ctx, max(after, 0))
		if err != nil || last == 0 {
			return err
		}
		if err := s.dropSealed(ctx, window, after, last); err != nil {
			return err
		}
		for _, r := range window {
			if r.kind == 0 {
				continue
			}
			if err := s.add(ctx, Leaf{Kind: r.kind, ID: int64(r.id), Hash: r.hash}); err != nil {
				return err
			}
		}
		after = last
	}
}

// windowSize is the number of records that are in memory at once.
const windowSize = 8192

// candidate is a record that may get a leaf: its kind is zero if it does not.
type candidate struct {
	id   audit.ID
	kind Kind
	hash tlog.Hash
}

// window returns the candidates after a record, and the last ID.
func (s *sealer) window(ctx context.Context, after audit.ID) (window []candidate, last audit.ID, err error) {
	old := audit.IDAt(s.cut.Add(-OpenFor))
	var text []byte
	f := audit.Filter{After: after, Limit: windowSize, Vias: allVias}
	for r, err := range s.log.Records(ctx, f) {
		if err != nil {
			return nil, 0, err
		}
		last = r.ID
		c := candidate{id: r.ID, kind: recordKind}
		if r.EndedAt.IsZero() {
			c.kind = openKind
		}
		if c.kind == openKind && r.ID >= old || r.EndedAt.After(s.cut) {
			s.next = min(s.next, r.ID)
			continue
		}
		text = audit.AppendCanonical(text[:0], r)
		c.hash = tlog.RecordHash(text)
		window = append(window, c)
	}
	return window, last, nil
}

// allVias selects the proxy's own requests too.
var allVias = []audit.Via{audit.Plain, audit.Intercepted, audit.Tunnel, audit.Robots}

// dropSealed removes the candidates in (after, last] that have leaves.
func (s *sealer) dropSealed(ctx context.Context, window []candidate, after, last audit.ID) error {
	for tile, err := range s.log.Tiles(ctx, TileQuery{Low: after + 1, High: last}) {
		if err != nil {
			return err
		}
		leaves, err := tile.Leaves()
		if err != nil {
			return err
		}
		for _, leaf := range leaves {
			if i, ok := find(window, audit.ID(leaf.ID)); ok && (leaf.Kind == recordKind || leaf.Kind == window[i].kind) {
				window[i].kind = 0
			}
		}
	}
	return nil
}

func (s *sealer) addErasures(ctx context.Context) error {
	for e, err := range s.log.Erasures(ctx, s.erased) {
		if err != nil {
			return err
		}
		if err := s.add(ctx, Leaf{Kind: erasureKind, ID: e.N, Hash: tlog.RecordHash(e.Text)}); err != nil {
			return err
		}
		s.erased = e.N
	}
	return nil
}

// flushTiles is the number of full tiles that are written in one transaction.
const flushTiles = 32

func (s *sealer) add(ctx context.Context, leaf Leaf) error {
	s.tree.add(leaf.Hash)
	s.since.add(leaf)
	s.tail.N = (s.tree.size - 1) / tileSize
	s.tail.add(leaf)
	if s.tree.size%tileSize == 0 {
		s.tiles, s.tail = append(s.tiles, s.tail), Tile{}
	}
	if len(s.tiles) < flushTiles {
		return nil
	}
	s.options.Progress(s.tree.size - s.state.Size)
	return s.flush(ctx)
}

// flush writes the new leaves.
func (s *sealer) flush(ctx context.Context) error {
	if s.tree.size == s.state.Size {
		return nil
	}
	tiles := s.tiles
	if len(s.tail.Data) > 0 {
		tiles = append(tiles, s.tail)
	}
	if err := s.log.AppendTiles(ctx, tiles, s.state.Size, s.tree.size); err != nil {
		return err
	}
	s.state.Size, s.tiles = s.tree.size, nil
	return nil
}

func (s *sealer) sign(ctx context.Context) (*Checkpoint, error) {
	c := &Checkpoint{
		Origin: s.key.Name(), Size: s.tree.size, Root: s.tree.root(), Ended: s.cut.UTC().Truncate(time.Microsecond),
		Pruned: s.state.Pruned, Dropped: s.drop, Erasures: s.erased, IDs: s.since.sum(), Prunes: s.prunes,
	}
	var err error
	if c.Note, err = s.key.sign(c.text()); err != nil {
		return nil, err
	}
	return c, s.log.AppendCheckpoint(ctx, c, s.covered(), s.next)
}
