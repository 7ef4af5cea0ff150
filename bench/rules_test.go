package bench

import (
	"fmt"
	"strings"
	"testing"

	temoto "github.com/temoto/robotstxt"

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
