package robotstest

import "strings"

// Costly is a robots.txt or a request target that takes as much time as possible to judge.
type Costly struct{ Name, Text string }

const (
	costlyFile = 500 << 10 // size that every crawler must read (RFC 9309 section 2.5)
	costlyPath = 60 << 10  // fits into a header of 64 KiB
)

// CostlyFiles returns files of 500 KiB. Each one maximizes the cost of a different part of a verdict, for the targets
// of CostlyTargets and the agents "*" and CostlyAgent.
func CostlyFiles() []Costly {
	all := func(name, lines string) Costly { return Costly{name, "user-agent:*\n" + fill(lines, costlyFile-13)} }
	a := func(n int) string { return strings.Repeat("a", n) }
	period := "b" + a(16)
	return []Costly{
		all("stars before an absent byte", "allow:*!\n"),
		all("a slash and stars before an absent byte", "allow:/*!\n"),
		all("stars before a segment that nearly matches", "allow:*aaab\n"),
		all("segments of 30 bytes that nearly match", "allow:*"+a(30)+"c\n"),
		all("segments of 62 bytes that nearly match", "allow:*"+a(62)+"c\n"),
		all("segments of 200 bytes that nearly match", "allow:*"+a(200)+"c\n"),
		all("segments of 16,000 bytes that nearly match", "allow:*"+a(16_000)+"c\n"),
		all("periodic segments of 60 bytes", "allow:*"+strings.Repeat(period, 3)+"baac\n"),
		all("periodic segments of 16,000 bytes", "allow:*"+strings.Repeat(period, 940)+"c\n"),
		all("half a segment of 16,000 bytes", "allow:*"+a(8_000)+"c"+a(8_000)+"\n"),
		all("stars between bytes that match", "allow:"+strings.Repeat("*a", 8_000)+"*!\n"),
		all("rules with two stars", "allow:*a*!\n"),
		all("rules with ten stars", "allow:"+strings.Repeat("*a", 10)+"*!\n"),
		all("stars between segments that match", "allow:"+strings.Repeat("*aa", 5_000)+"*!\n"),
		all("stars and an end", "allow:*a$\n"),
		all("stars, a segment that nearly matches, and an end", "allow:*aab*a$\n"),
		all("ends", "allow:/$\n"),
		all("prefixes of one another", prefixes(900)),
		all("a group for each rule", "user-agent:*\nallow:*!\n"),
		{"two agents for each rule", numbered(costlyFile, "user-agent:*\nuser-agent:", "\nallow:*!\n")},
		{"an agent for each rule", numbered(costlyFile, "user-agent:", "\nallow:*!\n")},
		{"agents that nearly match", fill("user-agent:aaab\n", costlyFile)},
		{"agents with stars", fill("user-agent:*a*!\n", costlyFile)},
		{"agents with many stars", fill("user-agent:"+strings.Repeat("*a", 1_000)+"*!\n", costlyFile)},
		{"agents of one letter", numbered(costlyFile, "user-agent:", "\n")},
		{"rates of other agents", fill("user-agent:b\n", costlyFile/2) + fill("request-rate:1/1\n", costlyFile/2) + "user-agent:*\nallow:/\n"},
		{"rates that are none", fill("user-agent:b\n", costlyFile/2) + "user-agent:*\n" + fill("request-rate:\n", costlyFile/2-13)},
		{"hours of other agents", fill("user-agent:b\n", costlyFile/2) + fill("visit-time:1\n", costlyFile/2)},
	}
}

// CostlyAgent returns a User-Agent of 60 KiB for CostlyFiles.
func CostlyAgent() string { return fill("a;", costlyPath) }

// CostlyTargets returns request targets of 60 KiB for CostlyFiles.
func CostlyTargets() []Costly {
	a := strings.Repeat("a", costlyPath)
	all := func(name, start, piece string) Costly {
		return Costly{name, start + fill(piece, costlyPath-len(start))}
	}
	return []Costly{
		all("one byte", "/", "a"),
		all("a period of 17 bytes", "/", "baaaaaaaaaaaaaaaa"),
		all("escapes", "/", "%61"),
		all("one byte in several forms", `//x/..;/.\..%2F..//`, "a"),
		all("dot segments", "/", "a//..;x/b%2f../"),
		all("names and dot segments", "/", "aaaaaaaaaaaaaaaa/./"),
		all("long names and dot segments", "/", "a//..;x/b%2f../"+strings.Repeat("a", 180)+"/"),
		all("slashes and dot segments", "/", `/..;\.%2F`+strings.Repeat(`/\%2F`, 40)),
		all("slashes", "/", "/"),
		all("slashes of all kinds", "/..", `/\%2F..;`),
		{"a query", "/?" + a[2:]},
	}
}

// fill repeats text up to n bytes.
func fill(text string, n int) string { return strings.Repeat(text, max(1, n/len(text))) }

// prefixes returns rules of which each is a prefix of the next.
func prefixes(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("allow:/" + strings.Repeat("a", i) + "*!\n")
	}
	return b.String()
}

// numbered repeats before and after with a different number in between, up to n bytes.
func numbered(n int, before, after string) string {
	var b strings.Builder
	for i := 0; b.Len() < n-64; i++ {
		b.WriteString(before)
		for k := i; ; k /= 26 {
			b.WriteByte(byte('a' + k%26))
			if k < 26 {
				break
			}
		}
		b.WriteString(after)
	}
	return b.String()
}
