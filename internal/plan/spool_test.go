package plan_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/plan"
	"github.com/robotsproxy/robotsproxy/origin"
)

func newSpool(t *testing.T) *plan.Spool {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	s, err := plan.NewSpool()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
			t.Errorf("files are left: %v %v", left, err)
		}
	})
	return s
}

// The URLs come in any order, and in more than one batch. Each comes back once, with its origin.
func TestSpool(t *testing.T) {
	s := newSpool(t)
	const hosts, pages = 50, 5000
	var origins []origin.Origin
	for i := range hosts {
		origins = append(origins, parse(t, fmt.Sprintf("https://h%d.example", i)))
	}
	long := strings.Repeat("x", 100)
	for page := range pages {
		for i, o := range origins {
			if err := s.Add(o, fmt.Sprintf("/%d/%d/%s", i, page, long)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if len(s.Sites()) != hosts {
		t.Fatalf("%d sites", len(s.Sites()))
	}
	for i, site := range s.Sites() {
		if site.Origin != origins[i] || site.URLs != pages {
			t.Fatalf("site %d is %v with %d URLs", i, site.Origin, site.URLs)
		}
		seen := make([]bool, pages)
		for target, err := range s.Targets(site) {
			var host, page int
			if _, scan := fmt.Sscanf(target, "/%d/%d/", &host, &page); err != nil || scan != nil || host != i || seen[page] {
				t.Fatalf("%v has %q, %v", site.Origin, target, err)
			}
			seen[page] = true
		}
		if slices.Contains(seen, false) {
			t.Errorf("%v has lost a URL", site.Origin)
		}
	}
}

// The memory does not grow with the number of URLs.
func TestMemoryOfASpool(t *testing.T) {
	s := newSpool(t)
	o := parse(t, "https://a.example")
	heap := func(urls int) uint64 {
		for i := range urls {
			if err := s.Add(o, fmt.Sprintf("/%0100d", i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	few, many := heap(1000), heap(300_000)
	if many > few+(1<<20) {
		t.Errorf("after 301,000 URLs there are %d bytes more than after 1,000", many-few)
	}
	n := 0
	for _, err := range s.Targets(s.Sites()[0]) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 301_000 {
		t.Errorf("%d URLs come back", n)
	}
}

// A reader may stop early, and an error is the last thing that it gets.
func TestTargetsEnd(t *testing.T) {
	s := newSpool(t)
	for _, target := range []string{"/1", "/2"} {
		if err := s.Add(parse(t, "https://a.example"), target); err != nil {
			t.Fatal(err)
		}
	}
	for target, err := range s.Targets(s.Sites()[0]) {
		t.Errorf("before Flush there is %q, %v", target, err)
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	for target := range s.Targets(s.Sites()[0]) {
		if target != "/1" {
			t.Errorf("the first is %q", target)
		}
		break
	}
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	list := "\ufeffhttps://a.example/1\r\n\n  # a comment\n\t https://a.example/2 \nhttps://" + long + "\nhttps://a.example/3"
	var got []string
	err := plan.Lines(strings.NewReader(list), func(n int64, line string, err error) error {
		got = append(got, fmt.Sprint(n, " ", line, " ", err))
		return nil
	})
	want := []string{
		"1 https://a.example/1 <nil>", "4 https://a.example/2 <nil>", "5  the line is longer than 64 KiB", "6 https://a.example/3 <nil>",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\n got %q\nwant %q", err, got, want)
	}
	stop := errors.New("stop")
	calls := 0
	err = plan.Lines(strings.NewReader("a\nb\n"), func(int64, string, error) error { calls++; return stop })
	if err != stop || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
}

// A URL as long as a line comes back, though each of its octets is percent-encoded.
func TestLongTarget(t *testing.T) {
	s := newSpool(t)
	target := "/" + strings.Repeat("%00", 64<<10)
	if err := errors.Join(s.Add(parse(t, "https://a.example"), target), s.Flush()); err != nil {
		t.Fatal(err)
	}
	for got, err := range s.Targets(s.Sites()[0]) {
		if got != target || err != nil {
			t.Errorf("%d octets, %v", len(got), err)
		}
	}
}
