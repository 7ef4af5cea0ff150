//go:build linux

package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// goal is one number of robotsproxy beside those of other crawlers, and the number that it is to reach.
type goal struct {
	run, what              string
	proxy, direct, goproxy float64 // 0 for direct and goproxy: not measured
	beside                 string  // another number to compare with, in place of direct
	want                   string  // empty: no number is set
	met                    bool
}

// report prints the goals and then all measurements, as Markdown.
func (b *bench) report(w io.Writer) {
	fmt.Fprintf(w, "%s\n\n", b.machine())
	table(w, "run", "", "robotsproxy", "direct", "goproxy", "goal", "met")
	for _, g := range b.goals {
		direct := figure(g.direct)
		if g.beside != "" {
			direct = g.beside
		}
		if g.what == "living hosts never fetched" {
			direct = strconv.FormatFloat(g.direct, 'f', -1, 64)
		}
		row(w, g.run, g.what, number(g.proxy), direct, figure(g.goproxy), g.want, g.verdict())
	}
	fmt.Fprintln(w)
	table(w, "run", "crawl", "pages", "pages/s", "p50 ms", "p99 ms", "overload", "failed", "never fetched", "CPU us/page", "MiB",
		"descriptors", "goroutines", "connections/page", "handshakes/page", "DNS/page", "robots.txt, most of a host", "gaps", "too short", "overlaps")
	for _, m := range b.measurements {
		row(w, m.run, m.side, strconv.Itoa(m.pages), number(m.rate()), number(m.millis(0.5)), number(m.millis(0.99)),
			strconv.Itoa(m.overload), strconv.Itoa(m.failures()), strconv.Itoa(m.living-m.fetched), figure(m.cpuMicros()), figure(mebi(m.memory)),
			figure(float64(m.files)), figure(float64(m.goroutines)), number(m.per(float64(m.conns))), number(m.per(float64(m.shakes))),
			number(m.per(float64(m.questions))), fmt.Sprintf("%d, %d", m.robots, m.robotsMost), strconv.FormatInt(m.gaps, 10), strconv.FormatInt(m.short, 10), strconv.FormatInt(m.overlaps, 10))
	}
	for _, m := range b.measurements {
		for cause, n := range m.failed {
			fmt.Fprintf(w, "\n%s, %s: %d failed: %s\n", m.run, m.side, n, cause)
		}
	}
}

func (g *goal) verdict() string {
	switch {
	case g.want == "":
		return ""
	case g.met:
		return "yes"
	default:
		return "**no**"
	}
}

func table(w io.Writer, columns ...string) {
	row(w, columns...)
	fmt.Fprintln(w, "|"+strings.Repeat("---|", len(columns)))
}

func row(w io.Writer, cells ...string) { fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }

// figure is number, but empty for 0.
func figure(f float64) string {
	if f == 0 {
		return ""
	}
	return number(f)
}

func number(f float64) string {
	if f >= 10 || f == float64(int(f)) {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strconv.FormatFloat(f, 'f', 3, 64)
}

func mebi[N int64 | float64](n N) float64 { return float64(n) / (1 << 20) }

func (v *visited) millis(q float64) float64 { return float64(v.quantile(q).Microseconds()) / 1000 }
