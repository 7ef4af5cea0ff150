//go:build linux

package main

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// redis compares a proxy that leases its places from a Redis at a distance of 20 ms with one that uses no Redis.
func (b *bench) redis() error {
	if _, err := exec.LookPath("redis-server"); err != nil {
		b.goal(goal{run: "redis", what: "not measured: there is no redis-server in PATH"})
		return nil
	}
	p := b.plan(plan{
		name: "redis", connections: 64, pages: 40, rounds: true,
		web: webOptions{hosts: 500, latency: 20 * time.Millisecond, robotsSize: 500, shared: 0.5},
	})
	without, err := b.run(p, robotsproxySide)
	if err != nil {
		return err
	}
	server, err := startRedis(b.dir, 10*time.Millisecond)
	if err != nil {
		return err
	}
	defer server.stop()
	p.name, p.config = "redis, 20 ms away", "redis:\n  url: redis://"+server.addr()+"\n"
	with, err := b.run(p, robotsproxySide)
	if err != nil {
		return err
	}
	calls, err := server.calls()
	if err != nil {
		return err
	}
	evals, hashes := with.per(calls["evalsha"]), with.per(calls["hget"]+calls["hmget"])
	b.goal(goal{"redis", "EVALSHA a request", []string{number(evals)}, "<= 0.3", evals <= 0.3})
	b.goal(goal{run: "redis", what: "HGET and HMGET a request", got: []string{number(hashes)}})
	got := []string{number(with.rate()), "without " + number(without.rate())}
	b.goal(goal{"redis", "requests/s", got, ">= 0.8 x without", with.rate() >= 0.8*without.rate()})
	return nil
}

// redisServer is a Redis, and a relay before it that holds back every byte for a while in both directions.
type redisServer struct {
	cmd    *exec.Cmd
	socket string
	relay  net.Listener
	delay  time.Duration
}

func startRedis(dir string, delay time.Duration) (*redisServer, error) {
	dir, err := os.MkdirTemp(dir, "redis")
	if err != nil {
		return nil, err
	}
	r := &redisServer{socket: filepath.Join(dir, "s"), delay: delay}
	r.cmd = exec.Command("redis-server", "--port", "0", "--unixsocket", r.socket, "--save", "", "--dir", dir)
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if r.relay, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	if err := r.cmd.Start(); err != nil {
		return nil, errors.Join(err, r.relay.Close())
	}
	for range 500 {
		c, err := net.Dial("unix", r.socket)
		if err == nil {
			c.Close()
			go r.serve()
			return r, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.stop()
	return nil, errors.New("redis-server did not start")
}

func (r *redisServer) addr() string { return r.relay.Addr().String() }

func (r *redisServer) stop() {
	r.relay.Close()
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}

func (r *redisServer) serve() {
	for {
		near, err := r.relay.Accept()
		if err != nil {
			return // closed
		}
		far, err := net.Dial("unix", r.socket)
		if err != nil {
			near.Close()
			continue
		}
		var once sync.Once
		end := func() { once.Do(func() { near.Close(); far.Close() }) }
		go r.pass(near, far, end)
		go r.pass(far, near, end)
	}
}

// pass copies from one connection to the other, each byte after the delay.
func (r *redisServer) pass(from, to net.Conn, end func()) {
	type chunk struct {
		bytes []byte
		due   time.Time
	}
	chunks := make(chan chunk, 1000)
	go func() {
		defer end()
		for c := range chunks {
			time.Sleep(time.Until(c.due))
			_, _ = to.Write(c.bytes) // a failure ends the other direction
		}
	}()
	defer close(chunks)
	for {
		b := make([]byte, 16<<10)
		n, err := from.Read(b)
		if err != nil {
			return
		}
		chunks <- chunk{b[:n], time.Now().Add(r.delay)}
	}
}

var commandCalls = regexp.MustCompile(`cmdstat_(\w+):calls=(\d+)`)

// calls returns how often each command was called, by its name.
func (r *redisServer) calls() (map[string]int64, error) {
	c, err := net.Dial("unix", r.socket)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "INFO commandstats\r\nQUIT\r\n"); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(c)
	calls := make(map[string]int64)
	for _, m := range commandCalls.FindAllSubmatch(text, -1) {
		calls[string(m[1])], _ = strconv.ParseInt(string(m[2]), 10, 64)
	}
	return calls, err
}
