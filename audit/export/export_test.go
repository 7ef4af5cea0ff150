package export_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"go.uber.org/goleak"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/export"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var at = time.Date(2026, 11, 22, 23, 0, 0, 123_456_000, time.UTC)

// records are a fetch, a refusal, a tunnel, a request that was abandoned, a robots.txt, and one of a hostile client.
func records() []audit.Record {
	fetched := audit.Record{
		ID: 1, Time: at, Client: "news team", ClientAddr: "10.4.2.17:5000", Method: "GET", Scheme: "http", Host: "a.example", Port: 80,
		Path: "/x", Query: "q=1", Via: audit.Plain, Mode: "enforce", Decision: "allow",
		DelayRequired: audit.Millis(2 * time.Second), Waited: audit.Millis(1500 * time.Microsecond),
		SentAt: at.Add(time.Second), EndedAt: at.Add(1234 * time.Millisecond), Status: 200, Bytes: 411, UpstreamAddr: "192.0.2.1:80",
	}
	refused, tunnel, gone, robots, hostile := fetched, fetched, fetched, fetched, fetched
	refused.ID, refused.Decision, refused.Reason, refused.RuleLine, refused.Rule = 2, "deny", "robots", 3, "Disallow: /x"
	refused.SentAt, refused.UpstreamAddr, refused.Status = time.Time{}, "", 403
	refused.ClientAddr, tunnel.ClientAddr, gone.ClientAddr = "[2001:db8::1]:5000", "10.4.2.0/24", ""
	tunnel.ID, tunnel.Via, tunnel.Method, tunnel.Scheme, tunnel.Port, tunnel.Path, tunnel.Query = 3, audit.Tunnel, "CONNECT", "https", 443, "", ""
	gone.ID, gone.Reason, gone.Decision, gone.Status = 4, "client-left", "error", 0
	robots.ID, robots.Path, robots.Query, robots.SentAt, robots.UpstreamAddr = 5, "/robots.txt", "", time.Time{}, ""
	hostile.ID, hostile.Path, hostile.UserAgent, hostile.Client = 6, "/ \n\x1b[31m", "=HYPERLINK(\"http://evil\")", "@SUM(1)"
	return []audit.Record{fetched, refused, tunnel, gone, robots, hostile}
}

func sequence(records []audit.Record, last error) export.Records {
	return func(yield func(*audit.Record, error) bool) {
		for i := range records {
			if !yield(&records[i], nil) {
				return
			}
		}
		if last != nil {
			yield(nil, last)
		}
	}
}

func write(t *testing.T, f export.Format, records []audit.Record) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := export.Write(&b, f, sequence(records, nil))
	if err != nil || n != int64(len(records)) {
		t.Fatalf("Write: %d, %v; want %d records", n, err, len(records))
	}
	return b.Bytes()
}

func TestSquid(t *testing.T) {
	want := `1795388401.357   1234 10.4.2.17 TCP_MISS/200 411 GET http://a.example/x?q=1 news%20team HIER_DIRECT/192.0.2.1 -
1795388401.357   1234 2001:db8::1 TCP_DENIED/403 411 GET http://a.example/x?q=1 news%20team HIER_NONE/- -
1795388401.357   1234 10.4.2.0 TCP_TUNNEL/200 411 CONNECT a.example:443 news%20team HIER_DIRECT/192.0.2.1 -
1795388401.357   1234 - TCP_MISS_ABORTED/000 411 GET http://a.example/x?q=1 news%20team HIER_DIRECT/192.0.2.1 -
1795388401.357   1234 10.4.2.17 TCP_HIT/200 411 GET http://a.example/robots.txt news%20team HIER_NONE/- -
1795388401.357   1234 10.4.2.17 TCP_MISS/200 411 GET http://a.example/%20%0A%1B[31m?q=1 @SUM(1) HIER_DIRECT/192.0.2.1 -
`
	if diff := cmp.Diff(want, string(write(t, export.Squid, records()))); diff != "" {
		t.Error(diff)
	}
}

// TestParquet reads the file with the library: all columns in their order, with types, and without values where a record
// has no such field.
func TestParquet(t *testing.T) {
	many := records()
	for i := range 60_000 { // more than one group of rows
		r := many[i%6]
		r.ID = audit.ID(i + 7)
		many = append(many, r)
	}
	written := write(t, export.Parquet, many)
	file, err := parquet.OpenFile(bytes.NewReader(written), int64(len(written)))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	types := map[string]string{}
	for _, f := range file.Schema().Fields() {
		names = append(names, f.Name())
		types[f.Name()] = f.Type().String()
	}
	if diff := cmp.Diff(audit.Columns, names); diff != "" {
		t.Error("the columns:", diff)
	}
	for name, want := range map[string]string{
		"id": "STRING", "time": "TIMESTAMP(isAdjustedToUTC=true,unit=MICROS)", "rule_line": "INT(64,true)", "waited_ms": "DOUBLE", "port": "INT(64,true)",
	} {
		if types[name] != want {
			t.Errorf("the type of %s is %s, want %s", name, types[name], want)
		}
	}
	type row struct {
		ID       string     `parquet:"id"`
		Time     time.Time  `parquet:"time,timestamp(microsecond)"`
		Client   *string    `parquet:"client,optional"`
		Port     *int64     `parquet:"port,optional"`
		RuleLine *int64     `parquet:"rule_line,optional"`
		Rule     *string    `parquet:"rule,optional"`
		Waited   *float64   `parquet:"waited_ms,optional"`
		SentAt   *time.Time `parquet:"sent_at,optional,timestamp(microsecond)"`
		Bytes    int64      `parquet:"bytes"`
	}
	rows, err := parquet.Read[row](bytes.NewReader(written), int64(len(written)))
	if err != nil || len(rows) != len(many) {
		t.Fatalf("read %d rows, %v; want %d", len(rows), err, len(many))
	}
	sent := at.Add(time.Second)
	want := []row{
		{
			ID: audit.ID(1).String(), Time: at, Client: ptr("news team"), Port: ptr[int64](80), Waited: ptr(1.5), SentAt: &sent, Bytes: 411,
		},
		{
			ID: audit.ID(2).String(), Time: at, Client: ptr("news team"), Port: ptr[int64](80), Waited: ptr(1.5), Bytes: 411,
			RuleLine: ptr[int64](3), Rule: ptr("Disallow: /x"),
		},
	}
	if diff := cmp.Diff(want, rows[:2]); diff != "" {
		t.Error(diff)
	}
	if got, want := rows[len(rows)-1].ID, audit.ID(60_006).String(); got != want {
		t.Errorf("the last id is %s, want %s", got, want)
	}
}

func ptr[T any](v T) *T { return &v }

// CSV and JSON lines have all fields, and what clients send is no formula and no escape sequence in them.
func TestTexts(t *testing.T) {
	rows, err := csv.NewReader(bytes.NewReader(write(t, export.CSV, records()))).ReadAll()
	if err != nil || len(rows) != 7 {
		t.Fatalf("%d rows of CSV, %v; want 7", len(rows), err)
	}
	if diff := cmp.Diff(audit.Columns, rows[0]); diff != "" {
		t.Error("the header:", diff)
	}
	for _, v := range rows[6] {
		if v != "" && strings.ContainsAny(v[:1], "=+-@") || strings.ContainsAny(v, "\x1b\n") {
			t.Errorf("the cell %q is a formula or has control characters", v)
		}
	}
	lines := bytes.Split(bytes.TrimSpace(write(t, export.JSONL, records())), []byte("\n"))
	var got audit.Record
	if err := json.Unmarshal(lines[1], &got); err != nil || len(lines) != 6 {
		t.Fatalf("%d lines of JSON, %v; want 6", len(lines), err)
	}
	if diff := cmp.Diff(records()[1], got); diff != "" {
		t.Error(diff)
	}
}

// Nothing is a valid file in each format.
func TestNoRecords(t *testing.T) {
	for _, f := range export.Formats {
		written := write(t, f, nil)
		switch f {
		case export.CSV:
			if want := strings.Join(audit.Columns, ",") + "\n"; string(written) != want {
				t.Errorf("csv: %q, want the header", written)
			}
		case export.Parquet:
			if file, err := parquet.OpenFile(bytes.NewReader(written), int64(len(written))); err != nil || file.NumRows() != 0 {
				t.Errorf("parquet: %v, want a file without rows", err)
			}
		default:
			if len(written) != 0 {
				t.Errorf("%s: %q, want nothing", f, written)
			}
		}
	}
	if _, err := export.Write(io.Discard, "xml", sequence(nil, nil)); err == nil {
		t.Error("Write in a format that does not exist returned no error")
	}
}

// TestFile checks that a file is complete or as it was.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "records.csv")
	say := func(text string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, text); return err }
	}
	broken := errors.New("the disk is broken")
	for _, step := range []struct {
		name    string
		path    string
		replace bool
		write   func(io.Writer) error
		want    error
		text    string
	}{
		{"the records end with an error", path, false, func(w io.Writer) error {
			_, err := export.Write(w, export.CSV, sequence(records(), broken))
			return err
		}, broken, ""},
		{"new", path, false, say("one"), nil, "one"},
		{"again", path, false, say("two"), fs.ErrExist, "one"},
		{"with replace", path, true, say("two"), nil, "two"},
		{"an error with replace", path, true, func(io.Writer) error { return broken }, broken, "two"},
		{"appears meanwhile", filepath.Join(dir, "other"), false, func(io.Writer) error {
			return os.WriteFile(filepath.Join(dir, "other"), []byte("theirs"), 0o600)
		}, fs.ErrExist, "two"},
		{"no folder", filepath.Join(dir, "none", "x"), false, say("x"), fs.ErrNotExist, "two"},
	} {
		if err := export.File(step.path, step.replace, step.write); !errors.Is(err, step.want) {
			t.Errorf("%s: %v, want %v", step.name, err, step.want)
		}
		if got, _ := os.ReadFile(path); string(got) != step.text {
			t.Errorf("%s: the file has %q, want %q", step.name, got, step.text)
		}
	}
	if err := export.File(dir, true, say("x")); err == nil {
		t.Error("a folder was replaced")
	}
	left, err := filepath.Glob(filepath.Join(dir, ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %q, %v", left, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("the mode is %v, %v; want 0600", info.Mode(), err)
	}
}

// BenchmarkWrite measures a record in each format.
func BenchmarkWrite(b *testing.B) {
	some := records()
	for _, f := range export.Formats {
		b.Run(string(f), func(b *testing.B) {
			b.ReportAllocs()
			_, err := export.Write(io.Discard, f, func(yield func(*audit.Record, error) bool) {
				for i := range b.N {
					r := &some[i%len(some)]
					r.ID = audit.ID(i)
					if !yield(r, nil) {
						return
					}
				}
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}
