package hostset

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMatch(t *testing.T) {
	s, err := New([]string{"a.example", "*.B.example.", "*.deep.b.example", "bücher.example", "192.0.2.1", "[2001:DB8::1]", "a.example"})
	if err != nil {
		t.Fatal(err)
	}
	if s.Len() != 6 {
		t.Errorf("Len() = %d, want 6: a pattern that is listed twice counts once", s.Len())
	}
	for host, want := range map[string]string{
		"a.example":             "a.example",
		"www.a.example":         "",
		"example":               "",
		"aa.example":            "",
		"b.example":             "",
		"x.b.example":           "*.b.example",
		"x.y.b.example":         "*.b.example",
		"xb.example":            "",
		"deep.b.example":        "*.b.example",
		"x.deep.b.example":      "*.deep.b.example",
		"xn--bcher-kva.example": "xn--bcher-kva.example",
		"192.0.2.1":             "192.0.2.1",
		"192.0.2.10":            "",
		"64:ff9b::c000:201":     "192.0.2.1",
		"2001:db8::1":           "2001:db8::1",
		"2001:db8::2":           "",
	} {
		if got, ok := s.Match(host); got != want || ok != (want != "") {
			t.Errorf("Match(%q) = %q, %t, want %q", host, got, ok, want)
		}
	}
}

func TestMatchAll(t *testing.T) {
	s, err := New([]string{"*", "a.example"})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{"a.example": "a.example", "b.example": "*", "localhost": "*", "192.0.2.1": "*"} {
		if got, ok := s.Match(host); got != want || !ok {
			t.Errorf("Match(%q) = %q, %t, want %q", host, got, ok, want)
		}
	}
}

func TestEmpty(t *testing.T) {
	empty, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Set{nil, empty} {
		if pattern, ok := s.Match("a.example"); ok || s.Len() != 0 {
			t.Errorf("an empty set of %d matches %q", s.Len(), pattern)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, pattern := range []string{"", "*.", "a b", "http://a.example", "*a.example", "a.*.example", "*.192.0.2.1", "*.[::1]", "0x7f.1"} {
		if s, err := New([]string{pattern}); err == nil {
			t.Errorf("New(%q) has %d patterns and no error", pattern, s.Len())
		}
	}
}

func write(t *testing.T, content string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "hosts.txt")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad(t *testing.T) {
	long := "# " + strings.Repeat("long ", 10_000)
	s, err := Load(write(t, "\ufeffa.example\r\n\n  *.B.example.  # why\r\n"+long+"\nbücher.example"+long+"\n#\n\t\n192.0.2.1"))
	if err != nil {
		t.Fatal(err)
	}
	if s.Len() != 4 {
		t.Errorf("Len() = %d, want 4", s.Len())
	}
	for _, host := range []string{"a.example", "x.b.example", "xn--bcher-kva.example", "192.0.2.1"} {
		if _, ok := s.Match(host); !ok {
			t.Errorf("%s is not in the set", host)
		}
	}
}

func TestLoadReportsFaults(t *testing.T) {
	for content, want := range map[string]string{
		"a.example\nhttp://b.example/x\n":        `2: found "http://b.example/x", expected a host such as a.example, or *.example for the hosts below it; write the host alone`,
		"0.0.0.0 a.example\n":                    "; write one host on a line",
		".example\n":                             "; write *.example",
		"a\x00b.example\n":                       `1: found "a\x00b.example", `,
		"\x1b[31mred\n":                          `found "\x1b[31mred"`,
		"a.example\n\xff.example\n":              `2: found "\xff.example"`,
		strings.Repeat("x.", 150) + "x\n":        "; it is longer than 253 octets",
		strings.Repeat("x", 1<<20) + "\na b":     "2 faults\n%s:1: the line is longer than 4096 bytes\n%s:2: found",
		strings.Repeat("?\n", 1000):              "1000 faults, of which the first 10 are\n",
		"\xff\xfea\x00.\x00b\x00\n\x00":          "2 faults",
		"*.192.0.2.1":                            "; no host is below an address",
		strings.Repeat("x", 64) + ".example\r\n": "; each label has 1 to 63 octets",
	} {
		path := write(t, content)
		s, err := Load(path)
		var faults *FileError
		if s != nil || !errors.As(err, &faults) || len(faults.Faults) > maxFaults {
			t.Errorf("Load of %.40q: %v, want a FileError", content, err)
			continue
		}
		if want = strings.ReplaceAll(want, "%s", path); !strings.Contains(err.Error(), want) {
			t.Errorf("Load of %.40q: %q, want %q", content, err, want)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	folder := t.TempDir()
	large := filepath.Join(folder, "large")
	if err := errors.Join(os.WriteFile(large, nil, 0o600), os.Truncate(large, maxFile+1)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{folder, large, filepath.Join(folder, "missing")} {
		if s, err := Load(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("Load(%s) = %d patterns, error %v", path, s.Len(), err)
		}
	}
}

// list returns n lines like those of a list of domains.
func list(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		switch i % 4 {
		case 0:
			fmt.Fprintf(&b, "*.tracker-%07d.example\n", i)
		case 1:
			fmt.Fprintf(&b, "ads.%07d.shop.example\n", i)
		default:
			fmt.Fprintf(&b, "news-and-media-%07d.example\n", i)
		}
	}
	return b.Bytes()
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestMillion(t *testing.T) {
	const n, most = 1_000_000, 100 << 20
	path := write(t, string(list(n)))
	before, began := heap(), time.Now()
	s, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	took, used := time.Since(began), heap()-before
	t.Logf("%d patterns: %d MiB after %v", s.Len(), used>>20, took.Round(time.Millisecond))
	if s.Len() != n || used > most {
		t.Errorf("%d patterns take %d bytes, want %d and at most %d", s.Len(), used, n, most)
	}
	small, err := Load(write(t, string(list(1000))))
	if err != nil {
		t.Fatal(err)
	}
	ratio := float64(lookUp(s)) / float64(lookUp(small))
	t.Logf("a look-up takes %.1f times as long as in 1000 patterns", ratio)
	if ratio > 50 {
		t.Errorf("a look-up in 1000 times as many patterns takes %.0f times as long", ratio)
	}
	for _, host := range []string{"x.tracker-0000004.example", "ads.0999997.shop.example", "news-and-media-0999999.example"} {
		if _, ok := s.Match(host); !ok {
			t.Errorf("%s is not in the set", host)
		}
	}
}

// lookUp returns the shortest of ten times that 10,000 look-ups of different hosts take, half of which are listed.
func lookUp(s *Set) time.Duration {
	hosts := make([]string, 10_000)
	for i := range hosts {
		hosts[i] = fmt.Sprintf("news-and-media-%07d.example", i*4+i%2*2+2)
	}
	best := time.Hour
	for range 10 {
		began := time.Now()
		for _, host := range hosts {
			s.Match(host)
		}
		best = min(best, time.Since(began))
	}
	return best
}

func BenchmarkMatch(b *testing.B) {
	s, err := New([]string{"*.a.example", "b.example"})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Match("www.news.c.example")
	}
}

// Whatever a file has, Load returns a Set or the faults of lines that exist, and a Set has its own patterns.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{"a.example\r\n*.b.example # why\n*\n", "\ufeffB\u00fccher.example\n192.0.2.1\n::1", "a\x00\n\xff\n.", "#\n\r\r\n"} {
		f.Add([]byte(seed))
	}
	path := filepath.Join(f.TempDir(), "hosts.txt")
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Load(path)
		var faults *FileError
		if errors.As(err, &faults) {
			lines := bytes.Count(content, []byte("\n")) + 1
			if s != nil || faults.Count > lines || slices.ContainsFunc(faults.Faults, func(f Fault) bool { return f.Line < 1 || f.Line > lines }) {
				t.Fatalf("%d patterns, and of %d lines the faults %+v", s.Len(), lines, faults)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(strings.TrimPrefix(string(content), "\ufeff"), "\n") {
			pattern, _, _ := strings.Cut(line, "#")
			if pattern = strings.TrimSpace(pattern); pattern == "" {
				continue
			}
			canonical, err := Canonical(pattern)
			if err != nil {
				t.Fatalf("Load took %q, and Canonical returns %v", pattern, err)
			}
			host := strings.Replace(canonical, "*", "x", 1)
			if got, ok := s.Match(host); !ok || canonical == host && got != host {
				t.Errorf("Match(%q) = %q, %t for the pattern %q", host, got, ok, canonical)
			}
		}
	})
}
