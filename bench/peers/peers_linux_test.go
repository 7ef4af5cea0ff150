package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/bench/internal/lab"
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(goproxyEnv); kind != "" {
		fmt.Fprintln(os.Stderr, runGoproxy(kind))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestScenarios makes one short round of each scenario with all peers that are installed. Every peer with the skills of a
// scenario has figures, and robotsproxy fetches the robots.txt.
func TestScenarios(t *testing.T) {
	if testing.Short() {
		t.Skip("builds robotsproxy and measures for seconds")
	}
	b := &bench{
		rounds: 1, duration: 50 * time.Millisecond, source: "../..",
		sizes: sizes{hosts: 50, tunnels: 20, download: 1 << 20}, peers: slices.Clone(peers),
	}
	if err := b.prepare(); err != nil {
		t.Fatal(err)
	}
	defer b.close()
	if err := b.all(scenarios); err != nil {
		t.Fatal(err)
	}
	for _, reason := range b.absent {
		if os.Getenv("CI") == "true" {
			t.Errorf("not measured: %s", reason)
		}
		t.Logf("not measured: %s", reason)
	}
	if len(b.tables) != len(scenarios) {
		t.Fatalf("%d scenarios have %d tables", len(scenarios), len(b.tables))
	}
	for i, s := range scenarios {
		t.Run(s.name, func(t *testing.T) { checkTable(t, b, s, b.tables[i]) })
	}
	if b.origin.fetches.Load() == 0 {
		t.Error("nothing requested the robots.txt")
	}
	var text strings.Builder
	b.report(&text)
	if got := strings.Count(text.String(), "\n### "); got != len(scenarios) {
		t.Errorf("the report has %d tables:\n%s", got, &text)
	}
}

func checkTable(t *testing.T, b *bench, s *scenario, got *table) {
	for _, reason := range got.leftOut {
		if strings.Contains(reason, "it failed") {
			t.Error(reason)
		}
	}
	title := got.columns[0].title
	for _, r := range got.rows {
		if values := r.values[title]; len(values) != 1 || values[0] <= 0 {
			t.Errorf("%s: %s are %v", r.name, title, values)
		}
	}
	if strings.HasPrefix(s.name, "parts") {
		return
	}
	for _, p := range b.peers {
		can := s.needs&^p.skills == 0 && (!p.tunnels || s.needs&intercepts != 0 || s.name == "idle")
		if has := got.find(p.name) != nil; has != can {
			t.Errorf("a row for %s: %t, want %t", p.name, has, can)
		}
	}
}

// TestClientsCheck sends requests to an origin whose page differs from that which clients expect.
func TestClientsCheck(t *testing.T) {
	o, err := newOrigin(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	direct := &route{origin: o, roots: o.ca.Pool()}
	for name, load := range map[string]way{"plain": plain, "tunnelled": tunnelled, "new tunnels": newTunnels, "downloads": downloads} {
		if err := load(direct, 1)[0].get(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	o.page = response("text/html", []byte("another page"))
	o.size--
	if err := plain(direct, 1)[0].get(); err == nil {
		t.Error("a client accepts another page")
	}
	if err := downloads(&route{origin: &origin{plain: o.plain, size: 1 << 20}}, 1)[0].get(); err == nil {
		t.Error("a client accepts a shorter download")
	}
}

// TestReconnect has a server that closes each connection after a response without saying so.
func TestReconnect(t *testing.T) {
	o, err := newOrigin(1)
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	c := plain(&route{origin: o}, 1)[0].(*http1)
	defer c.close()
	for range 3 {
		if err := c.get(); err != nil {
			t.Fatal(err)
		}
		c.conn.Close()
	}
}

// TestOpenLoop sends requests to a client that takes longer than the time between them: their latencies grow.
func TestOpenLoop(t *testing.T) {
	const rate, each = 1000, 5 * time.Millisecond
	times, err := openLoop([]client{slow(each)}, rate, 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if len(times) != 101 || times[0] < each || quantile(times, 0.99) < 50*each {
		t.Errorf("%d latencies from %s to %s", len(times), times[0], times[len(times)-1])
	}
}

type slow time.Duration

func (s slow) get() error {
	time.Sleep(time.Duration(s))
	return nil
}

func (s slow) close() {}

func TestRatio(t *testing.T) {
	table := newTable(&scenario{}, nil)
	own, other := table.row(robotsproxyName), table.row("other")
	for _, values := range [][2]float64{{30, 10}, {20, 20}, {60, 15}} {
		own.add("n", values[0])
		other.add("n", values[1])
	}
	table.columns = []column{{title: "n"}}
	table.sum()
	for _, want := range []struct {
		more  bool
		ratio float64
	}{{true, 2}, {false, 0.5}} {
		if got, ok := table.ratio(column{title: "n", more: want.more}, other); !ok || got != want.ratio {
			t.Errorf("more is better %t: the ratio is %v, want %v", want.more, got, want.ratio)
		}
	}
	if got := spread(own.values["n"]); got != "30 (20 to 60)" {
		t.Errorf("the cell is %q", got)
	}
}

// TestTree finds this process and what it has used.
func TestTree(t *testing.T) {
	tree, err := lab.Tree(os.Getppid())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(tree, os.Getpid()) {
		t.Errorf("%d is not among the descendants of its parent: %v", os.Getpid(), tree)
	}
	now, err := lab.Memory(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if peak, err := lab.PeakMemory(os.Getpid()); err != nil || peak < now {
		t.Errorf("the most memory is %d, and %d now; %v", peak, now, err)
	}
}
