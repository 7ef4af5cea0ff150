//go:build linux

package main

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"
)

// scenario is a table of the report.
type scenario struct {
	name, title string
	load        way
	clients     int
	needs       skill // of a peer
	run         func(b *bench, s *scenario) error
}

func (s *scenario) String() string { return s.name }

// connections is the number of clients unless a scenario is about it.
const connections = 32

var scenarios = []*scenario{
	{name: "plain-1", title: "Plain HTTP, kept connections, 1 KiB: 1 connection", load: plain, clients: 1, run: (*bench).throughput},
	{name: "plain-32", title: "Plain HTTP, kept connections, 1 KiB: 32 connections", load: plain, clients: 32, run: (*bench).throughput},
	{name: "plain-256", title: "Plain HTTP, kept connections, 1 KiB: 256 connections", load: plain, clients: 256, run: (*bench).throughput},
	{
		name: "https", title: "Intercepted HTTPS, kept tunnels, HTTP/1.1, 1 KiB: 32 connections",
		load: tunnelled, clients: connections, needs: intercepts, run: (*bench).throughput,
	},
	{
		name: "http2", title: "Intercepted HTTPS, kept tunnels, HTTP/2 with the client, 1 KiB: 32 streams in 4 connections",
		load: tunnelled2, clients: connections, needs: intercepts | speaksHTTP2, run: (*bench).throughput,
	},
	{
		name: "tunnels", title: "Intercepted HTTPS, a new tunnel for each request, full TLS handshakes",
		load: newTunnels, clients: connections, needs: intercepts, run: (*bench).throughput,
	},
	{name: "download", title: "Plain HTTP, download of a large file", load: downloads, clients: 1, run: (*bench).downloads},
	{
		name: "download-https", title: "Intercepted HTTPS, download of a large file",
		load: tunnelledDownloads, clients: 1, needs: intercepts, run: (*bench).downloads,
	},
	{name: "hosts", title: "Plain HTTP, each request to the next of many hosts", clients: connections, needs: mapsHosts, run: (*bench).hosts},
	{name: "idle", title: "Idle tunnels: memory", load: tunnelled, run: (*bench).idle},
	{name: "latency", title: "Plain HTTP, added latency at half of the capacity", load: plain, clients: connections, run: (*bench).latency},
	{
		name: "latency-https", title: "Intercepted HTTPS (HTTP/1.1), added latency at half of the capacity",
		load: tunnelled, clients: connections, needs: intercepts, run: (*bench).latency,
	},
	{name: "parts", title: "Plain HTTP: what the parts of robotsproxy cost", load: plain, clients: connections, run: (*bench).parts},
	{
		name: "parts-https", title: "Intercepted HTTPS (HTTP/1.1): what the parts of robotsproxy cost",
		load: tunnelled, clients: connections, needs: intercepts, run: (*bench).parts,
	},
}

// side is a proxy in a scenario, or the direct way.
type side struct {
	row   *row
	proxy *process // nil for the direct way
	route *route
}

// directName is the row without a proxy. It is the most that the clients and the origin can do on their processors.
const directName = "no proxy"

// sides starts all peers that have the skills of a scenario. The first is the direct way.
func (b *bench) sides(t *table, s *scenario) ([]*side, error) {
	direct := &route{origin: b.origin, roots: b.origin.ca.Pool()}
	sides := []*side{{row: t.row(directName), route: direct}}
	for _, p := range b.peers {
		if p.tunnels && s.needs&intercepts == 0 {
			continue
		}
		if lacks := s.needs &^ p.skills; lacks != 0 {
			t.leaveOut(p.name, reasons[lacks&-lacks])
			continue
		}
		one, err := b.side(t.row(p.name), p, s.needs&intercepts != 0, "")
		if err != nil {
			stopAll(sides)
			return nil, fmt.Errorf("starting %s: %w", p.name, err)
		}
		sides = append(sides, one)
	}
	return sides, nil
}

func (b *bench) side(r *row, p *peer, intercept bool, lines string) (*side, error) {
	running, err := b.start(p, intercept, lines)
	if err != nil {
		return nil, err
	}
	return &side{r, running, &route{origin: b.origin, proxy: running.addr, roots: running.roots}}, nil
}

func stopAll(sides []*side) {
	var stopping sync.WaitGroup
	for _, one := range sides {
		if one.proxy != nil {
			stopping.Go(one.proxy.stop)
		}
	}
	stopping.Wait()
}

// inTurn makes all rounds of all sides. A side that fails has no further round.
func (b *bench) inTurn(t *table, sides []*side, round func(one *side) error) {
	for range b.rounds {
		for _, one := range sides {
			if one.row.failure == nil {
				one.row.failure = round(one)
			}
		}
	}
	t.sum()
	b.tables = append(b.tables, t)
}

var throughputColumns = []column{
	{title: "requests/s", more: true, ratio: true},
	{title: "CPU µs/request", ratio: true},
	{title: "CPU busy %"},
	{title: "allocations/request"},
	{title: "allocated bytes/request"},
}

func (b *bench) throughput(s *scenario) error {
	t := newTable(s, throughputColumns)
	sides, err := b.sides(t, s)
	if err != nil {
		return err
	}
	defer stopAll(sides)
	if s.needs == intercepts|speaksHTTP2 {
		sides = sides[1:] // the origin does not speak HTTP/2
		t.rows = t.rows[1:]
	}
	b.inTurn(t, sides, func(one *side) error { return b.measure(s, one) })
	return nil
}

// measure makes a round of one side.
func (b *bench) measure(s *scenario, one *side) error {
	clients := s.load(one.route, s.clients)
	defer closeAll(clients)
	if err := warm(clients); err != nil {
		return err
	}
	before, err := one.used()
	if err != nil {
		return err
	}
	requests, took, err := closedLoop(clients, b.duration)
	if err != nil {
		return err
	}
	after, err := one.used()
	if err != nil {
		return err
	}
	one.row.add("requests/s", float64(requests)/took.Seconds())
	if one.proxy == nil {
		return nil
	}
	n, cpu := float64(requests), after.cpu-before.cpu
	one.row.add("CPU µs/request", float64(cpu.Microseconds())/n)
	one.row.add("CPU busy %", 100*cpu.Seconds()/took.Seconds())
	if after.allocations > 0 {
		one.row.add("allocations/request", (after.allocations-before.allocations)/n)
		one.row.add("allocated bytes/request", (after.allocated-before.allocated)/n)
	}
	return nil
}

func closeAll(clients []client) {
	for _, c := range clients {
		c.close()
	}
}

// used is what a proxy has used since its start.
type used struct {
	cpu                    time.Duration
	allocations, allocated float64 // of robotsproxy
}

func (one *side) used() (u used, err error) {
	if one.proxy == nil {
		return u, nil
	}
	if one.row.robotsproxy {
		if u.allocations, u.allocated, err = one.proxy.allocations(); err != nil {
			return u, err
		}
	}
	u.cpu, err = one.proxy.cpu()
	return u, err
}

var mallocs = regexp.MustCompile(`(?m)^go_memstats_(mallocs_total|alloc_bytes_total) (\S+)$`)

// allocations asks robotsproxy for the number of its allocations and for their bytes.
func (p *process) allocations() (n, bytes float64, err error) {
	resp, err := (&http.Client{Timeout: patience}).Get("http://" + p.admin + "/metrics")
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, 0, err
	}
	values := make(map[string]float64)
	for _, m := range mallocs.FindAllStringSubmatch(string(text), -1) {
		values[m[1]], err = strconv.ParseFloat(m[2], 64)
	}
	if len(values) != 2 {
		err = fmt.Errorf("http://%s/metrics has no numbers of allocations", p.admin)
	}
	return values["mallocs_total"], values["alloc_bytes_total"], err
}

// downloads measures one download at a time. The peak memory is that of the whole process.
func (b *bench) downloads(s *scenario) error {
	t := newTable(s, []column{{title: "MB/s", more: true, ratio: true}, {title: "CPU ms/100 MB", ratio: true}, {title: "peak MiB", ratio: true}})
	t.title += fmt.Sprintf(" (%d MiB)", b.sizes.download>>20)
	sides, err := b.sides(t, s)
	if err != nil {
		return err
	}
	defer stopAll(sides)
	b.inTurn(t, sides, func(one *side) error { return b.downloadOnce(s, one) })
	return nil
}

func (b *bench) downloadOnce(s *scenario, one *side) error {
	clients := s.load(one.route, s.clients)
	defer closeAll(clients)
	before, err := one.used()
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := clients[0].get(); err != nil {
		return err
	}
	took := time.Since(begun)
	after, err := one.used()
	if err != nil {
		return err
	}
	megabytes := float64(b.sizes.download) / 1e6
	one.row.add("MB/s", megabytes/took.Seconds())
	if one.proxy == nil {
		return nil
	}
	one.row.add("CPU ms/100 MB", float64((after.cpu-before.cpu).Milliseconds())*100/megabytes)
	peak, err := one.proxy.peakMemory()
	one.row.add("peak MiB", mebi(peak))
	return err
}

// hosts visits every host once before the rounds: robots.txt is fetched then.
func (b *bench) hosts(s *scenario) error {
	visits := *s
	s = &visits
	s.load = manyHosts(b.sizes.hosts)
	t := newTable(s, append(throughputColumns, column{title: "peak MiB", ratio: true}))
	t.title += fmt.Sprintf(" (%d)", b.sizes.hosts)
	sides, err := b.sides(t, s)
	if err != nil {
		return err
	}
	defer stopAll(sides)
	for _, one := range sides {
		one.row.failure = b.visitAll(s, one)
	}
	b.inTurn(t, sides, func(one *side) error {
		if err := b.measure(s, one); err != nil || one.proxy == nil {
			return err
		}
		peak, err := one.proxy.peakMemory()
		one.row.add("peak MiB", mebi(peak))
		return err
	})
	return nil
}

func (b *bench) visitAll(s *scenario, one *side) error {
	clients := s.load(one.route, s.clients)
	defer closeAll(clients)
	errs := make([]error, len(clients))
	var running sync.WaitGroup
	for i, c := range clients {
		running.Go(func() {
			for range b.sizes.hosts/len(clients) + 1 {
				if errs[i] = c.get(); errs[i] != nil {
					return
				}
			}
		})
	}
	running.Wait()
	return first(errs)
}

// openingTime is how long tunnels are opened for the scenario idle. A slow proxy has fewer of them.
const openingTime = 20 * time.Second

// idle opens tunnels, sends a request through each, and looks at the memory. It has one round.
func (b *bench) idle(s *scenario) error {
	t := newTable(s, []column{{title: "tunnels", more: true}, {title: "MiB before"}, {title: "MiB with the tunnels", ratio: true}, {title: "KiB a tunnel", ratio: true}})
	t.title += ". One round; tinyproxy and privoxy pass the tunnels on unread"
	for _, p := range b.peers {
		r := t.row(p.name)
		r.failure = b.idleOf(s, p, r)
	}
	t.sum()
	b.tables = append(b.tables, t)
	return nil
}

func (b *bench) idleOf(s *scenario, p *peer, r *row) error {
	one, err := b.side(r, p, true, "")
	if err != nil {
		return err
	}
	defer one.proxy.stop()
	if one.route.roots == nil {
		one.route.roots = b.origin.ca.Pool()
	}
	clients := s.load(one.route, b.sizes.tunnels)
	defer closeAll(clients)
	if err := warm(clients[:1]); err != nil {
		return err
	}
	before, err := one.proxy.memory()
	if err != nil {
		return err
	}
	opened := 1
	for begun := time.Now(); opened < len(clients) && time.Since(begun) < openingTime; {
		next := min(opened+100, len(clients))
		if err := warm(clients[opened:next]); err != nil {
			return err
		}
		opened = next
	}
	with, err := one.proxy.memory()
	r.add("tunnels", float64(opened))
	r.add("MiB before", mebi(before))
	r.add("MiB with the tunnels", mebi(with))
	r.add("KiB a tunnel", float64(with-before)/1024/float64(opened-1))
	return err
}

// openClients is how many requests can be under way in an open loop.
const openClients = 64

// latency measures the capacity of each side, and then requests at half of it, through the proxy and without it.
func (b *bench) latency(s *scenario) error {
	t := newTable(s, []column{
		{title: "requests/s"},
		{title: "p50 µs"},
		{title: "p99 µs"},
		{title: "added p50 µs", ratio: true},
		{title: "added p99 µs", ratio: true},
	})
	sides, err := b.sides(t, s)
	if err != nil {
		return err
	}
	defer stopAll(sides)
	direct := sides[0].route
	rates := make(map[*side]float64)
	t.rows, sides = t.rows[1:], sides[1:] // it has no latency to add
	for _, one := range sides {
		rates[one], one.row.failure = b.halfCapacity(s, one)
	}
	b.inTurn(t, sides, func(one *side) error { return b.compareLatency(s, one, direct, rates[one]) })
	return nil
}

func (b *bench) halfCapacity(s *scenario, one *side) (float64, error) {
	clients := s.load(one.route, s.clients)
	defer closeAll(clients)
	if err := warm(clients); err != nil {
		return 0, err
	}
	n, took, err := closedLoop(clients, b.duration)
	return float64(n) / took.Seconds() / 2, err
}

func (b *bench) compareLatency(s *scenario, one *side, direct *route, rate float64) error {
	through, err := b.atRate(s, one.route, rate)
	if err != nil {
		return err
	}
	without, err := b.atRate(s, direct, rate)
	if err != nil {
		return err
	}
	one.row.add("requests/s", rate)
	for _, q := range []struct {
		name string
		of   float64
	}{{"p50 µs", 0.5}, {"p99 µs", 0.99}} {
		a, b := quantile(through, q.of), quantile(without, q.of)
		one.row.add(q.name, float64(a.Microseconds()))
		one.row.add("added "+q.name, float64((a - b).Microseconds()))
	}
	return nil
}

func (b *bench) atRate(s *scenario, r *route, rate float64) ([]time.Duration, error) {
	clients := s.load(r, openClients)
	defer closeAll(clients)
	if err := warm(clients); err != nil {
		return nil, err
	}
	return openLoop(clients, rate, b.duration)
}

// parts are the configurations of robotsproxy that are compared. No key turns pacing or judging off alone: mode report
// judges and does not pace, mode off does neither.
var parts = []struct{ name, lines string }{
	{robotsproxyName, ""},
	{"without JSON lines", "audit: {jsonl: none}\n"},
	{"without records", "audit: {store: none, jsonl: none}\n"},
	{"without pacing (`mode: report`)", "mode: report\n"},
	{"without robots.txt and pacing (`mode: off`)", "mode: \"off\"\n"},
	{"without all of them", "mode: \"off\"\naudit: {store: none, jsonl: none}\n"},
}

func (b *bench) parts(s *scenario) error {
	i := slices.IndexFunc(b.peers, func(p *peer) bool { return p.name == robotsproxyName })
	if i < 0 {
		return nil
	}
	t := newTable(s, throughputColumns)
	var sides []*side
	for _, part := range parts {
		r := t.row(part.name)
		r.robotsproxy = true
		one, err := b.side(r, b.peers[i], true, part.lines)
		if err != nil {
			stopAll(sides)
			return fmt.Errorf("%s: %w", part.name, err)
		}
		sides = append(sides, one)
	}
	defer stopAll(sides)
	b.inTurn(t, sides, func(one *side) error { return b.measure(s, one) })
	return nil
}
