package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
)

// Exchange keeps values that several instances share for a while, and claims on their names: redislease.Values.
type Exchange interface {
	// Get returns nil if there is no value.
	Get(ctx context.Context, name string) ([]byte, error)
	// Put keeps data until lasts has passed, and sends notice to all instances, unless it has that version or a later one.
	Put(ctx context.Context, name string, version int64, data []byte, lasts time.Duration, notice string) error
	Delete(ctx context.Context, name, notice string) error

	// Claim claims name for holder, or prolongs its claim. It reports false if another holder has the claim. If there was
	// no claim, it also returns the value of name, which is empty if there is none, and else nil.
	Claim(ctx context.Context, name, holder string, lasts time.Duration) (claimed bool, value []byte, err error)
	Release(ctx context.Context, name, holder string) error
	Claimed(ctx context.Context, name string) (bool, error)

	// Watch calls notice for each notice until ctx ends, and lost whenever it may have missed some, also at its begin.
	Watch(ctx context.Context, notice func(text string), lost func())
}

// ExchangedFiles shares the robots.txt of every origin with other instances over an Exchange for as long as it is fresh,
// and keeps it in the State of this instance. If the Exchange fails, it goes on with the State, and uses the Exchange
// again after five seconds.
type ExchangedFiles struct {
	*State
	exchange Exchange
	options  SharedOptions
	retry    atomic.Int64          // Unix nanoseconds before which the Exchange is not used
	taken    chan *robots.Snapshot // from the Exchange, for Watch to save
	claimed  sync.Map              // the value that a Claim has returned, by origin.Origin, for the next Load
}

// mostTaken is the number of snapshots that wait to be saved after they were taken from the Exchange. More are not saved.
const mostTaken = 256

var (
	_ robots.SharedStore = (*ExchangedFiles)(nil)
	_ robots.BatchStore  = (*ExchangedFiles)(nil)
)

// ShareOver returns the files of local, shared over x.
func ShareOver(x Exchange, local *State, o SharedOptions) *ExchangedFiles {
	return &ExchangedFiles{State: local, exchange: x, options: o.withDefaults(), taken: make(chan *robots.Snapshot, mostTaken)}
}

// errExchangeSkipped says that the Exchange was not used since it has just failed.
var errExchangeSkipped = errors.New("store: the exchange of files has failed less than five seconds ago")

// ask calls f, unless the Exchange has just failed.
func (s *ExchangedFiles) ask(ctx context.Context, f func() error) error {
	if time.Now().UnixNano() < s.retry.Load() {
		return errExchangeSkipped
	}
	err := f()
	if err == nil || ctx.Err() != nil {
		return err
	}
	s.retry.Store(time.Now().Add(sharedRetry).UnixNano())
	s.options.Failed(err)
	return err
}

// Load returns the snapshot last saved for o by any instance while it is fresh, else that of this instance: see
// State.Load.
func (s *ExchangedFiles) Load(ctx context.Context, o origin.Origin) (*robots.Snapshot, error) {
	shared, err := s.get(ctx, o)
	if err != nil || shared == nil {
		return s.State.Load(ctx, o)
	}
	own, err := s.State.Load(ctx, o)
	switch {
	case err == nil && own.Fetched.After(shared.Fetched): // it could not be shared
		return own, nil
	case err == nil && !own.Fetched.Before(shared.Fetched):
		return shared, nil
	}
	select {
	case s.taken <- shared: // it counts without the Exchange
	default:
	}
	return shared, nil
}

// get returns the snapshot of o in the Exchange, or nil. It reports a damaged one.
func (s *ExchangedFiles) get(ctx context.Context, o origin.Origin) (snap *robots.Snapshot, err error) {
	data, err := s.value(ctx, o)
	if err != nil || len(data) == 0 {
		return nil, err
	}
	if snap, err = decodeFile(data, o); err != nil {
		err = fmt.Errorf("store: the shared robots.txt of %s: %w", o, err)
		s.options.Failed(err)
		return nil, err
	}
	return snap, nil
}

// value returns the value of o in the Exchange. It is empty if there is none.
func (s *ExchangedFiles) value(ctx context.Context, o origin.Origin) (data []byte, err error) {
	if value, ok := s.claimed.LoadAndDelete(o); ok {
		return value.([]byte), nil
	}
	err = s.ask(ctx, func() error {
		data, err = s.exchange.Get(ctx, o.String())
		return err
	})
	return data, err
}

// Save shares snap, and stores it and c in the State: see State.Save. It returns the error of the State.
func (s *ExchangedFiles) Save(ctx context.Context, snap *robots.Snapshot, c *robots.Change) error {
	s.put(ctx, snap)
	return s.State.Save(ctx, snap, c)
}

// putters is the number of concurrent Puts of SaveAll.
const putters = 16

// SaveAll calls Save for each entry.
func (s *ExchangedFiles) SaveAll(ctx context.Context, all []robots.StoreEntry) error {
	var running sync.WaitGroup
	free := make(chan struct{}, putters)
	for _, e := range all {
		free <- struct{}{}
		running.Go(func() {
			s.put(ctx, e.Snapshot)
			<-free
		})
	}
	running.Wait()
	return s.State.SaveAll(ctx, all)
}

// mostShared is the size of the largest snapshot that is shared, in bytes, compressed. The others are fetched by each instance.
const mostShared = 64 << 10

// put shares snap. ask reports its failure.
func (s *ExchangedFiles) put(ctx context.Context, snap *robots.Snapshot) {
	data, err := encodeFile(snap)
	if err != nil || len(data) > mostShared {
		return
	}
	lasts := max(time.Second, time.Until(snap.Expires))
	_ = s.ask(ctx, func() error {
		sent := notice{snap.Origin, snap.Fetched}
		return s.exchange.Put(ctx, snap.Origin.String(), micros(snap.Fetched), data, lasts, sent.String())
	})
}

// Delete removes the snapshot of o for all instances: see State.Delete.
func (s *ExchangedFiles) Delete(ctx context.Context, o origin.Origin) error {
	err := s.ask(ctx, func() error {
		return s.exchange.Delete(ctx, o.String(), notice{origin: o}.String())
	})
	return errors.Join(err, s.State.Delete(ctx, o))
}

// Claim implements robots.SharedStore. The claim is renewed until release is called.
func (s *ExchangedFiles) Claim(ctx context.Context, o origin.Origin) (release func(), claimed bool) {
	return claimFile(ctx, s, o, s.options.ClaimTime)
}

// AwaitClaim implements robots.SharedStore.
func (s *ExchangedFiles) AwaitClaim(ctx context.Context, o origin.Origin) { awaitClaim(ctx, s, o) }

func (s *ExchangedFiles) claim(ctx context.Context, o origin.Origin, holder string) (claimed bool, err error) {
	err = s.ask(ctx, func() error {
		var value []byte
		if claimed, value, err = s.exchange.Claim(ctx, o.String(), holder, s.options.ClaimTime); value != nil {
			s.claimed.Store(o, value)
		}
		return err
	})
	return claimed, err
}

func (s *ExchangedFiles) isClaimed(ctx context.Context, o origin.Origin) (claimed bool, err error) {
	err = s.ask(ctx, func() error {
		claimed, err = s.exchange.Claimed(ctx, o.String())
		return err
	})
	return claimed, err
}

func (s *ExchangedFiles) unclaim(ctx context.Context, o origin.Origin, holder string) {
	s.claimed.Delete(o)
	_ = s.ask(ctx, func() error { return s.exchange.Release(ctx, o.String(), holder) })
}

// Watch calls changed for each snapshot that an instance has saved or deleted, until ctx ends: snapshots fetched before
// the given time no longer count. It calls lost if it may have missed some. A deleted snapshot is deleted from the State
// too. Watch also saves in the State what Load has taken from the Exchange.
func (s *ExchangedFiles) Watch(ctx context.Context, changed func(o origin.Origin, before time.Time), lost func()) {
	var saving sync.WaitGroup
	saving.Go(func() { s.saveTaken(ctx) })
	defer saving.Wait()
	s.exchange.Watch(ctx, func(text string) {
		n, err := parseNotice(text)
		if err != nil {
			return // of another program
		}
		if n.fetched.IsZero() {
			n.fetched = time.Now()
			_ = s.State.Delete(ctx, n.origin)
		}
		changed(n.origin, n.fetched)
	}, lost)
}

// saveTaken saves what Load has taken from the Exchange until ctx ends. The Cache reports a State that fails.
func (s *ExchangedFiles) saveTaken(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case snap := <-s.taken:
			_ = s.State.Save(ctx, snap, nil)
		}
	}
}

// fileVersion is the version of sharedFile. An instance does not read other versions.
const fileVersion = 1

// sharedFile is a snapshot in an Exchange. Its bytes may be of any kind, so they are not strings.
type sharedFile struct {
	Version      int
	Origin       string
	Availability robots.Availability
	Status       int
	Redirects    string
	Fetched      int64 // this and the other times in microseconds
	Expires      int64
	Since        int64
	SHA256       string
	Body         []byte
	Truncated    bool
	ContentType  []byte
	ETag         []byte
	LastModified []byte
	Fields       []byte
	Flags        string
	Cause        string
	Err          []byte // nil: none
	Stale        bool
	Failures     int
}

// encodeFile returns snap as decodeFile reads it: a byte that is 1 if the rest is compressed.
func encodeFile(snap *robots.Snapshot) ([]byte, error) {
	f := sharedFile{
		Version: fileVersion, Origin: snap.Origin.String(), Availability: snap.Availability, Status: snap.Status,
		Redirects: listText(snap.Redirects), Fetched: micros(snap.Fetched), Expires: micros(snap.Expires),
		Since: micros(snap.Since), SHA256: snap.SHA256, Body: snap.Body, Truncated: snap.Truncated,
		ContentType: []byte(snap.ContentType), ETag: []byte(snap.ETag), LastModified: []byte(snap.LastModified),
		Fields: []byte(snap.Fields), Flags: snap.Flags.String(), Cause: snap.Cause, Stale: snap.Stale, Failures: snap.Failures,
	}
	if snap.Err != nil {
		f.Err = []byte(snap.Err.Error())
	}
	text, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	data, deflated, err := deflate(text)
	if deflated {
		return append([]byte{1}, data...), err
	}
	return append([]byte{0}, data...), err
}

// decodeFile returns the snapshot of o that encodeFile has encoded. It returns an error if the text does not match its
// hash, as State.Load does.
func decodeFile(data []byte, o origin.Origin) (*robots.Snapshot, error) {
	if len(data) == 0 {
		return nil, errDamaged
	}
	text, err := inflate(data[1:], data[0] == 1)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	var f sharedFile
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	switch {
	case f.Version != fileVersion:
		return nil, fmt.Errorf("another version of robotsproxy has shared it (format %d; this one reads %d)", f.Version, fileVersion)
	case f.Origin != o.String():
		return nil, fmt.Errorf("%w: it is that of %q", errDamaged, f.Origin)
	case f.SHA256 != "" && hashOf(f.Body) != f.SHA256, f.SHA256 == "" && len(f.Body) > 0:
		return nil, fmt.Errorf("%w: its text has another hash", errDamaged)
	case timeOf(f.Fetched).After(time.Now().Add(time.Hour)):
		return nil, fmt.Errorf("%w: it was fetched in the future", errDamaged)
	case f.Availability > robots.Found || f.Availability == robots.Found && f.SHA256 == "":
		return nil, fmt.Errorf("%w: its availability is %d", errDamaged, f.Availability)
	}
	return f.snapshot(o)
}

func (f *sharedFile) snapshot(o origin.Origin) (*robots.Snapshot, error) {
	snap := &robots.Snapshot{Stale: f.Stale, Since: timeOf(f.Since), Failures: f.Failures}
	snap.Answer = robots.Answer{
		Origin: o, Availability: f.Availability, Status: f.Status, Fetched: timeOf(f.Fetched), Expires: timeOf(f.Expires),
		SHA256: f.SHA256, Body: f.Body, Truncated: f.Truncated, ContentType: string(f.ContentType), ETag: string(f.ETag),
		LastModified: string(f.LastModified), Fields: string(f.Fields), Cause: f.Cause,
	}
	if f.Err != nil {
		snap.Err = errors.New(string(f.Err))
	}
	var err error
	if snap.Redirects, err = parseList(f.Redirects); err != nil {
		return nil, err
	}
	if snap.Flags, err = parseFlags(f.Flags); err != nil {
		return nil, err
	}
	return snap, checkFields(snap.Fields)
}
