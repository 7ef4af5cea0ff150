package redislease

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// acknowledgedEvery is how often Update looks for acknowledgements.
	acknowledgedEvery = 25 * time.Millisecond

	// maxConflicts is how often in a row an instance writes a document that others have changed meanwhile.
	maxConflicts = 1000
)

var (
	//go:embed document.lua
	documentSource string
	documentScript = redis.NewScript(documentSource)
)

// DocumentOptions describe a Document and the instance that opens it. All but Home and Data are needed.
type DocumentOptions struct {
	// Name is how a Delivery names this instance, for example by host and process.
	Name string

	// Home is something that one instance has at a time, such as the path of a folder on its host. An instance that
	// ends without Close is missing from each Delivery for ten minutes, or until another one with its Home starts.
	Home string

	// Data is the document as this instance last applied it.
	Data []byte

	// Merge returns a document with the changes of both. It must be commutative, associative and idempotent, for
	// instance by keeping the later one of two entries, and must not modify its arguments. Equal documents must be
	// equal bytes. The error says that theirs, which comes from Redis, is invalid.
	Merge func(ours, theirs []byte) ([]byte, error)

	// Apply takes a document that another instance has changed. It returns once this instance obeys it. After an error
	// this instance counts as missing, and Apply is called again a few seconds later.
	Apply func(data []byte) error
}

// A Document is data that all instances have, such as an operator's list. Each instance keeps a copy and merges it with
// that of Redis: at the start, when another instance changes it, and when Redis returns or has lost its memory. So no
// change is lost that an instance knows, whether Redis is up or down. Redis keeps it for a year.
type Document struct {
	client  *Client
	options DocumentOptions
	home    string
	wanted  chan struct{} // capacity 1: run is to synchronize

	applied atomic.Int64 // the number of revision, 0 before the first

	// mu guards the fields below. It is locked while Redis is asked and while Apply runs.
	mu        sync.Mutex
	data      []byte
	revision  string // the last one of Redis that data includes, empty before the first
	unsent    bool   // data has changes that revision has not
	highest   int64  // number of a revision that this instance has applied
	instances []instance
}

// An instance is one that has the Document.
type instance struct {
	id       string
	revision int64 // that it has applied
	silent   time.Duration
	name     string
}

// A Delivery says which instances obey a change.
type Delivery struct {
	Acknowledged []string  // the names of those that do, with this one, in order
	Missing      []Missing // those that may not, in order of their names
	Err          error     // why Redis could not be asked; then the others learn of the change when it answers
}

// Missing is an instance that has not acknowledged a change. It has ended without Close, it hangs, or it cannot reach
// Redis. It applies the change as soon as it reaches Redis, and before it is granted a lease.
type Missing struct {
	Name   string
	Silent time.Duration // since it was last heard
}

// OpenDocument opens the Document of the instances, and calls Apply before it returns if Redis has changes. A Client
// has one Document at most, and closes it.
func (c *Client) OpenDocument(o DocumentOptions) *Document {
	sum := sha256.Sum256([]byte(cmp.Or(o.Home, c.id)))
	d := &Document{
		client: c, options: o, home: hex.EncodeToString(sum[:8]), wanted: make(chan struct{}, 1),
		data: bytes.Clone(o.Data), unsent: len(o.Data) > 0,
	}
	if c.health.down() == nil {
		d.synchronizeOrWarn()
	}
	c.document.Store(d)
	c.loops.Go(d.run)
	return d
}

// Update changes the document. Change takes the present one, which is empty at first, and returns one that replaces it
// and that Merge prefers to it; a change that Merge does not prefer is lost. Update applies it here, and waits until
// each instance has acknowledged it or ctx is done. While Redis is down it does not wait. The error is that of change
// or Apply; then nothing has changed.
//
// Change must not call methods of the Document.
func (d *Document) Update(ctx context.Context, change func(data []byte) ([]byte, error)) (Delivery, error) {
	if err := d.change(change); err != nil {
		return Delivery{}, err
	}
	return d.deliver(ctx), nil
}

func (d *Document) change(change func(data []byte) ([]byte, error)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	data, err := change(bytes.Clone(d.data))
	if err != nil {
		return err
	}
	if err := d.options.Apply(data); err != nil {
		return err
	}
	d.data, d.unsent = data, true
	return nil
}

// deliver waits until all instances have acknowledged the document, ctx is done, or Redis is down.
func (d *Document) deliver(ctx context.Context) Delivery {
	var failure error
	for {
		err := d.client.health.down()
		if err == nil {
			err = d.synchronize(ctx)
		}
		if ctx.Err() == nil {
			failure = err
		}
		delivery := d.delivery()
		// While Redis may have lost its memory, it does not know all instances yet.
		knowsAll := err == nil && d.client.health.distrusts(0, time.Now()) == 0
		if knowsAll && len(delivery.Missing) == 0 {
			return delivery
		}
		if down := d.client.health.down(); down != nil {
			delivery.Err = fmt.Errorf("redislease: Redis is down: %w", down)
			return delivery
		}
		if ctx.Err() != nil || d.client.closing.Err() != nil {
			delivery.Err = failure
			return delivery
		}
		select {
		case <-ctx.Done():
		case <-d.client.closing.Done():
		case <-time.After(acknowledgedEvery):
		}
	}
}

// delivery returns which of the instances last known have the document.
func (d *Document) delivery() Delivery {
	d.mu.Lock()
	defer d.mu.Unlock()
	delivery := Delivery{Acknowledged: []string{d.options.Name}}
	for _, in := range d.instances {
		switch {
		case in.id == d.client.id:
		case !d.unsent && in.revision >= d.applied.Load():
			delivery.Acknowledged = append(delivery.Acknowledged, in.name)
		default:
			delivery.Missing = append(delivery.Missing, Missing{in.name, in.silent})
		}
	}
	slices.Sort(delivery.Acknowledged)
	slices.SortFunc(delivery.Missing, func(a, b Missing) int { return cmp.Compare(a.Name, b.Name) })
	return delivery
}

// run synchronizes whenever want was called, until the Client is closed.
func (d *Document) run() {
	for {
		select {
		case <-d.client.closing.Done():
			return
		case <-d.wanted:
		}
		if d.client.health.down() != nil {
			continue // the heartbeat calls want when Redis returns
		}
		d.synchronizeOrWarn()
	}
}

func (d *Document) synchronizeOrWarn() {
	if err := d.synchronize(d.client.closing); err != nil && d.client.closing.Err() == nil {
		d.client.log.Warn("the operator's list is not shared with other instances yet", "err", err)
	}
}

// wantSync makes the Document, if there is one, synchronize soon.
func (c *Client) wantSync() {
	d := c.document.Load()
	if d == nil {
		return
	}
	select {
	case d.wanted <- struct{}{}:
	default:
	}
}

// outdated reports whether Redis has a revision of the Document that this instance has not applied.
func (c *Client) outdated(revision int64) bool {
	d := c.document.Load()
	if d == nil || revision <= d.applied.Load() {
		return false
	}
	c.wantSync()
	return true
}

// synchronize merges the document of Redis with that of this instance until both are equal, and acknowledges it.
func (d *Document) synchronize(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for range maxConflicts {
		equal, err := d.stepLocked(ctx)
		if err != nil || equal {
			return err
		}
	}
	return errors.New("redislease: other instances change the document all the time")
}

// stepLocked acknowledges the revision of this instance, takes another one that Redis has, and sends what that has not.
// It reports whether there was neither.
func (d *Document) stepLocked(ctx context.Context) (equal bool, err error) {
	answer, err := d.askLocked(ctx, "sync", d.revision, d.home, d.options.Name)
	if err != nil {
		return false, err
	}
	revision, theirs, err := d.readLocked(answer)
	if err != nil {
		return false, err
	}
	if revision == d.revision && !d.unsent {
		return true, nil
	}
	if revision != d.revision {
		if err := d.takeLocked(theirs); err != nil {
			return false, err
		}
		d.setLocked(revision)
	}
	if !d.unsent {
		return false, nil // the next step acknowledges it
	}
	return false, d.writeLocked(ctx, revision)
}

// readLocked reads the answer to "sync".
func (d *Document) readLocked(answer any) (revision string, data []byte, err error) {
	v, _ := answer.([]any)
	if len(v) != 3 {
		return "", nil, errors.New("redislease: the answer of the script has another form")
	}
	list, _ := v[2].([]any)
	d.instances = make([]instance, 0, len(list))
	for _, one := range list {
		if one, ok := one.([]any); ok && len(one) == 4 {
			in := reply(one)
			d.instances = append(d.instances, instance{in.text(0), in.number(1), in.duration(2), in.text(3)})
		}
	}
	return reply(v).text(0), []byte(reply(v).text(1)), nil
}

// takeLocked applies the changes that only theirs has, and sets d.unsent if this instance has changes that theirs lacks.
func (d *Document) takeLocked(theirs []byte) error {
	merged, normal, err := d.mergeLocked(theirs)
	if err != nil {
		d.client.corrupt.Add(1)
		d.client.log.Warn("the operator's list in Redis was invalid, and is replaced by that of this instance", "err", err)
		merged, normal = d.data, nil
	}
	if !bytes.Equal(merged, d.data) {
		if err := d.options.Apply(merged); err != nil {
			return fmt.Errorf("redislease: applying the document of Redis: %w", err)
		}
	}
	d.data, d.unsent = merged, !bytes.Equal(merged, normal)
	return nil
}

// mergeLocked returns the document of both, and theirs as Merge writes it. An instance of another version may write it
// in another way, which need not be sent.
func (d *Document) mergeLocked(theirs []byte) (merged, normal []byte, err error) {
	if len(theirs) == 0 {
		return d.data, nil, nil
	}
	if normal, err = d.options.Merge(theirs, theirs); err != nil {
		return nil, nil, err
	}
	if len(d.data) == 0 {
		return normal, normal, nil
	}
	merged, err = d.options.Merge(d.data, theirs)
	return merged, normal, err
}

// writeLocked sends the document, unless Redis has got another revision since the one before.
func (d *Document) writeLocked(ctx context.Context, before string) error {
	next := strconv.FormatInt(d.highest+1, 10) + ":" + d.client.id
	answer, err := d.askLocked(ctx, "write", before, next, d.data)
	if err != nil {
		return err
	}
	if answer == int64(1) {
		d.setLocked(next)
		d.unsent = false
	}
	return nil
}

// setLocked notes that this instance has applied revision.
func (d *Document) setLocked(revision string) {
	number, _, _ := strings.Cut(revision, ":")
	n, _ := strconv.ParseInt(number, 10, 64)
	d.revision, d.highest = revision, max(n, d.highest)
	d.applied.Store(n)
}

// askLocked runs one verb of document.lua.
func (d *Document) askLocked(ctx context.Context, verb string, args ...any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	c := d.client
	all := c.prefix + hashTag
	keys := []string{all + "document", all + "document-instances", all + "memory"}
	answer, err := documentScript.Run(ctx, c.redis, keys, append([]any{verb, c.id, c.documentChannel()}, args...)...).Result()
	if err != nil {
		c.probe.want()
		return nil, fmt.Errorf("redislease: asking Redis to %s the document: %w", verb, err)
	}
	return answer, nil
}

// leave says that this instance has ended and is not missing.
func (d *Document) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, _ = d.askLocked(context.Background(), "leave")
}

func (c *Client) documentChannel() string { return c.prefix + hashTag + "document" }
