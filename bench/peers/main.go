//go:build linux

// Command peers measures robotsproxy beside other proxies: goproxy, squid, tinyproxy, privoxy and mitmproxy.
//
//	go run ./peers                                          all scenarios; about 15 minutes on two processors
//	go run ./peers -quick                                   the same with short rounds; less than 2 minutes
//	go run ./peers -scenarios plain-32,tunnels -rounds 9
//	go run ./peers -peers robotsproxy,goproxy,squid -duration 5s
//	go run ./peers -source ~/other/robotsproxy              the proxy of another source tree
//	go run ./peers -proxy /tmp/before                       a robotsproxy that is built already
//
// One processor is for the proxies. The clients and the origin are in this process, and use the others. The peers of a
// scenario run all the time and are measured in turn, so that other load on the machine affects all of them. A round of
// one peer begins with new connections and a request over each, which are not measured. Every response is checked: the
// status, and the bytes or their number.
//
// A peer that is not installed is left out, with the reason, and so is a scenario that a peer cannot do.
//
// The result goes to standard output, and to the file of -report, as Markdown: the median of the rounds, with the least
// and the most.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/robotsproxy/robotsproxy/bench/internal/lab"
)

// bench has the values of the flags, and the results.
type bench struct {
	rounds   int
	duration time.Duration // of the round of one peer
	sizes    sizes
	source   string // the source tree of robotsproxy; empty: it is built already
	program  string // robotsproxy
	dir      string // for all files
	peers    []*peer

	proxyCPU int
	origin   *origin
	begun    state
	tables   []*table
	absent   []string // peers that are left out, with the reason
}

// sizes are the numbers that -quick makes smaller.
type sizes struct {
	hosts, tunnels int
	download       int64 // bytes
}

var (
	fullSizes  = sizes{hosts: 10_000, tunnels: 2000, download: 100 << 20}
	quickSizes = sizes{hosts: 500, tunnels: 200, download: 20 << 20}
)

func main() {
	if kind := os.Getenv(goproxyEnv); kind != "" {
		fmt.Fprintln(os.Stderr, runGoproxy(kind))
		os.Exit(1)
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	b := bench{sizes: fullSizes}
	flag.IntVar(&b.rounds, "rounds", 5, "the `number` of rounds of each scenario")
	flag.DurationVar(&b.duration, "duration", 1500*time.Millisecond, "how long the round of one peer takes")
	quick := flag.Bool("quick", false, "2 rounds of 250ms, and smaller numbers of hosts, tunnels and bytes")
	peerNames := flag.String("peers", names(peers, (*peer).String), "the `names` of the proxies")
	chosen := flag.String("scenarios", names(scenarios, (*scenario).String), "the `names` of the scenarios")
	flag.StringVar(&b.source, "source", "..", "the source `tree` of robotsproxy")
	flag.StringVar(&b.program, "proxy", "", "the `file` of a robotsproxy, in place of one built from -source")
	report := flag.String("report", "", "a `file` to which the report is written too")
	flag.Parse()
	if *quick {
		b.rounds, b.duration, b.sizes = 2, 250*time.Millisecond, quickSizes
	}
	if b.peers, err = choose(peers, *peerNames); err != nil {
		return err
	}
	wanted, err := choose(scenarios, *chosen)
	if err != nil {
		return err
	}
	if b.rounds < 1 || b.duration <= 0 {
		return errors.New("-rounds and -duration must be positive")
	}
	if err := b.prepare(); err != nil {
		return err
	}
	defer b.close()
	go b.cleanUp()
	err = b.all(wanted)
	return errors.Join(err, b.publish(*report))
}

// publish writes the report to standard output, and to a file if there is a name.
func (b *bench) publish(name string) error {
	if name == "" {
		b.report(os.Stdout)
		return nil
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	b.report(io.MultiWriter(os.Stdout, file))
	return file.Close()
}

// prepare divides the processors, and makes what all scenarios need.
func (b *bench) prepare() (err error) {
	// A proxy may inherit as many descriptors as the system grants: Go would give it the lower limit of this process.
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "peers"); err != nil {
		return err
	}
	if err := os.Chmod(b.dir, 0o755); err != nil { // squid may have a user of its own
		return err
	}
	if b.program == "" {
		b.program = filepath.Join(b.dir, "robotsproxy")
		err = lab.Build(b.source, b.program)
	} else {
		b.source = ""
		b.program, err = filepath.Abs(b.program)
	}
	if err != nil {
		return err
	}
	b.begun = now()
	if b.proxyCPU, err = lab.DivideProcessors(); err != nil {
		return err
	}
	runtime.GOMAXPROCS(max(1, runtime.NumCPU()-1))
	b.origin, err = newOrigin(b.sizes.download)
	return err
}

func (b *bench) close() {
	if b.origin != nil {
		b.origin.close()
	}
	os.RemoveAll(b.dir)
}

// cleanUp removes all files after an interrupt. The proxies end with this process.
func (b *bench) cleanUp() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	<-signals
	os.RemoveAll(b.dir)
	os.Exit(130)
}

// all runs scenarios. One that fails does not end the others.
func (b *bench) all(wanted []*scenario) (err error) {
	b.find()
	for _, s := range wanted {
		begun := time.Now()
		fmt.Fprintf(os.Stderr, "%-14s", s.name)
		failure := s.run(b, s)
		fmt.Fprintf(os.Stderr, " %s\n", time.Since(begun).Round(100*time.Millisecond))
		if failure != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", s.name, failure))
		}
	}
	return err
}

// find leaves out the peers that are not installed, and asks the others for their version.
func (b *bench) find() {
	b.peers = slices.DeleteFunc(b.peers, func(p *peer) bool {
		var err error
		if p.version, err = p.find(b); err != nil {
			b.absent = append(b.absent, fmt.Sprintf("%s: %v", p.name, err))
		}
		return err != nil
	})
}

func names[T any](of []T, name func(T) string) string {
	var all []string
	for _, one := range of {
		all = append(all, name(one))
	}
	return strings.Join(all, ",")
}

// choose returns those of all with the names of a list.
func choose[T fmt.Stringer](all []T, list string) (chosen []T, err error) {
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(all, func(one T) bool { return one.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no %q; there are %s", name, names(all, T.String))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}
