package bench

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"text/tabwriter"
	"time"
)

// cost is what requests took.
type cost struct {
	requests  int
	cpu, wall time.Duration
}

// cpuMicros returns the proxy's processor time for one request, in microseconds.
func (c cost) cpuMicros() float64 { return float64(c.cpu.Microseconds()) / float64(c.requests) }

// rate returns requests per second.
func (c cost) rate() float64 { return float64(c.requests) / c.wall.Seconds() }

// busy returns how much of the time the proxy worked, in percent.
func (c cost) busy() float64 { return 100 * c.cpu.Seconds() / c.wall.Seconds() }

func (c cost) plus(more cost) cost {
	return cost{c.requests + more.requests, c.cpu + more.cpu, c.wall + more.wall}
}

// versus is what a case took, by either proxy.
type versus struct{ goproxy, robotsproxy cost }

func (v versus) cpuRatio() float64  { return v.goproxy.cpuMicros() / v.robotsproxy.cpuMicros() }
func (v versus) wallRatio() float64 { return v.robotsproxy.rate() / v.goproxy.rate() }

// table has a row for each case that was measured, over all of its runs (-count).
type table map[string]versus

var results = table{}

func (t table) add(name string, v versus) {
	sum := t[name]
	t[name] = versus{sum.goproxy.plus(v.goproxy), sum.robotsproxy.plus(v.robotsproxy)}
}

const legend = `A ratio is how many times better robotsproxy is: 1.00 is as good as goproxy. CPU is what the proxy itself used, from
/proc/PID/stat. Busy is its share of the time: far below 100 %%, requests/s tell how fast the crawlers are, not the proxy.

robotsproxy   judging (25 rules), lanes (max_concurrent: 0), guard, a record of each request in a file; a P-256 CA; HTTP/2
              with the origin, and offered to crawlers
stock         goproxy as its README shows it, and a certificate cache: its built-in RSA CA; HTTP/1.1 with the origin
tuned         goproxy with a P-256 CA; HTTP/2 with the origin, and offered to crawlers
new tunnels   for each request TCP, CONNECT, a full TLS 1.3 handshake (crawlers keep no sessions, so none is resumed), close

Each proxy has GOMAXPROCS=1 and processor %d of %d; %d crawlers and the origin, one process, have the rest. Answers are 1 KiB,
and each is compared. %s %s/%s, %s.
`

// print writes the table, if anything was measured.
func (t table) print(w io.Writer) error {
	if len(t) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "\t\tCPU us/request\tCPU us/request\t\trequests/s\trequests/s\t\tbusy %\tbusy %\t")
	fmt.Fprintln(tw, "case\tgoproxy is\tgoproxy\trobotsproxy\tratio\tgoproxy\trobotsproxy\tratio\tgoproxy\trobotsproxy\t")
	for _, c := range cases {
		v, ok := t[c.name]
		if !ok {
			continue
		}
		g, r := v.goproxy, v.robotsproxy
		fmt.Fprintf(tw, "%s\t%s\t%.1f\t%.1f\t%.2f\t%.0f\t%.0f\t%.2f\t%.0f\t%.0f\t\n", c.title, c.goproxy,
			g.cpuMicros(), r.cpuMicros(), v.cpuRatio(), g.rate(), r.rate(), v.wallRatio(), g.busy(), r.busy())
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n"+legend, proxyCPU, runtime.NumCPU(), crawlers, runtime.Version(), runtime.GOOS, runtime.GOARCH, processorName())
	return err
}

var modelName = regexp.MustCompile(`(?m)^model name\s*: (.*)$`)

// processorName returns what the machine calls its processor, which some kinds of machine do not tell.
func processorName() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if m := modelName.FindSubmatch(info); err == nil && m != nil {
		return string(m[1])
	}
	return "unnamed processor"
}
