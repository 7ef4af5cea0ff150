package redislease

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/redistest"
	"github.com/robotsproxy/robotsproxy/ratelimit"
)

// A slow is a slow host. It records its requests.
type slow struct {
	mu     sync.Mutex
	starts []time.Time
	ends   []time.Time
	most   int    // visits after which enough is called
	enough func() // may be nil
}

// visit is one request. It records times inside the request, so the gaps are not longer than those that a host sees.
func (s *slow) visit(took time.Duration) {
	s.mu.Lock()
	s.starts = append(s.starts, time.Now())
	s.mu.Unlock()
	time.Sleep(took)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ends = append(s.ends, time.Now()); len(s.ends) == s.most {
		s.enough()
	}
}

// visits returns a channel that is closed after n more visits, or after a minute.
func (s *slow) visits(n int) <-chan struct{} {
	over := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most, s.enough = len(s.ends)+n, sync.OnceFunc(func() { close(over) })
	time.AfterFunc(time.Minute, s.enough)
	return over
}

// lasting returns a channel that is closed after d.
func lasting(d time.Duration) <-chan struct{} {
	over := make(chan struct{})
	time.AfterFunc(d, func() { close(over) })
	return over
}

// gaps returns the time from the end of each request to the start of the next, shortest first. A start before the end
// of the one before it makes a negative gap.
func (s *slow) gaps() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortFunc(s.starts, time.Time.Compare)
	slices.SortFunc(s.ends, time.Time.Compare)
	var gaps []time.Duration
	for i, start := range s.starts[1:] {
		if i < len(s.ends) {
			gaps = append(gaps, start.Sub(s.ends[i]))
		}
	}
	slices.SortFunc(gaps, cmp.Compare[time.Duration])
	return gaps
}

// A figure is the result of a run.
type figure struct {
	grants, violations       int
	smallest, p1, p50, p99   time.Duration
	fewestServed, mostServed int
}

func (s *slow) figure(delay time.Duration, served []int) figure {
	gaps := s.gaps()
	at := func(p float64) time.Duration { return gaps[int(p*float64(len(gaps)-1))] }
	short := slices.IndexFunc(gaps, func(g time.Duration) bool { return g >= delay })
	if short < 0 {
		short = len(gaps)
	}
	return figure{
		grants: len(gaps) + 1, violations: short, smallest: gaps[0], p1: at(0.01), p50: at(0.5), p99: at(0.99),
		fewestServed: slices.Min(served), mostServed: slices.Max(served),
	}
}

func (f figure) String() string {
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/1e6) }
	return fmt.Sprintf("%d grants; gaps in ms: smallest %s, p1 %s, p50 %s, p99 %s; %d too short; %d-%d per worker",
		f.grants, ms(f.smallest), ms(f.p1), ms(f.p50), ms(f.p99), f.violations, f.fewestServed, f.mostServed)
}

// A crew is the workers of one instance. One of them at a time asks for a lease.
type crew struct {
	redis *Client
	turn  chan struct{} // of capacity 1
	woken chan struct{} // of capacity 1
	alone atomic.Int64  // requests that were sent without Redis
}

func newCrew(r *Client) *crew {
	c := &crew{redis: r, turn: make(chan struct{}, 1), woken: make(chan struct{}, 1)}
	r.Watch(func(string) {
		select {
		case c.woken <- struct{}{}:
		default:
		}
	})
	return c
}

// visit waits for its turn and sends one request, unless stop comes first.
func (c *crew) visit(s *slow, a ratelimit.LeaseRequest, took time.Duration, stop <-chan struct{}) bool {
	select {
	case c.turn <- struct{}{}:
	case <-stop:
		return false
	}
	defer func() { <-c.turn }()
	for {
		answer, err := c.redis.Lease(a)
		if err != nil {
			answer.Wait = 10 * time.Millisecond
		}
		if answer.Lease != nil {
			s.visit(took)
			answer.Lease.End()
			if answer.Mode != ratelimit.ModeRedis {
				c.alone.Add(1)
				time.Sleep(a.Delay) // as the lane of a Limiter does
			}
			return true
		}
		select {
		case <-time.After(answer.Wait):
		case <-c.woken:
		case <-stop:
			return false
		}
	}
}

// run makes workers of the crews visit one host until stop is closed. It returns how often each was served.
func run(crews []*crew, s *slow, workers int, a ratelimit.LeaseRequest, took time.Duration, stop <-chan struct{}) []int {
	served := make([]int, workers)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for c := crews[i%len(crews)]; c.visit(s, a, took, stop); {
				served[i]++
			}
		})
	}
	wg.Wait()
	return served
}

func newCrews(tb testing.TB, n int, o Options) []*crew {
	tb.Helper()
	crews := make([]*crew, n)
	for i := range crews {
		crews[i] = newCrew(newRedis(tb, o))
	}
	for _, c := range crews {
		c.redis.heartbeat(instanceLasts)
		c.redis.health.trusted = time.Time{} // the server is new, so it cannot have lost its memory
	}
	return crews
}

func TestInstancesKeepOneDelay(t *testing.T) {
	server := redistest.Start(t)
	crews := newCrews(t, 4, Options{URL: server.URL()})
	a, s := spaced(100*time.Millisecond), &slow{}
	served := run(crews, s, 16, a, 5*time.Millisecond, s.visits(48))
	f := s.figure(a.Delay, served)
	t.Log(f)
	if f.violations > 0 {
		t.Errorf("%d gaps are shorter than %v", f.violations, a.Delay)
	}
	if f.fewestServed == 0 {
		t.Errorf("a worker was never served: %v", served)
	}
}

// With a queue in each of four instances, no request is held for much longer than MaxWait.
func TestMaxWaitHoldsForAllInstances(t *testing.T) {
	server := redistest.Start(t)
	const delay, maxWait = 300 * time.Millisecond, 1800 * time.Millisecond
	var mu sync.Mutex
	var waits []time.Duration
	var sent []time.Time
	var wg sync.WaitGroup
	for _, c := range newCrews(t, 4, Options{URL: server.URL()}) {
		l := newLimiter(t, ratelimit.Options{Coordinator: c.redis})
		for i := range 12 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 20 * time.Millisecond)
				began := time.Now()
				g, err := l.Acquire(t.Context(), ratelimit.Request{Key: host, Client: fmt.Sprint(i), Delay: delay, MaxWait: maxWait})
				var wait *ratelimit.WaitError
				if errors.As(err, &wait) {
					if wait.Wait <= maxWait {
						t.Errorf("turned away for a wait of %v", wait.Wait)
					}
					return
				}
				mu.Lock()
				sent = append(sent, time.Now())
				waits = append(waits, time.Since(began))
				mu.Unlock()
				g.Release(ratelimit.Outcome{Status: 200})
			})
		}
	}
	wg.Wait()
	if len(waits) < 4 {
		t.Fatalf("only %d requests were sent: %v", len(waits), waits)
	}
	pace := max(delay, sent[len(sent)-1].Sub(sent[0])/time.Duration(len(sent)-1)) // of this machine
	if longest := slices.Max(waits); longest > 5*maxWait/2*pace/delay {
		t.Errorf("a request waited %v at one in %v, want %v at one in %v or not much more: %v", longest, pace, maxWait, delay, waits)
	}
}

func TestRedisIsKilledAndRestarted(t *testing.T) {
	for _, mode := range []OnDown{OnDownSpread, OnDownRefuse} {
		t.Run(string(mode), func(t *testing.T) {
			server := redistest.Start(t)
			crews := newCrews(t, 4, Options{URL: server.URL(), OnDown: mode})
			a, s := spaced(100*time.Millisecond), &slow{}
			stop := make(chan struct{})
			var running sync.WaitGroup
			running.Go(func() { run(crews, s, 8, a, 5*time.Millisecond, stop) })
			time.Sleep(time.Second)
			server.Kill()
			time.Sleep(4 * time.Second)
			if mode == OnDownSpread {
				eventually(t, "each sends without Redis", func() bool {
					return !slices.ContainsFunc(crews, func(c *crew) bool { return c.alone.Load() == 0 })
				})
			}
			close(stop)
			running.Wait()
			server.Restart()
			served := run(crews, s, 8, a, 5*time.Millisecond, s.visits(40))
			f := s.figure(a.Delay, served)
			t.Log(f)
			if f.violations > 0 {
				t.Errorf("%d gaps are shorter than %v", f.violations, a.Delay)
			}
			if f.fewestServed == 0 {
				t.Errorf("after the restart a worker was never served: %v", served)
			}
			for _, c := range crews {
				if n := c.alone.Load(); n > 0 && mode == OnDownRefuse {
					t.Errorf("%d requests were sent while Redis was down", n)
				}
				eventually(t, "an instance of four has seen Redis go and come back", func() bool {
					got := c.redis.Stats()
					return got.Up && got.Downs > 0 && got.Instances == 4
				})
			}
		})
	}
}

// A restart between two commands, of which none failed, is noticed.
func TestRestartThatNobodySaw(t *testing.T) {
	server := redistest.Start(t)
	crews := newCrews(t, 2, Options{URL: server.URL()})
	a := spaced(time.Minute)
	granted(t, crews[0].redis, a).End()
	crews[0].redis.quiet()
	server.Kill()
	server.Restart()
	eventually(t, "Redis is up", func() bool { return crews[1].redis.Stats().Up })
	if answer := lease(t, crews[1].redis, a); answer.Lease != nil || answer.Wait < 50*time.Second {
		t.Errorf("Lease: %+v, want to wait for what the server has forgotten", answer)
	}
	fresh := newRedis(t, Options{URL: server.URL()})
	if answer := lease(t, fresh, a); answer.Lease != nil || answer.Wait < 50*time.Second {
		t.Errorf("a new instance: %+v, want to wait a delay from the start of the server", answer)
	}
}

// Instances that want the same number get different ones, also after the server has lost its memory, and keep theirs.
func TestNumbersDiffer(t *testing.T) {
	server := redistest.Start(t)
	var in []*Client
	beats := func() map[int]bool {
		got := make(map[int]bool)
		for range 2 {
			for _, r := range in {
				r.heartbeat(instanceLasts)
			}
		}
		for _, r := range in {
			got[r.Number()] = true
		}
		return got
	}
	for range 5 {
		in = append(in, newRedis(t, Options{URL: server.URL()}))
		in[len(in)-1].number.Store(1022)
	}
	first := beats()
	if len(first) != len(in) {
		t.Errorf("%d instances have the numbers %v", len(in), first)
	}
	server.Do("FLUSHALL")
	if again := beats(); !maps.Equal(first, again) {
		t.Errorf("after the loss of memory the numbers are %v, want %v", again, first)
	}
	gone := in[0].Number()
	in[0].Close()
	in = append(in[1:], newRedis(t, Options{URL: server.URL()}))
	in[len(in)-1].number.Store(int64(gone))
	if got := beats(); !maps.Equal(first, got) {
		t.Errorf("after one was replaced the numbers are %v, want %v", got, first)
	}
}

func TestRedisOverTLS(t *testing.T) {
	cert, key := selfSigned(t)
	server := redistest.Start(t)
	server.Kill()
	server.Args("--port", "0", "--bind", "127.0.0.1", "--save", "", "--tls-port", server.Port(), "--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients", "no")
	if out, _ := exec.Command("redis-server", "--tls-port", "none").CombinedOutput(); strings.Contains(string(out), "Bad directive") {
		t.Skip("this redis-server was built without TLS")
	}
	server.Restart()
	url := "rediss://" + server.Addr()
	if r := newRedis(t, Options{URL: url}); r.Stats().Up {
		t.Error("a certificate that nobody vouches for was accepted")
	}
	granted(t, newRedis(t, Options{URL: url + "?skip_verify=true"}), ratelimit.LeaseRequest{Key: host, Limit: 1})
}

// selfSigned returns the files of a certificate for 127.0.0.1 and its key.
func selfSigned(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redis"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, octets []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: octets}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", secret)
}

func TestRedisOverASocketWithAPassword(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "r.sock")
	server := redistest.Start(t, "--unixsocket", socket, "--requirepass", "hunter2")
	granted(t, newRedis(t, Options{URL: "unix://:hunter2@" + socket}), ratelimit.LeaseRequest{Key: host, Limit: 1})
	if r := newRedis(t, Options{URL: server.URL()}); r.Stats().Up || !strings.Contains(fmt.Sprint(r.health.down()), "NOAUTH") {
		t.Errorf("without the password: %v", r.health.down())
	}
}

// documentedRights returns the rights that docs/instances.md lists.
func documentedRights(t *testing.T) []string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/instances.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(doc), "```\n~robotsproxy")
	rights, _, found := strings.Cut("~robotsproxy"+rest, "```")
	if !found {
		t.Fatal("docs/instances.md does not list the rights")
	}
	return strings.Fields(rights)
}

func startWithRights(t *testing.T, rights ...string) *redistest.Server {
	t.Helper()
	return redistest.Start(t, append([]string{"--user", "default", "on", "nopass"}, rights...)...)
}

// The log says at once that a right is missing.
func TestRightsOfMessages(t *testing.T) {
	for lacking, want := range map[string]string{"+publish": "Redis is down", "+subscribe": "Redis sends no messages"} {
		rights := slices.DeleteFunc(documentedRights(t), func(right string) bool { return right == lacking })
		var log syncBuffer
		r := newRedis(t, Options{URL: startWithRights(t, rights...).URL(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
		eventually(t, "the log says that "+lacking+" is lacking", func() bool { return strings.Contains(log.String(), want) })
		if up := r.Stats().Up; up != (lacking == "+subscribe") {
			t.Errorf("without %s, up is %v", lacking, up)
		}
	}
}

// The rights in docs/instances.md suffice.
func TestRedisWithFewRights(t *testing.T) {
	server := startWithRights(t, documentedRights(t)...)
	one, other := newRedis(t, Options{URL: server.URL()}), newRedis(t, Options{URL: server.URL()})
	if !one.Stats().Up || len(one.health.servers) == 0 {
		t.Fatalf("up is %v, servers known are %v: %v", one.Stats().Up, one.health.servers, one.health.down())
	}
	woken := make(chan string, 8)
	other.Watch(func(key string) { woken <- key })
	l := granted(t, one, ratelimit.LeaseRequest{Key: host, Limit: 1})
	denied(t, other, ratelimit.LeaseRequest{Key: host, Limit: 1}, time.Second, leaseLasts)
	l.renew()
	l.End()
	l.given()
	eventually(t, "a message arrives", func() bool {
		one.Pause("b.example", time.Second, ratelimit.RetryAfter)
		select {
		case <-woken:
			return true
		case <-time.After(10 * time.Millisecond):
			return false
		}
	})
	granted(t, other, ratelimit.LeaseRequest{Key: host, Limit: 1}).Cancel()
	pauses(t, one, host, time.Minute, ratelimit.RetryAfter)
	if err := one.Override(host, ratelimit.Override{Stop: true}); err != nil {
		t.Error(err)
	}
}

// A Cluster of one node refuses keys of different slots, and needs one more right.
func TestRedisCluster(t *testing.T) {
	rights := append(documentedRights(t), "+cluster|slots", "--user", "admin", "on", "nopass", "~*", "+@all", "--cluster-enabled", "yes")
	server := startWithRights(t, rights...)
	slots := exec.Command("redis-cli", "-h", "127.0.0.1", "-p", server.Port(), "--user", "admin", "--pass", "any", "cluster", "addslotsrange", "0", "16383")
	if out, err := slots.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	url := server.URL() + "?addr=" + server.Addr()
	one, other := newRedis(t, Options{URL: url}), newRedis(t, Options{URL: url})
	eventually(t, "the Cluster is ready", func() bool { return one.Stats().Up && other.Stats().Up })
	a := spaced(20 * time.Second)
	eventually(t, "a lease is granted", func() bool { return lease(t, one, ratelimit.LeaseRequest{Key: host, Limit: 1}).Lease != nil })
	if answer := lease(t, other, a); answer.Lease != nil || answer.Mode != ratelimit.ModeRedis {
		t.Errorf("Lease: %+v, want no Lease beside the other", answer)
	}
}

// TestFigures prints the table of the documentation. It takes half a minute and runs on request:
// FIGURES=1 go test ./ratelimit/redislease -run TestFigures -v
func TestFigures(t *testing.T) {
	if os.Getenv("FIGURES") == "" {
		t.Skip("FIGURES is not set: it asks for a run of half a minute")
	}
	server := redistest.Start(t)
	for _, n := range []int{1, 2, 4} {
		a, s := ratelimit.LeaseRequest{Key: fmt.Sprintf("host%d", n), Delay: 100 * time.Millisecond, Limit: 1}, &slow{}
		served := run(newCrews(t, n, Options{URL: server.URL()}), s, 32, a, 0, lasting(10*time.Second))
		t.Logf("%d instances: %v", n, s.figure(a.Delay, served))
	}
}

// BenchmarkLease measures one lease and its end over loopback.
func BenchmarkLease(b *testing.B) {
	r := newRedis(b, Options{URL: redistest.Start(b).URL()})
	for b.Loop() {
		answer, err := r.Lease(ratelimit.LeaseRequest{Key: host, Limit: 8})
		if err != nil || answer.Lease == nil {
			b.Fatalf("Lease: %+v, %v", answer, err)
		}
		answer.Lease.End()
		r.quiet()
	}
}

// A replica that Sentinel promotes may lack the last writes. No gap may become too short by that.
func TestSentinelFailover(t *testing.T) {
	first := redistest.Start(t)
	second := redistest.Start(t, "--replicaof", strings.Replace(first.Addr(), ":", " ", 1), "--repl-diskless-sync-delay", "0")
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	host, port, _ := net.SplitHostPort(first.Addr())
	text := fmt.Sprintf("sentinel monitor main %s %s 1\nsentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n", host, port)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sentinel := redistest.New(t)
	sentinel.Args(config, "--sentinel", "--port", sentinel.Port(), "--bind", "127.0.0.1")
	sentinel.Restart()
	eventually(t, "the replica has what the first server has", func() bool { return info(t, second, "replication", "master_link_status") == "up" })
	eventually(t, "Sentinel knows the replica", func() bool { return strings.Contains(info(t, sentinel, "sentinel", "master0"), "slaves=1") })

	crews := newCrews(t, 2, Options{URL: sentinel.URL() + "/0?master_name=main"})
	a, s := spaced(100*time.Millisecond), &slow{}
	killed := make(chan struct{})
	time.AfterFunc(time.Second, func() { first.Kill(); close(killed) })
	served := run(crews, s, 4, a, 5*time.Millisecond, lasting(10*time.Second))
	<-killed
	f := s.figure(a.Delay, served)
	t.Log(f)
	if f.violations > 0 {
		t.Errorf("%d gaps are shorter than %v", f.violations, a.Delay)
	}
	for _, c := range crews {
		eventually(t, "Redis is up again after a fall", func() bool { got := c.redis.Stats(); return got.Up && got.Downs > 0 })
	}
}

// info returns one field of a server's INFO.
func info(t *testing.T, s *redistest.Server, section, field string) string {
	t.Helper()
	client, err := dial(s.URL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	text, _ := client.Info(t.Context(), section).Result()
	return infoField(text, field)
}
