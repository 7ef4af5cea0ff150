package redislease

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/redistest"
	"github.com/robotsproxy/robotsproxy/ratelimit"
)

// newPair returns two instances that use the server at url, each with a Limiter, when both know both.
func newPair(t *testing.T, url string) ([2]*Client, [2]*ratelimit.Limiter) {
	t.Helper()
	var in [2]*Client
	var limiters [2]*ratelimit.Limiter
	for i := range in {
		in[i] = newRedis(t, Options{URL: url})
		limiters[i] = newLimiter(t, ratelimit.Options{Coordinator: in[i]})
	}
	eventually(t, "each instance knows of both", func() bool { return in[0].Stats().Instances == 2 && in[1].Stats().Instances == 2 })
	return in, limiters
}

// After a server has lost its memory, pauses, stops and floors are restored before an instance sends that does not know
// them.
func TestMemoryLossTellsAgain(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*redistest.Server){
		"restart":  func(s *redistest.Server) { s.Kill(); s.Restart() },
		"flushall": func(s *redistest.Server) { s.Do("FLUSHALL") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			in, limiters := newPair(t, server.URL())
			limiters[0].Hear("paused.example", "a", ratelimit.Outcome{Status: 429, RetryAfter: time.Hour})
			limiters[0].Hear("over.example", "a", ratelimit.Outcome{Status: 429, RetryAfter: 200 * time.Millisecond})
			if err := errors.Join(limiters[0].Stop("stopped.example", time.Time{}), limiters[0].SetFloor("slow.example", time.Minute)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the pause is told", func() bool {
				return server.Do("HEXISTS "+in[0].keys("paused.example")[0]+" paused") == ":1"
			})
			if err := errors.Join(in[0].check(), in[1].check()); err != nil { // so that no heartbeat is due during the restart
				t.Fatal(err)
			}
			lose(server)
			for began := time.Now(); time.Since(began) < 5*time.Second; time.Sleep(20 * time.Millisecond) {
				for _, key := range []string{"paused.example", "stopped.example"} {
					if answer := lease(t, in[1], ratelimit.LeaseRequest{Key: key, Limit: 8}); answer.Lease != nil {
						t.Fatalf("%v after the loss: a Lease for %s in mode %s", time.Since(began), key, answer.Mode)
					}
				}
			}
			if answer := lease(t, in[1], ratelimit.LeaseRequest{Key: "paused.example", Limit: 8}); answer.Paused < 59*time.Minute || answer.PauseSource != ratelimit.RetryAfter {
				t.Errorf("paused.example: %+v, want a pause of an hour", answer)
			}
			if answer := lease(t, in[1], ratelimit.LeaseRequest{Key: "stopped.example", Limit: 8}); !answer.Override.Stop {
				t.Errorf("stopped.example: %+v, want a stop", answer)
			}
			if answer := lease(t, in[1], ratelimit.LeaseRequest{Key: "slow.example", Limit: 8}); answer.Override.Floor != time.Minute {
				t.Errorf("slow.example: %+v, want a floor of a minute", answer)
			}
			if err := limiters[0].Stopped("stopped.example"); err == nil {
				t.Error("the instance where the stop was said has forgotten it")
			}
			granted(t, in[1], ratelimit.LeaseRequest{Key: "over.example", Limit: 8}).Cancel()
		})
	}
}

// A lift outlives the memory of the server, although another instance has not learned of it.
func TestMemoryLossKeepsWhatWasLifted(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	in, limiters := newPair(t, server.URL())
	if err := limiters[0].Stop(host, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if answer := lease(t, in[1], ratelimit.LeaseRequest{Key: host, Limit: 8}); !answer.Override.Stop {
		t.Fatalf("Lease: %+v, want a stop", answer)
	}
	if err := limiters[0].Lift(host); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	server.Restart()
	eventually(t, "a lease is granted", func() bool { return lease(t, in[1], ratelimit.LeaseRequest{Key: host, Limit: 8}).Lease != nil })
	for began := time.Now(); time.Since(began) < 4*time.Second; time.Sleep(100 * time.Millisecond) {
		for i := range in {
			if answer := lease(t, in[i], ratelimit.LeaseRequest{Key: host, Limit: 8}); answer.Override.Stop {
				t.Fatalf("instance %d hears again of a stop that was lifted", i)
			}
		}
	}
}

// A result without news from Redis, or from a server that has lost its memory, lifts no override.
func TestEarlyAnswerLiftsNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	in, limiters := newPair(t, server.URL())
	if err := limiters[0].Stop(host, time.Time{}); err != nil {
		t.Fatal(err)
	}
	lease(t, in[1], ratelimit.LeaseRequest{Key: host, Limit: 8})
	for i := range in {
		in[i].health.mu.Lock()
		in[i].health.trusted = time.Now().Add(time.Minute)
		in[i].health.mu.Unlock()
		if answer := lease(t, in[i], spaced(time.Second)); answer.Lease != nil || !answer.Override.Stop {
			t.Errorf("instance %d: %+v, want no Lease and the stop", i, answer)
		}
	}
}

// Load over a slow network does not count as an outage, while thousands of leases are granted, renewed and given back.
func TestLoadIsNoOutage(t *testing.T) {
	server := redistest.Start(t)
	relay := redistest.NewRelay(t, server.Addr())
	r := newRedis(t, Options{URL: relay.URL()})
	if !r.Stats().Up {
		t.Fatal("Redis is not up")
	}
	relay.Delay(50 * time.Millisecond)
	var held sync.WaitGroup
	var without atomic.Int64
	for i := range 5000 {
		held.Go(func() {
			answer, err := r.Lease(ratelimit.LeaseRequest{Key: fmt.Sprint("host", i), Limit: 1})
			if err != nil || answer.Lease == nil || answer.Mode != ratelimit.ModeRedis {
				without.Add(1)
				return
			}
			time.Sleep(4 * time.Second)
			answer.Lease.End()
		})
	}
	held.Wait()
	if n := without.Load(); n > 0 {
		t.Errorf("%d of 5000 hosts got no Lease by Redis", n)
	}
	if got := r.Stats(); got.Downs != 0 || got.Lost != 0 {
		t.Errorf("Redis went down %d times, and %d leases were lost; want none", got.Downs, got.Lost)
	}
}

// However many requests are reported over a slow network, they cost no goroutines and cause no outage.
func TestReportsAreBounded(t *testing.T) {
	server := redistest.Start(t)
	relay := redistest.NewRelay(t, server.Addr())
	r := newRedis(t, Options{URL: relay.URL()})
	l := newLimiter(t, ratelimit.Options{Coordinator: r})
	relay.Delay(50 * time.Millisecond)
	before, most := runtime.NumGoroutine(), 0
	for i := range 20_000 {
		l.Reckon(ratelimit.Request{Key: fmt.Sprint("host", i%2000), Client: "a"})
		if i%100 == 0 {
			most = max(most, runtime.NumGoroutine())
		}
	}
	if most > before+100 {
		t.Errorf("%d goroutines before, %d while 20,000 requests were reported", before, most)
	}
	eventually(t, "each host's request is told", func() bool {
		n, _ := strconv.Atoi(strings.TrimPrefix(server.Do("DBSIZE"), ":"))
		return n >= 2000
	})
	if got := r.Stats().Downs; got != 0 {
		t.Errorf("Redis went down %d times", got)
	}
}

// A broken connection does not count as an outage, whether of a command or of the probe.
func TestBrokenConnectionsAreNoOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	in, limiters := newPair(t, server.URL())
	sent := 0
	for began := time.Now(); time.Since(began) < 5*time.Second; {
		server.Do("CLIENT KILL TYPE normal")
		g, err := limiters[sent%2].Acquire(t.Context(), ratelimit.Request{Key: host, Client: "a", MaxWait: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if g.Mode() != ratelimit.ModeRedis {
			t.Fatalf("request %d is paced by mode %s", sent, g.Mode())
		}
		g.Release(ratelimit.Outcome{Status: 200})
		sent++
		time.Sleep(2 * time.Millisecond) // a heartbeat takes several round trips
	}
	for i, r := range in {
		if got := r.Stats(); got.Downs != 0 || got.Lost != 0 {
			t.Errorf("instance %d: %+v, want no fall and no lost lease", i, got)
		}
	}
}

// The probe finds a server that does not answer, without any other command. A pause of half a second is not an outage.
func TestProbeFindsAnOutage(t *testing.T) {
	server := redistest.Start(t)
	r := newRedis(t, Options{URL: server.URL()})
	server.Do("CLIENT PAUSE 500 ALL")
	if answer := lease(t, r, ratelimit.LeaseRequest{Key: host, Limit: 8}); answer.Lease == nil || answer.Mode != ratelimit.ModeRedis {
		t.Errorf("in a short pause: %+v, want a Lease by Redis", answer)
	}
	if got := r.Stats().Downs; got != 0 {
		t.Errorf("a short pause made Redis go down %d times", got)
	}
	server.Stop()
	eventually(t, "Redis is down", func() bool { return !r.Stats().Up })
	began := time.Now()
	if answer := lease(t, r, ratelimit.LeaseRequest{Key: "b.example", Limit: 8}); answer.Mode == ratelimit.ModeRedis || time.Since(began) > time.Second/2 {
		t.Errorf("while Redis is down: %+v after %v, want an answer without it at once", answer, time.Since(began))
	}
	server.Continue()
	eventually(t, "Redis is up", func() bool { return r.Stats().Up })
	if got := r.Stats().Downs; got != 1 {
		t.Errorf("Redis went down %d times, want once", got)
	}
}

// After an outage, an instance with many pending updates uses leases at once, while it sends them.
func TestReturnWithMuchToTell(t *testing.T) {
	server := redistest.Start(t)
	relay := redistest.NewRelay(t, server.Addr())
	late, other := newRedis(t, Options{URL: relay.URL()}), newRedis(t, Options{URL: server.URL()})
	server.Stop()
	eventually(t, "Redis is down", func() bool { return !late.Stats().Up && !other.Stats().Up })
	const many = 3000
	for i := range many {
		late.Pause(fmt.Sprint("host", i), time.Hour, ratelimit.RetryAfter)
	}
	if err := late.Override("stopped.example", ratelimit.Override{Stop: true}); err == nil {
		t.Error("an order was told to a server that is down")
	}
	relay.Delay(10 * time.Millisecond)
	server.Continue()
	eventually(t, "the other is back", func() bool { return other.Stats().Up })
	back := time.Now()
	eventually(t, "the late one is back", func() bool { return late.Stats().Up })
	if took := time.Since(back); took > settleTime {
		t.Errorf("one instance is back %v after the other, which left it room for %v", took, settleTime)
	}
	if answer := lease(t, late, ratelimit.LeaseRequest{Key: "stopped.example", Limit: 8}); answer.Lease != nil || !answer.Override.Stop {
		t.Errorf("while it tells: %+v, want the stop that was said here", answer)
	}
	eventually(t, "the stop is told", func() bool {
		return lease(t, other, ratelimit.LeaseRequest{Key: "stopped.example", Limit: 8}).Override.Stop
	})
	for i := range many {
		key := fmt.Sprint("host", i)
		eventually(t, key+" is paused", func() bool {
			return lease(t, other, ratelimit.LeaseRequest{Key: key, Limit: 8}).Paused > 59*time.Minute
		})
	}
}

// A request that was sent while Redis was down, and is in flight when it returns, gets a lease: no request is sent
// beside it, and the next Delay counts from its end.
func TestRequestOverAReturn(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r, other := newRedis(t, Options{URL: server.URL(), OnDown: OnDownLocal}), newRedis(t, Options{URL: server.URL()})
	one, two := newLimiter(t, ratelimit.Options{Coordinator: r}), newLimiter(t, ratelimit.Options{Coordinator: other})
	server.Kill()
	unreached(t, r)
	unreached(t, other)
	request := ratelimit.Request{Key: host, Client: "a", Delay: 300 * time.Millisecond, MaxWait: time.Minute}
	long, err := one.Acquire(t.Context(), request)
	if err != nil || long.Mode() != ratelimit.ModeLocal {
		t.Fatalf("without Redis: a Grant by %s, %v", long.Mode(), err)
	}
	server.Restart()
	eventually(t, "Redis is up", func() bool { return r.Stats().Up && other.Stats().Up })
	started := make(chan time.Time, 1)
	go func() {
		next, err := two.Acquire(t.Context(), request)
		if err != nil {
			t.Error(err)
		}
		started <- time.Now()
		next.Release(ratelimit.Outcome{Status: 200})
	}()
	select {
	case <-started:
		t.Fatal("the other instance sent while a request was under way")
	case <-time.After(settleTime + leaseLasts + time.Second):
	}
	end := time.Now()
	long.Release(ratelimit.Outcome{Status: 200})
	if gap := (<-started).Sub(end); gap < request.Delay {
		t.Errorf("the other instance sent %v after the end of a request, want %v", gap, request.Delay)
	}
}

// startCluster starts a Cluster of n nodes without replicas, in which each node serves its slots although another is
// down.
func startCluster(t *testing.T, n int) []*redistest.Server {
	t.Helper()
	nodes := make([]*redistest.Server, n)
	for i := range nodes {
		nodes[i] = redistest.Start(t, "--cluster-enabled", "yes", "--cluster-require-full-coverage", "no", "--cluster-node-timeout", "1000")
		low, high := i*16384/n, (i+1)*16384/n-1
		nodes[i].Do(fmt.Sprintf("CLUSTER ADDSLOTSRANGE %d %d", low, high))
		nodes[i].Do(fmt.Sprintf("CLUSTER SET-CONFIG-EPOCH %d", i+1))
	}
	for _, node := range nodes[1:] {
		node.Do("CLUSTER MEET 127.0.0.1 " + nodes[0].Port())
	}
	for _, node := range nodes {
		eventually(t, "the nodes know each other", func() bool {
			out, _ := exec.Command("redis-cli", "-p", node.Port(), "cluster", "info").Output()
			return strings.Contains(string(out), fmt.Sprintf("cluster_known_nodes:%d\r", n)) && strings.Contains(string(out), "cluster_state:ok")
		})
	}
	return nodes
}

// All keys are in one slot, so the loss of other nodes changes nothing. If the node of the keys is lost, Redis is down
// for all lanes.
func TestClusterIsOneServer(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	url := nodes[0].URL() + "?addr=" + nodes[1].Addr() + "&addr=" + nodes[2].Addr()
	in, limiters := newPair(t, url)
	send := func(i int) {
		t.Helper()
		for j := range 30 {
			g, err := limiters[i].Acquire(t.Context(), ratelimit.Request{Key: fmt.Sprint("host", j), Client: "a", MaxWait: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			if g.Mode() != ratelimit.ModeRedis {
				t.Fatalf("host %d is paced by mode %s", j, g.Mode())
			}
			g.Release(ratelimit.Outcome{Status: 200})
		}
	}
	send(0)
	var home *redistest.Server
	for _, node := range nodes {
		switch n, _ := strconv.Atoi(strings.TrimPrefix(node.Do("DBSIZE"), ":")); {
		case n > 0 && home == nil:
			home = node
		case n > 0:
			t.Fatal("the keys are on several nodes")
		}
	}
	for _, node := range nodes {
		if node != home {
			node.Kill() // a Cluster serves as long as most of its masters are there
			break
		}
	}
	send(1)
	time.Sleep(2 * heartbeatEvery)
	send(0)
	for i, r := range in {
		if got := r.Stats(); got.Downs != 0 {
			t.Errorf("instance %d: %+v, want no fall when another node is gone", i, got)
		}
	}
	home.Kill()
	eventually(t, "Redis is down", func() bool { return !in[0].Stats().Up && !in[1].Stats().Up })
}

// A lost answer does no harm, of a server or of a Cluster: a command that may not run twice does not, and any other has
// the effect of one run.
func TestLostAnswerRepeatsNothing(t *testing.T) {
	for _, kind := range []string{"server", "cluster"} {
		t.Run(kind, func(t *testing.T) {
			relay, server, url := relayed(t, kind)
			r := newRedis(t, Options{URL: url})
			eventually(t, "Redis is up", func() bool { return r.Stats().Up })
			eventually(t, "the lease script is known", func() bool { return lease(t, r, ratelimit.LeaseRequest{Key: "b.example", Limit: 8}).Lease != nil })
			if _, err := r.CountThrottle(ratelimit.ThrottleEvent{Key: "b.example", Client: "a", Sent: time.Now()}); err != nil {
				t.Fatal(err)
			}
			relay.Cut("throttle")
			_, err := r.CountThrottle(ratelimit.ThrottleEvent{Key: host, Client: "a", Sent: time.Now()})
			if err == nil {
				t.Error("a throttle event was answered although the answer was lost")
			}
			if got := server.Do("ZCARD " + r.keys(host)[5]); got != ":1" {
				t.Errorf("%s throttle events are known, want 1", got)
			}
			a := ratelimit.LeaseRequest{Key: "c.example", Limit: 1, Delay: time.Microsecond} // without a Delay a lease is kept
			for _, word := range []string{"lease", "renew", "cancel", "lease", "end"} {
				relay.Cut(word)
				l := granted(t, r, a)
				if word == "renew" {
					l.renew()
				}
				if word == "end" {
					l.End()
				} else {
					l.Cancel()
				}
				l.given()
				if got := server.Do("ZCARD " + r.keys(a.Key)[1]); got != ":0" {
					t.Fatalf("after a %s whose answer was lost %s leases are held, want 0", word, got)
				}
			}
			if got := r.Stats(); got.Lost != 0 || got.Downs != 0 {
				t.Errorf("%+v, want no lost lease and no fall", got)
			}
		})
	}
}

// relayed starts a server, or a Cluster of one node, which clients reach through a Relay.
func relayed(t *testing.T, kind string) (*redistest.Relay, *redistest.Server, string) {
	t.Helper()
	if kind == "server" {
		server := redistest.Start(t)
		relay := redistest.NewRelay(t, server.Addr())
		return relay, server, relay.URL()
	}
	server := redistest.Start(t, "--cluster-enabled", "yes")
	relay := redistest.NewRelay(t, server.Addr())
	server.Do("CONFIG SET cluster-announce-ip 127.0.0.1")
	server.Do("CONFIG SET cluster-announce-port " + relay.Port())
	server.Do("CLUSTER ADDSLOTSRANGE 0 16383")
	eventually(t, "the node is ready", func() bool {
		out, _ := exec.Command("redis-cli", "-p", server.Port(), "cluster", "info").Output()
		return strings.Contains(string(out), "cluster_state:ok")
	})
	return relay, server, relay.URL() + "?addr=" + relay.Addr()
}

// Close gives back all leases, so that no instance waits until one expires. Other methods may be called during and
// after Close.
func TestCloseGivesBack(t *testing.T) {
	server := redistest.Start(t)
	for range 5 {
		leaving := newRedis(t, Options{URL: server.URL()})
		other := newRedis(t, Options{URL: server.URL()})
		var asking sync.WaitGroup
		stop := make(chan struct{})
		for i := range 50 {
			asking.Go(func() {
				for j := 0; ; j++ {
					select {
					case <-stop:
						return
					default:
					}
					answer, err := leaving.Lease(ratelimit.LeaseRequest{Key: fmt.Sprint("host", i), Limit: 1})
					if err == nil && answer.Lease != nil && j%2 == 0 {
						answer.Lease.Cancel()
					} else if err == nil && answer.Lease != nil {
						time.AfterFunc(50*time.Millisecond, answer.Lease.Cancel)
					}
					leaving.Sent(fmt.Sprint("sent", i), 0)
					leaving.Leave(fmt.Sprint("host", i))
					time.Sleep(time.Millisecond)
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		if err := leaving.Close(); err != nil {
			t.Error(err)
		}
		for i := range 50 {
			answer := lease(t, other, ratelimit.LeaseRequest{Key: fmt.Sprint("host", i), Limit: 1})
			if answer.Lease == nil && answer.Wait > leaseLasts/5 { // the place of the closed instance in the line costs less
				t.Errorf("host %d is blocked: %+v", i, answer)
			}
			if answer.Lease != nil {
				answer.Lease.Cancel()
			}
		}
		close(stop)
		asking.Wait()
		time.Sleep(100 * time.Millisecond) // the last leases are cancelled
		other.Close()
	}
}
