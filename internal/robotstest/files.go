package robotstest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
)

// sizes are quantiles of the sizes of real robots.txt files, in bytes: half have 255 or less, one in a hundred more than
// 113,000. The mean is 5,600. Measured on the files of 31,756 hosts.
var sizes = []struct{ quantile, size float64 }{{0, 24}, {0.5, 255}, {0.9, 3700}, {0.99, 113_000}, {1, 370_000}}

// Files returns n robots.txt files with the sizes and contents of real ones: one in ten has a Crawl-delay, and one in
// ten is a web page. The same seed gives the same files.
func Files(n int, seed uint64) [][]byte {
	r := rand.New(rand.NewPCG(seed, 0))
	files := make([][]byte, n)
	for i := range files {
		f := file{Rand: r, size: sizeAt((float64(i) + r.Float64()) / float64(n))}
		if f.IntN(10) == 0 {
			f.page()
		} else {
			f.robots()
		}
		files[i] = []byte(f.String())
	}
	r.Shuffle(n, func(i, j int) { files[i], files[j] = files[j], files[i] })
	return files
}

// sizeAt returns the size at a quantile.
func sizeAt(quantile float64) int {
	i := 1
	for quantile > sizes[i].quantile {
		i++
	}
	low, high := sizes[i-1], sizes[i]
	share := (quantile - low.quantile) / (high.quantile - low.quantile)
	return int(low.size * math.Pow(high.size/low.size, share))
}

// file is a file while it is written, up to a size.
type file struct {
	strings.Builder
	*rand.Rand
	size int
}

func (f *file) full() bool { return f.Len() >= f.size }

func (f *file) pick(from ...string) string { return from[f.IntN(len(from))] }

func (f *file) page() {
	f.WriteString("<!DOCTYPE html>\n<html><head><title>Not found</title></head>\n<body>\n")
	for !f.full() {
		fmt.Fprintf(f, "<p class=%q><a href=\"/%s\">%s: %s</a></p>\n", f.word(), f.word(), f.word(), f.word())
	}
	f.WriteString("</body></html>\n")
}

// robots writes groups: mostly one for "*", and in large files many, or long ones.
func (f *file) robots() {
	sitemap := f.pick("", "\nSitemap: https://site.example/sitemap.xml\n")
	f.size -= len(sitemap)
	if f.IntN(4) == 0 {
		f.WriteString("# " + f.word() + " " + f.word() + "\n")
	}
	f.WriteString("User-agent: *\n")
	if f.IntN(9) == 0 { // of the files that are not pages
		fmt.Fprintf(f, "Crawl-delay: %d\n", 1+f.IntN(30))
	}
	f.WriteString(f.pick("Disallow:\n", "Disallow: /wp-admin/\nAllow: /wp-admin/admin-ajax.php\n", "Disallow: /\n", "Allow: /\n"))
	for groups := f.IntN(8) == 0; !f.full(); {
		if groups && f.IntN(4) == 0 {
			fmt.Fprintf(f, "\nUser-agent: %sbot\n", f.word())
		}
		f.rule()
	}
	f.WriteString(sitemap)
}

// rule writes a rule, of which one in eight has wildcards, or another line.
func (f *file) rule() {
	path := "/" + f.word() + "/" + f.word()
	switch f.IntN(24) {
	case 0, 1:
		path = "/*?" + f.word() + "="
	case 2:
		path += "/*." + f.pick("pdf", "gif", "php") + "$"
	case 3:
		path = "/" + f.word() + "%20" + f.word()
	case 4:
		f.WriteString(f.pick("\n", "# "+f.word()+"\n"))
	}
	f.WriteString(f.pick("Disallow: ", "Disallow: ", "Disallow: ", "Disallow: ", "Allow: ") + path + f.pick("", "/") + "\n")
}

func (f *file) word() string {
	const letters = "etaoinshrdlucmfwygpbvkxqjz"
	word := make([]byte, 3+f.IntN(8))
	for i := range word {
		word[i] = letters[f.IntN(2+f.IntN(len(letters)-1))]
	}
	return string(word)
}
