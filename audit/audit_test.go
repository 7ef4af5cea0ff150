package audit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/robotsproxy/robotsproxy/policy"
)

func TestIDs(t *testing.T) {
	s := Sequence{Instance: func() int { return 7 }}
	at := epoch.Add(time.Hour)
	first, second := s.Next(at), s.Next(at)
	stepped := s.Next(at.Add(-time.Minute))
	if !(first < second && second < stepped) {
		t.Errorf("ids do not grow: %d, %d, %d", first, second, stepped)
	}
	if got := first.Time(); !got.Equal(at) {
		t.Errorf("Time() = %v, want %v", got, at)
	}
	if got := first & 1023; got != 7 {
		t.Errorf("instance = %d, want 7", got)
	}
	text := first.String()
	if back, err := ParseID(text); err != nil || back != first || len(text) != 13 {
		t.Errorf("ParseID(%q) = %d, %v; want %d from 13 characters", text, back, err, first)
	}
	if second.String() <= text {
		t.Errorf("%q does not sort behind %q", second, text)
	}
	for _, bad := range []string{"", "short", "zzzzzzzzzzzzz", strings.Repeat("v", 13)} {
		if id, err := ParseID(bad); err == nil {
			t.Errorf("ParseID(%q) = %d, want an error", bad, id)
		}
	}
}

func TestQueryModes(t *testing.T) {
	const query = "q=a&api_key=s3cr3t&to%6ben=x&X-Amz-Signature=abc;token=&page=2&flag"
	for _, row := range []struct {
		mode QueryMode
		want string
	}{
		{QueryMask, "q=a&api_key=***&to%6ben=***&X-Amz-Signature=***;token=&page=2&flag"},
		{QueryKeep, query},
		{QueryDrop, ""},
		{"", "q=a&api_key=***&to%6ben=***&X-Amz-Signature=***;token=&page=2&flag"},
	} {
		if got := row.mode.Apply(query); got != row.want {
			t.Errorf("Apply(%q) = %q, want %q", query, got, row.want)
		}
	}
	if got := QueryHash.Apply(query); !strings.HasPrefix(got, "sha256:") || strings.Contains(got, "s3cr3t") {
		t.Errorf("hashed query = %q", got)
	}
}

// openRecorder returns a Recorder of JSON lines.
func openRecorder(path string) (*Recorder, error) {
	l, err := OpenLines(LinesOptions{Path: path})
	if err != nil {
		return nil, err
	}
	return NewRecorder(RecorderOptions{Lines: l}), nil
}

// newRecorder returns a Recorder of JSON lines that writes to out.
func newRecorder(o RecorderOptions, out io.WriteCloser) *Recorder {
	o.Lines = newLines(LinesOptions{Path: "disk"}, out)
	return NewRecorder(o)
}

func lines(t *testing.T, path string) []Record {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var records []Record
	for s := bufio.NewScanner(f); s.Scan(); {
		var r Record
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatalf("line %q: %v", s.Text(), err)
		}
		records = append(records, r)
	}
	return records
}

func TestRecordIsReadBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "audit.jsonl")
	w, err := openRecorder(path)
	if err != nil {
		t.Fatal(err)
	}
	want := Record{
		ID: 1 << 40, Time: epoch.Add(time.Hour), Host: "a.example", Path: "/x\x1b[31m", Decision: policy.Deny, Reason: policy.ReasonRobots,
		RuleLine: 3, Rule: "Disallow: /x", Waited: Millis(1500 * time.Microsecond), Status: 403, Bytes: 12,
	}
	if err := w.Begin(context.Background(), &want); err != nil {
		t.Fatal(err)
	}
	w.End(&want)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Record{want}, lines(t, path)); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	if raw, _ := os.ReadFile(path); strings.ContainsRune(string(raw), '\x1b') {
		t.Errorf("a terminal escape stands in the file: %q", raw)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the file = %v, want 0600", info.Mode().Perm())
	}
}

func TestManyWritersLoseNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	w, err := openRecorder(path)
	if err != nil {
		t.Fatal(err)
	}
	const writers, each = 20, 500
	var ids Sequence
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				r := &Record{ID: ids.Next(time.Now()), Decision: policy.Allow}
				if err := w.Begin(context.Background(), r); err != nil {
					t.Error(err)
				}
				w.End(r)
			}
		})
	}
	wg.Wait()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	seen := make(map[ID]bool)
	for _, r := range lines(t, path) {
		seen[r.ID] = true
	}
	if len(seen) != writers*each || w.Stats().Lost != 0 {
		t.Errorf("%d records written and %d lost, want %d and 0", len(seen), w.Stats().Lost, writers*each)
	}
}

// Each record is in exactly one of the files, whole, although the file is renamed while records are written.
func TestReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	w, err := openRecorder(path)
	if err != nil {
		t.Fatal(err)
	}
	const writers, each, files = 8, 2000, 20
	var ids Sequence
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				r := &Record{ID: ids.Next(time.Now()), Decision: policy.Allow}
				if err := w.Begin(context.Background(), r); err != nil {
					t.Error(err)
				}
				w.End(r)
			}
		})
	}
	for i := range files {
		if err := os.Rename(path, fmt.Sprintf("%s.%d", path, i)); err != nil {
			t.Fatal(err)
		}
		if err := w.Reopen(); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Reopen(); err == nil {
		t.Error("a closed file was reopened")
	}
	all, err := filepath.Glob(path + "*")
	if err != nil || len(all) != files+1 {
		t.Fatalf("%d files, %v; want %d", len(all), err, files+1)
	}
	seen := make(map[ID]bool)
	for _, file := range all {
		for _, r := range lines(t, file) {
			if seen[r.ID] {
				t.Errorf("the record %v is there twice", r.ID)
			}
			seen[r.ID] = true
		}
	}
	if len(seen) != writers*each || w.Stats().Lost != 0 {
		t.Errorf("%d records written and %d lost, want %d and 0", len(seen), w.Stats().Lost, writers*each)
	}
}

// If the new file cannot be opened, the old one continues.
func TestReopenFails(t *testing.T) {
	dir := t.TempDir()
	path, old := filepath.Join(dir, "audit.jsonl"), filepath.Join(dir, "old")
	w, err := openRecorder(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, old); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := w.Reopen(); err == nil {
		t.Error("a folder was opened as the file of the records")
	}
	r := &Record{ID: 1, Decision: policy.Allow}
	if err := w.Begin(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	w.End(r)
	if err := w.Close(); err != nil || len(lines(t, old)) != 1 {
		t.Errorf("Close = %v; the old file has %d records, want 1", err, len(lines(t, old)))
	}
}

func TestTornLineIsMended(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	whole := `{"id":"0000000000001","decision":"allow"}` + "\n"
	if err := os.WriteFile(path, []byte(whole+`{"id":"00000000`+strings.Repeat("x", 9000)), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := openRecorder(path)
	if err != nil {
		t.Fatal(err)
	}
	other, err := openRecorder(path) // a second process may write the same file
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), other.Close()); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != whole {
		t.Errorf("file after opening = %q, want %q", got, whole)
	}
}

// failing is a disk that is full until the test frees it. It writes a part of the data before it returns the error.
type failing struct {
	mu   sync.Mutex
	full bool
	got  strings.Builder
}

func (f *failing) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.full {
		n := len(b) / 2
		f.got.Write(b[:n])
		return n, errors.New("no space left on device")
	}
	return f.got.Write(b)
}

func (f *failing) Close() error { return nil }

func (f *failing) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = false
}

func TestFullDisk(t *testing.T) {
	disk := &failing{full: true}
	w := newRecorder(RecorderOptions{Buffer: 3}, disk)
	ctx := context.Background()
	for i := range 3 {
		r := &Record{ID: ID(i + 1), Decision: policy.Allow}
		if err := w.Begin(ctx, r); err != nil {
			t.Fatalf("Begin %d on a full disk: %v; the buffer holds 3", i, err)
		}
		w.End(r)
	}
	if err := w.Begin(ctx, &Record{}); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("Begin past the buffer = %v, want ErrUnavailable", err)
	}
	disk.heal()
	r := &Record{ID: 4, Decision: policy.Allow}
	for w.Begin(ctx, r) != nil { // until the writer tries again
		time.Sleep(10 * time.Millisecond)
	}
	w.End(r)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for line := range strings.Lines(disk.got.String()) {
		var r Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("torn line %q: %v", line, err)
		}
		ids = append(ids, fmt.Sprint(int64(r.ID)))
	}
	if got := strings.Join(ids, " "); got != "1 2 3 4" {
		t.Errorf("written after the disk healed: %s, want 1 2 3 4", got)
	}
}

func TestFullDiskAtTheEnd(t *testing.T) {
	w := newRecorder(RecorderOptions{Buffer: 3}, &failing{full: true})
	r := &Record{ID: 1}
	if err := w.Begin(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	w.End(r)
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), "1 records could not be written") {
		t.Errorf("Close on a full disk = %v, want an error that counts what is lost", err)
	}
	if err := w.Begin(context.Background(), r); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Begin after Close = %v, want ErrUnavailable", err)
	}
}

func TestContinueGoesOnUnrecorded(t *testing.T) {
	w := newRecorder(RecorderOptions{Buffer: 1, Continue: true}, &failing{full: true})
	for i := range 3 {
		r := &Record{ID: ID(i)}
		if err := w.Begin(context.Background(), r); err != nil {
			t.Fatal(err)
		}
		w.End(r)
	}
	if got := w.Stats().Lost; got != 2 {
		t.Errorf("Lost = %d, want 2", got)
	}
	w.Close()
}

// SetContinue changes what becomes of requests while the buffer is full.
func TestSetContinue(t *testing.T) {
	w := newRecorder(RecorderOptions{Buffer: 1}, &failing{full: true})
	defer w.Close()
	begin := func() error { return w.Begin(context.Background(), &Record{}) }
	if err := begin(); err != nil {
		t.Fatal(err)
	}
	if err := begin(); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Begin = %v, want ErrUnavailable", err)
	}
	w.SetContinue(true)
	if err := begin(); err != nil {
		t.Errorf("Begin = %v", err)
	}
	w.SetContinue(false)
	if err := begin(); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Begin = %v, want ErrUnavailable again", err)
	}
}

func ExampleRecorder() {
	dir, _ := os.MkdirTemp("", "audit")
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "audit.jsonl")
	l, _ := OpenLines(LinesOptions{Path: path})
	w := NewRecorder(RecorderOptions{Lines: l})
	r := &Record{ID: 1, Time: epoch, Host: "a.example", Path: "/private", Decision: policy.Deny, Reason: policy.ReasonRobots, Status: 403}
	if w.Begin(context.Background(), r) == nil {
		w.End(r)
	}
	w.Close()
	line, _ := os.ReadFile(path)
	fmt.Print(string(line))
	// Output: {"id":"0000000000002","time":"2026-01-01T00:00:00Z","host":"a.example","path":"/private","decision":"deny","reason":"robots","status":403,"bytes":0}
}

func BenchmarkRecord(b *testing.B) {
	l, err := OpenLines(LinesOptions{Path: os.DevNull})
	if err != nil {
		b.Fatal(err)
	}
	w := NewRecorder(RecorderOptions{Lines: l, Buffer: 1 << 30})
	defer w.Close()
	r := &Record{
		ID: 1, Time: time.Now(), Client: "local", ClientAddr: "127.0.0.1:40000", UserAgent: "NewsBot/1.0", Method: "GET", Scheme: "https",
		Host: "a.example", Port: 443, Path: "/news/page.html", Via: Intercepted, Mode: "enforce", Decision: policy.Allow,
		RobotsSHA256: strings.Repeat("a", 64), RobotsStatus: 200, RobotsState: "found", SentAt: time.Now(), EndedAt: time.Now(), Status: 200, Bytes: 12345,
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Begin(context.Background(), r); err != nil {
			b.Fatal(err)
		}
		w.End(r)
	}
}

// An id has one text: the last character has a bit that no id uses.
func TestParseIDIsExact(t *testing.T) {
	const characters = "0123456789abcdefghijklmnopqrstuv"
	id := IDAt(time.Now())
	text := id.String()
	if got, err := ParseID(text); err != nil || got != id {
		t.Errorf("ParseID(%q) = %v, %v", text, got, err)
	}
	last := strings.IndexByte(characters, text[len(text)-1])
	other := text[:len(text)-1] + characters[last+1:last+2]
	if got, err := ParseID(other); err == nil {
		t.Errorf("ParseID(%q) = %v, as that of %q", other, got, text)
	}
}
