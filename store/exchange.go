package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// Exchange keeps values that several instances share for a while, with a version that is a time, and claims on their names:
// redislease.Values. Versions are by the clock of this machine, although those of the instances may differ.
type Exchange interface {
	// Get returns a zero version if nothing is known of name. There is no data if that of this version and of those before
	// it does not count.
	Get(ctx context.Context, name string) (version time.Time, data []byte, err error)
	// Put keeps data for lasts at least, and sends notice to all instances, unless this version or a later one is stored. If
	// data is empty, or if there is no room, it removes the data of an older version.
	Put(ctx context.Context, name string, version time.Time, data []byte, lasts time.Duration, notice string) error
	// Delete removes the data, so that for lasts no version from before now counts, and sends notice.
	Delete(ctx context.Context, name string, lasts time.Duration, notice string) error

	// Claim claims name for holder, or prolongs its claim. It reports false if another holder has the claim. If it made the
	// claim, it also returns what Get returns, and the data is not nil.
	Claim(ctx context.Context, name, holder string, lasts time.Duration) (claimed bool, version time.Time, data []byte, err error)
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
	outage   outage
	taken    chan *robots.Snapshot // from the Exchange, for Watch to save
	claimed  sync.Map              // the value that a Claim has returned, by origin.Origin, for the next Load
	sender   string                // of notices
}

// value is a value of an Exchange.
type value struct {
	version time.Time
	data    []byte
}

// mostTaken is the number of snapshots that wait to be saved after they were taken from the Exchange. More are not saved.
const mostTaken = 256

var (
	_ robots.SharedStore = (*ExchangedFiles)(nil)
	_ robots.BatchStore  = (*ExchangedFiles)(nil)
)

// ShareOver returns the files of local, shared over x.
func ShareOver(x Exchange, local *State, o SharedOptions) *ExchangedFiles {
	return &ExchangedFiles{
		State: local, exchange: x, options: o.withDefaults(), outage: newOutage(),
		taken: make(chan *robots.Snapshot, mostTaken), sender: rand.Text(),
	}
}

// errExchangeSkipped says that the Exchange was not used since it has just failed.
var errExchangeSkipped = errors.New("store: the exchange of files has failed less than five seconds ago")

// ask calls f, unless the Exchange has just failed.
func (s *ExchangedFiles) ask(ctx context.Context, f func() error) error {
	if s.outage.isOn() {
		return errExchangeSkipped
	}
	err := f()
	if err == nil || ctx.Err() != nil {
		return err
	}
	s.outage.begin()
	s.options.Failed(err)
	return err
}

// Load returns the snapshot last saved for o by any instance, or robots.ErrNoSnapshot if it was deleted or could not be
// shared. If the Exchange fails, or has nothing for o that this version can read, Load returns the snapshot of this
// instance: see State.Load.
func (s *ExchangedFiles) Load(ctx context.Context, o origin.Origin) (*robots.Snapshot, error) {
	last, err := s.value(ctx, o)
	own, ownErr := s.State.Load(ctx, o)
	switch {
	case err != nil:
		if ownErr == nil {
			s.outage.miss()
		}
		return own, ownErr
	case last.version.IsZero():
		return own, ownErr
	case ownErr == nil && own.Fetched.After(last.version):
		if len(last.data) > 0 {
			s.put(ctx, own) // the Exchange could not be used when it was fetched
		}
		return own, nil
	case len(last.data) == 0:
		return nil, robots.ErrNoSnapshot
	case ownErr == nil && own.Fetched.Equal(last.version):
		return own, nil
	}
	shared, err := s.decode(last, o)
	if err != nil || ownErr == nil && judgedOtherwise(own, shared) {
		return own, ownErr
	}
	select {
	case s.taken <- shared: // it counts without the Exchange
	default:
	}
	return shared, nil
}

// judgedOtherwise reports whether own and shared are answers of one kind that count for something else at the instance that
// has fetched shared: its robots.on_unauthorized or robots.on_html differs. To take shared would cost a fetch, and that
// instance another one, without end.
func judgedOtherwise(own, shared *robots.Snapshot) bool {
	return own.Flags&shared.Flags&fetch.Wall != 0 && own.Availability != shared.Availability
}

// decode returns the snapshot in v, which is that of o. It reports a damaged one.
func (s *ExchangedFiles) decode(v value, o origin.Origin) (*robots.Snapshot, error) {
	snap, err := decodeFile(v.data, o)
	if err != nil {
		err = fmt.Errorf("store: the shared robots.txt of %s: %w", o, err)
		s.options.Failed(err)
		return nil, err
	}
	shift(snap, v.version)
	return snap, nil
}

// shift moves the times of snap from the clock of the instance that has fetched it to that of this one.
func shift(snap *robots.Snapshot, fetched time.Time) {
	by := fetched.Sub(snap.Fetched)
	snap.Fetched, snap.Expires = fetched, snap.Expires.Add(by)
	if !snap.Since.IsZero() {
		snap.Since = snap.Since.Add(by)
	}
}

// value returns the value of o in the Exchange.
func (s *ExchangedFiles) value(ctx context.Context, o origin.Origin) (v value, err error) {
	if claimed, ok := s.claimed.LoadAndDelete(o); ok {
		return claimed.(value), nil
	}
	err = s.ask(ctx, func() error {
		v.version, v.data, err = s.exchange.Get(ctx, o.String())
		return err
	})
	return v, err
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

// put shares snap, or says that an older one does not count. ask reports its failure.
func (s *ExchangedFiles) put(ctx context.Context, snap *robots.Snapshot) {
	data, err := encodeFile(snap)
	if err != nil || len(data) > mostShared {
		data = nil
	}
	lasts := max(time.Second, time.Until(snap.Expires))
	_ = s.ask(ctx, func() error {
		return s.exchange.Put(ctx, snap.Origin.String(), snap.Fetched, data, lasts, notice{s.sender, snap.Origin, false}.String())
	})
}

// deletedFor is how long a Delete is remembered: a file is fresh for no longer.
const deletedFor = fetch.MaxTTL

// Delete removes the snapshot of o for all instances: see State.Delete.
func (s *ExchangedFiles) Delete(ctx context.Context, o origin.Origin) error {
	err := s.ask(ctx, func() error {
		return s.exchange.Delete(ctx, o.String(), deletedFor, notice{s.sender, o, true}.String())
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
		var v value
		claimed, v.version, v.data, err = s.exchange.Claim(ctx, o.String(), holder, s.options.ClaimTime)
		if v.data != nil {
			s.claimed.Store(o, v)
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

// Watch calls changed for each snapshot that another instance has saved or deleted, until ctx ends: snapshots fetched before
// the given time may no longer count. It calls lost if it may have missed some. A deleted snapshot is deleted from the State
// too. Watch also saves in the State what Load has taken from the Exchange.
func (s *ExchangedFiles) Watch(ctx context.Context, changed func(o origin.Origin, before time.Time), lost func()) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { s.saveTaken(ctx) })
	running.Go(func() { s.outage.watch(ctx, func() error { return s.works(ctx) }, lost) })
	s.exchange.Watch(ctx, func(text string) { obey(ctx, text, s.sender, s.State, changed) }, lost)
}

func (s *ExchangedFiles) works(ctx context.Context) error {
	return s.ask(ctx, func() error {
		_, _, err := s.exchange.Get(ctx, "")
		return err
	})
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
