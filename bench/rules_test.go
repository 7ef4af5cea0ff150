package bench

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	temoto "github.com/temoto/robotstxt"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
	"github.com/robotsproxy/robotsproxy/rules"
)

// The benchmarks of this file put package rules beside github.com/temoto/robotstxt, the parser that most Go crawlers
// import, on the same files and paths:
//
//	go test -bench Robots -run '^$' -benchmem .

var sections = []string{"catalog", "account", "search", "checkout", "blog", "images", "api/v1", "en-gb/help"}

// shop returns a file of n rules as shops write them: mostly prefixes, one in eight with wildcards.
func shop(n int) []byte {
	var b strings.Builder
	b.WriteString("User-agent: *\n")
	for i := range n {
		section := sections[i%len(sections)]
		switch {
		case i%16 == 7:
			fmt.Fprintf(&b, "Disallow: /%s/%d/*?sort=\n", section, i)
		case i%16 == 15:
			fmt.Fprintf(&b, "Disallow: /%s/%d/*.pdf$\n", section, i)
		case i%5 == 4:
			fmt.Fprintf(&b, "Allow: /%s/item-%d/public\n", section, i)
		default:
			fmt.Fprintf(&b, "Disallow: /%s/item-%d/\n", section, i)
		}
	}
	return []byte(b.String())
}

// visits are paths of which half are under a rule of shop(n).
func visits(n int) (paths [256]string) {
	for i := range paths {
		paths[i] = fmt.Sprintf("/%s/item-%d/reviews?page=2", sections[i%len(sections)], i*n/128)
	}
	return paths
}

// stars is a pattern of sixty wildcards that fails at its end, and starred a path that keeps it busy until there.
var (
	stars   = "/" + strings.Repeat("*a", 60) + "*zz"
	starred = "/" + strings.Repeat("ab", 1000)
)

// judges are the two parsers: each turns a file into a question about a path.
var judges = []struct {
	name  string
	judge func(tb testing.TB, body []byte) func(path string) bool
}{
	{"rules", func(_ testing.TB, body []byte) func(string) bool {
		agent := rules.Parse(body, rules.Options{}).Agent("NewsBot")
		return func(path string) bool { return agent.Verdict(path).Allowed }
	}},
	{"temoto", func(tb testing.TB, body []byte) func(string) bool {
		data, err := temoto.FromBytes(body)
		if err != nil {
			tb.Fatal(err)
		}
		return data.FindGroup("NewsBot").Test
	}},
}

// TestJudgesAgree holds that the two are measured at the same work.
func TestJudgesAgree(t *testing.T) {
	for _, n := range []int{5, 25, 10_000} {
		ours, theirs := judges[0].judge(t, shop(n)), judges[1].judge(t, shop(n))
		refused := 0
		for _, path := range visits(n) {
			if ours(path) != theirs(path) {
				t.Errorf("%d rules: %s: allowed %v by rules, %v by temoto", n, path, ours(path), theirs(path))
			}
			if !ours(path) {
				refused++
			}
		}
		if refused == 0 || refused == 256 {
			t.Errorf("%d rules: %d of 256 paths are refused", n, refused)
		}
	}
}

func BenchmarkRobotsParse(b *testing.B) {
	for _, n := range []int{25, 10_000} {
		body := shop(n)
		for _, j := range judges {
			b.Run(fmt.Sprintf("rules=%d/%s", n, j.name), func(b *testing.B) {
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					j.judge(b, body)
				}
			})
		}
	}
}

// BenchmarkRobotsReal parses a file and judges a path, with files of the shape of real ones. The other parser rejects
// some of them as a whole; then there is no path to judge.
func BenchmarkRobotsReal(b *testing.B) {
	const path = "/news/2026/report?page=2"
	files := robotstest.Files(2000, 1)
	total := 0
	for _, f := range files {
		total += len(f)
	}
	b.Run("rules", func(b *testing.B) {
		b.SetBytes(int64(total))
		b.ReportAllocs()
		for b.Loop() {
			for _, f := range files {
				rules.Parse(f, rules.Options{}).Agent("NewsBot").Verdict(path)
			}
		}
	})
	b.Run("temoto", func(b *testing.B) {
		b.SetBytes(int64(total))
		b.ReportAllocs()
		for b.Loop() {
			for _, f := range files {
				if data, err := temoto.FromBytes(f); err == nil {
					data.FindGroup("NewsBot").Test(path)
				}
			}
		}
	})
}

// BenchmarkRobotsMemory measures the memory that 2,000 parsed files occupy.
func BenchmarkRobotsMemory(b *testing.B) {
	files := robotstest.Files(2000, 1)
	for _, p := range []struct {
		name  string
		parse func([]byte) any
	}{
		{"rules", func(f []byte) any { return rules.Parse(f, rules.Options{}) }},
		{"temoto", func(f []byte) any { data, _ := temoto.FromBytes(f); return data }},
	} {
		b.Run(p.name, func(b *testing.B) {
			for b.Loop() {
				before := heap()
				kept := make([]any, len(files))
				total := 0
				for i, f := range files {
					kept[i] = p.parse(f)
					total += len(f)
				}
				b.ReportMetric(float64(heap()-before)/float64(total), "kept/B")
				runtime.KeepAlive(kept)
			}
		})
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func BenchmarkRobotsVerdict(b *testing.B) {
	for _, n := range []int{5, 25, 10_000} {
		paths := visits(n)
		for _, j := range judges {
			b.Run(fmt.Sprintf("rules=%d/%s", n, j.name), func(b *testing.B) {
				allowed := j.judge(b, shop(n))
				b.ReportAllocs()
				i := uint8(0)
				for b.Loop() {
					allowed(paths[i])
					i++
				}
			})
		}
	}
}

func BenchmarkRobotsStars(b *testing.B) {
	for _, j := range judges {
		b.Run(j.name, func(b *testing.B) {
			allowed := j.judge(b, []byte("User-agent: *\nDisallow: "+stars+"\n"))
			b.ReportAllocs()
			for b.Loop() {
				allowed(starred)
			}
		})
	}
}
