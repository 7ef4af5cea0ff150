//go:build linux

package main

import (
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
)

// goal is a number of robotsproxy, and its limit.
type goal struct {
	run, what string
	got       []string // of robotsproxy; then, if they are known, of a direct crawl and of goproxy
	want      string   // empty: nothing
	met       bool
}

// columns are those of the table of measurements.
var columns = []struct {
	title string
	of    func(m *measurement) string
}{
	{"run", func(m *measurement) string { return m.run }},
	{"crawl", func(m *measurement) string { return m.side }},
	{"pages", func(m *measurement) string { return count(m.pages) }},
	{"pages/s", func(m *measurement) string { return number(m.rate()) }},
	{"p50 ms", func(m *measurement) string { return number(m.millis(0.5)) }},
	{"p99 ms", func(m *measurement) string { return number(m.millis(0.99)) }},
	{"503 overload", func(m *measurement) string { return count(m.overload) }},
	{"failed", func(m *measurement) string { return count(m.failures()) }},
	{"hosts never fetched", func(m *measurement) string { return count(m.living - m.fetched) }},
	{"CPU us/page", func(m *measurement) string { return ofProxy(m, number(m.cpuMicros())) }},
	{"peak MiB", func(m *measurement) string { return ofProxy(m, number(mebi(m.memory))) }},
	{"descriptors", func(m *measurement) string { return ofProxy(m, count(m.files)) }},
	{"goroutines", func(m *measurement) string { return ofProxy(m, count(m.goroutines)) }},
	{"connections/page", func(m *measurement) string { return number(m.per(m.conns)) }},
	{"TLS handshakes/page", func(m *measurement) string { return number(m.per(m.shakes)) }},
	{"DNS questions/page", func(m *measurement) string { return number(m.per(m.questions)) }},
	{"robots.txt/host, most", func(m *measurement) string { return count(m.robotsMost) }},
	{"gaps", func(m *measurement) string { return count(m.gaps) }},
	{"too short", func(m *measurement) string { return count(m.short) }},
	{"overlaps", func(m *measurement) string { return count(m.overlaps) }},
}

// report prints the goals, all measurements, and the causes of requests that failed, as Markdown.
func (b *bench) report(w io.Writer) {
	fmt.Fprintf(w, "%s, %s/%s. The crawler, the hosts and the proxy share %d processors.\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	header(w, "run", "measured", "robotsproxy", "direct", "goproxy", "goal", "met")
	for _, g := range b.goals {
		cells := append([]string{g.run, g.what}, append(g.got, "", "", "")[:3]...)
		row(w, append(cells, g.want, g.verdict()))
	}
	fmt.Fprintln(w)
	var titles []string
	for _, c := range columns {
		titles = append(titles, c.title)
	}
	header(w, titles...)
	for _, m := range b.measurements {
		var cells []string
		for _, c := range columns {
			cells = append(cells, c.of(m))
		}
		row(w, cells)
	}
	for _, m := range b.measurements {
		for cause, n := range m.failed {
			fmt.Fprintf(w, "\n%s, %s: %d requests failed: %s\n", m.run, m.side, n, cause)
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

func header(w io.Writer, titles ...string) {
	row(w, titles)
	fmt.Fprintln(w, "|"+strings.Repeat("---|", len(titles)))
}

func row(w io.Writer, cells []string) { fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }

// ofProxy is empty for a crawl without a proxy.
func ofProxy(m *measurement, text string) string {
	if m.side == directSide {
		return ""
	}
	return text
}

func count[N int | int64](n N) string { return strconv.FormatInt(int64(n), 10) }

func number(f float64) string {
	if f >= 10 || f == float64(int(f)) {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strconv.FormatFloat(f, 'f', 3, 64)
}

func mebi(bytes int64) float64 { return float64(bytes) / (1 << 20) }
