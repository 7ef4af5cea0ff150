package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/redistest"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// shards are instances with one Redis behind an HAProxy with deploy/haproxy/haproxy.cfg.
type shards struct {
	t         *testing.T
	site      *robotstest.Site
	hosts     []string
	redis     string // its part of the configuration
	adminPort string
	instances []*server
	roots     *x509.CertPool

	proxy, socket, config string // of HAProxy: its address, its socket for orders, its file
	haproxy               *exec.Cmd
	log                   *lockedBuffer

	mu       sync.Mutex
	answered []shardAnswer
	workers  sync.WaitGroup
	stop     chan struct{}
}

// shardAnswer is the result of one request.
type shardAnswer struct {
	host, query string
	began       time.Time
	took        time.Duration
	status      int
	err         error
}

func newShards(t *testing.T, hosts, instances int, robots string) *shards {
	t.Helper()
	if _, err := exec.LookPath("haproxy"); err != nil {
		skipUnlessCI(t, "haproxy is not here")
	}
	s := startShards(t, hosts, robots)
	s.redis = redisConfig(redistest.Start(t), "spread")
	for range instances {
		s.add()
	}
	s.trust(s.instances[0].ca)
	s.balance()
	return s
}

// startShards returns shards without an instance, and the site that they will use.
func startShards(t *testing.T, hosts int, robots string) *shards {
	t.Helper()
	s := &shards{t: t, site: robotstest.New(t), roots: x509.NewCertPool(), log: &lockedBuffer{}, stop: make(chan struct{})}
	for i := range hosts {
		s.hosts = append(s.hosts, fmt.Sprintf("www.host%d.example", i))
		s.site.SetRobots(s.hosts[i], robotstest.Robots{Body: robots})
	}
	_, s.adminPort, _ = net.SplitHostPort(freeAddress(t, "127.0.7.1"))
	return s
}

// trust makes the clients trust the CA in a file.
func (s *shards) trust(file string) {
	s.t.Helper()
	ca, err := os.ReadFile(file)
	if err != nil || !s.roots.AppendCertsFromPEM(ca) {
		s.t.Fatal("the CA of the instances cannot be read: ", err)
	}
}

func freeAddress(t *testing.T, ip string) string {
	t.Helper()
	l, err := net.Listen("tcp", ip+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// add starts an instance. All sign with the CA of the first one.
func (s *shards) add() {
	s.t.Helper()
	config := s.redis + "drain_delay: 3s\nproxy_protocol: [127.0.0.1]\nidentity: {contact: \"mailto:op@example.org\"}\nclients: [{name: here, cidr: [127.0.0.0/8]}]\n" + s.egress()
	if len(s.instances) > 0 {
		config += fmt.Sprintf("intercept: {ca_cert: %q, ca_key: %q}\n", s.instances[0].ca, filepath.Join(s.instances[0].dir, "ca-key.pem"))
	}
	s.start(config)
}

// egress returns the part of the configuration by which instances find the site.
func (s *shards) egress() string {
	resolve := make(map[string]string)
	for _, host := range s.hosts {
		resolve[host] = "127.0.0.1"
	}
	names, _ := json.Marshal(resolve)
	return fmt.Sprintf("egress: {allow_addresses: [127.0.0.0/8], ca_file: %q, resolve: %s}\n", s.site.CAFile(), names)
}

// start starts an instance with an address of its own, and returns the file of its configuration.
func (s *shards) start(config string) string {
	s.t.Helper()
	dir, ip := s.t.TempDir(), fmt.Sprintf("127.0.7.%d", len(s.instances)+1)
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		s.t.Fatal(err)
	}
	instance, err := startServer(filepath.Join(dir, "data"), os.Environ(), "--config", file, "--listen", ip+":0", "--admin-listen", ip+":"+s.adminPort)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = instance.cmd.Process.Kill()
		_ = instance.cmd.Wait()
		if s.t.Failed() {
			s.t.Logf("the log of an instance:\n%s", instance.log)
		}
	})
	s.instances = append(s.instances, instance)
	return file
}

// balance starts HAProxy with a copy of deploy/haproxy/haproxy.cfg, as the service of Debian does.
func (s *shards) balance() {
	s.t.Helper()
	text, err := os.ReadFile("../../deploy/haproxy/haproxy.cfg")
	if err != nil {
		s.t.Fatal(err)
	}
	dir := s.t.TempDir()
	s.proxy, s.socket, s.config = freeAddress(s.t, "127.0.0.1"), filepath.Join(dir, "admin.sock"), filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(s.config, text, 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.haproxy = exec.Command("haproxy", "-W", "-f", s.config)
	s.haproxy.Env = append(os.Environ(), "ROBOTSPROXY_LISTEN="+s.proxy, "ROBOTSPROXY_ADMIN_PORT="+s.adminPort, "HAPROXY_SOCKET="+s.socket)
	for i, instance := range s.instances {
		s.haproxy.Env = append(s.haproxy.Env, fmt.Sprintf("ROBOTSPROXY_%d=%s", i+1, instance.proxy))
	}
	if os.Getuid() != 0 { // it can be no other user
		u, err := user.Current()
		if err != nil {
			s.t.Fatal(err)
		}
		g, err := user.LookupGroupId(u.Gid)
		if err != nil {
			s.t.Fatal(err)
		}
		s.haproxy.Env = append(s.haproxy.Env, "HAPROXY_USER="+u.Username, "HAPROXY_GROUP="+g.Name)
	}
	s.haproxy.Stdout, s.haproxy.Stderr = s.log, s.log
	if err := s.haproxy.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = s.haproxy.Process.Signal(syscall.SIGTERM)
		_ = s.haproxy.Wait()
		if s.t.Failed() {
			s.t.Logf("the log of HAProxy:\n%s", s.log)
		}
	})
	for i := range s.instances {
		s.up(i + 1)
	}
}

// up waits until HAProxy sends requests to the server with this id.
func (s *shards) up(id int) {
	s.t.Helper()
	settle(s.t, fmt.Sprintf("up: server %d", id), func() bool {
		c, err := net.Dial("unix", s.socket)
		if err != nil {
			return false
		}
		defer c.Close()
		_, _ = io.WriteString(c, "show servers state shards\n")
		state, _ := io.ReadAll(c)
		for line := range strings.Lines(string(state)) {
			// be_id be_name srv_id srv_name srv_addr srv_op_state: 2 is running
			if f := strings.Fields(line); len(f) > 5 && f[2] == fmt.Sprint(id) && f[5] == "2" {
				return true
			}
		}
		return false
	})
}

// dialerOf returns a dialer from the address of a client.
func dialerOf(client int) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 9, byte(client+1))}}
}

// client returns a client of the balancer with an address of its own, and one connection for each proxy or tunnel.
func (s *shards) client(i int) *http.Client {
	transport := &http.Transport{
		Proxy:             http.ProxyURL(&url.URL{Scheme: "http", Host: s.proxy}),
		DialContext:       dialerOf(i).DialContext,
		TLSClientConfig:   &tls.Config{RootCAs: s.roots},
		ForceAttemptHTTP2: true, MaxConnsPerHost: 1,
	}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// ask posts to host, so that the client itself sends nothing twice, and notes the answer.
func (s *shards) ask(client *http.Client, scheme, host, query string) {
	port := map[string]int{"http": s.site.Port(), "https": s.site.TLSPort()}[scheme]
	a := shardAnswer{host: host, query: query, began: time.Now()}
	resp, err := client.Post(fmt.Sprintf("%s://%s:%d/delay/1ms?%s", scheme, host, port, query), "text/plain", strings.NewReader("body"))
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		a.status = resp.StatusCode
	}
	a.err, a.took = err, time.Since(a.began)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered = append(s.answered, a)
}

// askWithoutHost requests a URL with capital letters by HTTP/1.0, where Host may be missing.
func (s *shards) askWithoutHost(client int, host string) {
	s.t.Helper()
	c, err := dialerOf(client).Dial("tcp", s.proxy)
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET http://%s:%d/delay/1ms?c%d-old HTTP/1.0\r\n\r\n", strings.ToUpper(host), s.site.Port(), client)
	reply, err := io.ReadAll(c)
	if err != nil || !bytes.HasPrefix(reply, []byte("HTTP/1.0 200 ")) {
		s.t.Errorf("%s without Host: %q, %v", host, reply, err)
	}
}

// crawl begins to request from each host, by HTTP and HTTPS, until halt.
func (s *shards) crawl() {
	for i, host := range s.hosts {
		for j, scheme := range []string{"http", "https"} {
			client := s.client(2*i + j)
			s.workers.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-s.stop:
						return
					default:
						s.ask(client, scheme, host, fmt.Sprintf("c%d-%d", 2*i+j, n))
					}
				}
			})
		}
	}
}

func (s *shards) halt() {
	close(s.stop)
	s.workers.Wait()
}

// records returns what an instance has recorded so far, without its own requests.
func (s *shards) records(instance int) (all []audit.Record) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.instances[instance].dir, "audit.jsonl"))
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range bytes.Lines(clientRecords(text)) {
		var r audit.Record
		if json.Unmarshal(line, &r) == nil { // the last line may be incomplete
			all = append(all, r)
		}
	}
	return all
}

// homes returns which instances have served each host since a time.
func (s *shards) homes(since time.Time) map[string][]int {
	homes := make(map[string][]int)
	for i := range s.instances {
		for _, r := range s.records(i) {
			if r.Status == http.StatusOK && r.Time.After(since) && !slices.Contains(homes[r.Host], i) {
				homes[r.Host] = append(homes[r.Host], i)
			}
		}
	}
	return homes
}

// served waits until instances have recorded an answer to a plain request and one in a tunnel for each host since a time.
func (s *shards) served(since time.Time) {
	s.t.Helper()
	settle(s.t, "served", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		clients := make(map[string]bool)
		for _, a := range s.answered {
			if a.began.After(since) && a.status == http.StatusOK {
				client, _, _ := strings.Cut(a.query, "-")
				clients[client] = true
			}
		}
		return len(clients) == 2*len(s.hosts)
	})
}

// Each host belongs to one instance, for plain requests and for CONNECT, and the instance knows the client.
func TestShardOfAHost(t *testing.T) {
	s := newShards(t, 6, 3, clientRobots)
	for i := range 2 {
		client := s.client(i) // its connection carries the plain requests for all hosts
		for _, host := range s.hosts {
			s.ask(client, "http", host, fmt.Sprintf("c%d-plain", i))
		}
		for _, host := range s.hosts {
			s.ask(client, "https", host, fmt.Sprintf("c%d-tls", i))
		}
		for _, host := range s.hosts {
			s.askWithoutHost(i, host)
		}
	}
	for _, a := range s.answered {
		if a.err != nil || a.status != http.StatusOK {
			t.Errorf("%s %s: %d, %v", a.host, a.query, a.status, a.err)
		}
	}
	var n int
	settle(t, "recorded", func() bool {
		n = len(s.records(0)) + len(s.records(1)) + len(s.records(2))
		return n >= len(s.answered)+2*len(s.hosts)
	})
	used := make(map[int]bool)
	for host, homes := range s.homes(time.Time{}) {
		used[homes[0]] = true
		if len(homes) != 1 {
			t.Errorf("%s was requested by the instances %v, want one", host, homes)
		}
	}
	if len(used) != 3 {
		t.Errorf("of three instances %v were used", slices.Collect(maps.Keys(used)))
	}
	for i := range s.instances {
		for _, r := range s.records(i) {
			var client int
			_, err := fmt.Sscanf(r.Query, "c%d-", &client)
			if err != nil || !strings.HasPrefix(r.ClientAddr, fmt.Sprintf("127.0.9.%d:", client+1)) {
				t.Errorf("the address of the client of %s?%s is %s in its record", r.Host, r.Query, r.ClientAddr)
			}
		}
	}
	s.checkFetches()
}

// A request ends at the instance and at the origin when its client goes away.
func TestShardWithoutTheClient(t *testing.T) {
	long(t)
	s := newShards(t, 2, 3, clientRobots)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s:%d/delay/1h", s.hosts[0], s.site.Port()), nil)
	if err != nil {
		t.Fatal(err)
	}
	s.workers.Go(func() {
		resp, err := s.client(0).Do(req)
		if err == nil {
			resp.Body.Close()
		}
	})
	settle(t, "sent", func() bool { return asked(s.site, s.hosts[0], "/delay/1h") == 1 })
	leave()
	resp, err := s.client(1).Get(fmt.Sprintf("http://%s:%d/delay/3s", s.hosts[1], s.site.Port()))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if page := s.site.Requests()[1]; page.End.IsZero() { // the first request was for robots.txt
		t.Errorf("%s continues without its client", page)
	}
	s.workers.Wait()
}

// During a crawl an instance is killed, another one is added, and one drains: hosts move, each keeps its Crawl-delay, and
// its robots.txt is fetched once. No request is sent twice, and only requests that the killed instance had are lost.
func TestShardsThatMove(t *testing.T) {
	long(t)
	phase := lasting(time.Second)
	s := newShards(t, 8, 3, clientRobots)
	start := time.Now()
	s.crawl()
	time.Sleep(phase)
	s.served(start)
	before := s.homes(start)
	if err := s.instances[1].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.instances[1].cmd.Wait()
	killed := time.Now()
	time.Sleep(phase)
	s.served(killed)
	after := s.homes(killed)

	s.add()
	text, err := os.OpenFile(s.config, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(text, "    server four %s id 4\n", s.instances[3].proxy)
	if err := cmp.Or(err, text.Close(), s.haproxy.Process.Signal(syscall.SIGUSR2)); err != nil { // systemctl reload haproxy
		t.Fatal(err)
	}
	s.up(4)
	added := time.Now()
	time.Sleep(phase)
	s.served(added)
	settle(t, "moved: hosts to the added instance", func() bool { return len(s.records(3)) > 10 })

	drained := time.Now()
	if err := s.instances[0].stop(); err != nil {
		t.Errorf("the instance that drained ended with %v", err)
	}
	t.Logf("the drain took %v", time.Since(drained))
	s.served(time.Now())
	s.halt()

	moved := 0
	for _, host := range s.hosts {
		if !slices.Equal(before[host], []int{1}) && !slices.Equal(before[host], after[host]) {
			t.Errorf("%s was served by %v, and by %v after the end of another instance", host, before[host], after[host])
		}
		if slices.Equal(before[host], []int{1}) {
			moved++
		}
		checkGaps(t, host, slices.Sorted(slices.Values(s.site.Gaps(host))))
	}
	t.Logf("%d hosts left the killed instance, and these hosts are served after the addition: %v", moved, s.homes(added))
	if moved == 0 || moved == len(s.hosts) {
		t.Errorf("%d of %d hosts left the killed instance", moved, len(s.hosts))
	}
	s.checkSent(killed, func(host string) bool { return slices.Equal(before[host], []int{1}) })
	s.checkFetches()
}

// checkSent compares the answers with what the site got. Only requests to lost hosts that began before the kill may have
// failed. The system still accepts connections for a process that is ending, so a client may have more than one.
func (s *shards) checkSent(killed time.Time, lost func(host string) bool) {
	s.t.Helper()
	sent := make(map[string]int)
	for _, r := range s.site.Requests() {
		sent[r.Target]++
	}
	failed := 0
	for _, a := range s.answered {
		n := sent["/delay/1ms?"+a.query]
		ok := a.err == nil && a.status == http.StatusOK
		if !ok {
			failed++
		}
		if ok && n != 1 || !ok && (a.began.After(killed) || !lost(a.host)) || n > 1 {
			s.t.Errorf("%s %s, %v after the kill: status %d, error %v, sent %d times", a.host, a.query, a.began.Sub(killed), a.status, a.err, n)
		}
	}
	s.t.Logf("%d requests, of which %d failed with the killed instance", len(s.answered), failed)
}

// checkFetches fails unless each robots.txt was requested once.
func (s *shards) checkFetches() {
	s.t.Helper()
	fetches := make(map[string]int)
	for _, r := range s.site.Requests() {
		if r.Target == "/robots.txt" {
			fetches[r.String()]++
		}
	}
	for request, n := range fetches {
		if n != 1 {
			s.t.Errorf("%d times %s, want once", n, request)
		}
	}
	if len(fetches) != 2*len(s.hosts) {
		s.t.Errorf("%d robots.txt files were requested, want %d", len(fetches), 2*len(s.hosts))
	}
}

// TestShardFigures prints the share of each of three instances and the cost of HAProxy between them and their clients:
// FIGURES=1 go test ./cmd/robotsproxy -run TestShardFigures -v
func TestShardFigures(t *testing.T) {
	if os.Getenv("FIGURES") == "" {
		t.Skip("FIGURES is not set: it asks for a run of a minute")
	}
	s := newShards(t, 600, 3, "User-agent: *\nDisallow:\n")
	balancer := s.proxy
	for range 2 { // the first round fetches the robots.txt files
		for _, scheme := range []string{"http", "https"} {
			s.proxy = s.instances[0].proxy
			s.measure("to one instance", scheme, 16)
			s.proxy = balancer
			s.measure("through HAProxy to three instances", scheme, 16)
		}
	}
	s.proxy = s.instances[0].proxy
	s.measure("to one instance", "http", 1)
	s.proxy = balancer
	s.measure("through HAProxy to three instances", "http", 1)
	var shares []int
	for i := range s.instances {
		shares = append(shares, len(s.records(i)))
	}
	t.Logf("requests recorded by the instances: %v, of which the first got half directly", shares)
}

// measure requests each host ten times, and logs how long it took.
func (s *shards) measure(what, scheme string, clients int) {
	s.answered = nil
	began := time.Now()
	for i := range clients {
		client := s.client(i)
		s.workers.Go(func() {
			defer client.CloseIdleConnections()
			for n := i; n < 10*len(s.hosts); n += clients {
				s.ask(client, scheme, s.hosts[n/10], fmt.Sprint(n))
			}
		})
	}
	s.workers.Wait()
	took := time.Since(began)
	failed := slices.ContainsFunc(s.answered, func(a shardAnswer) bool { return a.status != http.StatusOK })
	slices.SortFunc(s.answered, func(a, b shardAnswer) int { return cmp.Compare(a.took, b.took) })
	at := func(p float64) time.Duration { return s.answered[int(p*float64(len(s.answered)-1))].took }
	s.t.Logf("%s by %s, %d at a time: %.0f requests/s, p50 %v, p99 %v, failed: %v", what, scheme, clients, float64(len(s.answered))/took.Seconds(), at(0.5), at(0.99), failed)
}
