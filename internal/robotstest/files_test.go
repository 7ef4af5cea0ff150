package robotstest

import (
	"bytes"
	"slices"
	"testing"
)

// TestFiles checks the shape of the files: the quantiles of their sizes, the mean, and the shares of their kinds.
func TestFiles(t *testing.T) {
	const n = 5000
	files := Files(n, 1)
	var sizes []int
	total, delays, pages := 0, 0, 0
	for _, f := range files {
		sizes = append(sizes, len(f))
		total += len(f)
		if bytes.Contains(f, []byte("\nCrawl-delay: ")) {
			delays++
		}
		if bytes.HasPrefix(f, []byte("<")) {
			pages++
		}
	}
	slices.Sort(sizes)
	for _, tt := range []struct {
		name      string
		got, want int
	}{
		{"median", sizes[n/2], 255},
		{"p90", sizes[n*9/10], 3700},
		{"p99", sizes[n*99/100], 113_000},
		{"mean", total / n, 5600},
		{"Crawl-delays", delays, n / 10},
		{"pages", pages, n / 10},
	} {
		if tt.got < tt.want*85/100 || tt.got > tt.want*115/100 {
			t.Errorf("%s: %d, want about %d", tt.name, tt.got, tt.want)
		}
	}
	if again := Files(n, 1); !slices.EqualFunc(files, again, bytes.Equal) {
		t.Error("the same seed gives other files")
	}
}
