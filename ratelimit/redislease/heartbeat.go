package redislease

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// heartbeatEvery is how often an instance reports that it is present.
	heartbeatEvery = 2 * time.Second

	// instanceLasts is how long an instance counts after its last heartbeat.
	instanceLasts = 4 * heartbeatEvery

	// probeEvery is how often an instance probes Redis while it is down.
	probeEvery = 250 * time.Millisecond

	// maxInstances is how many instances can have different numbers, as in instances.lua.
	maxInstances = 1024
)

var (
	//go:embed instances.lua
	instancesSource string
	instancesScript = redis.NewScript(instancesSource)
)

// A probe lets several goroutines wait for one heartbeat: see Client.check.
type probe struct {
	wanted chan struct{} // capacity 1

	// mu guards next.
	mu   sync.Mutex
	next chan struct{} // closed when the next heartbeat has ended
}

func newProbe() *probe { return &probe{wanted: make(chan struct{}, 1), next: make(chan struct{})} }

// want makes the next heartbeat start at once.
func (p *probe) want() {
	select {
	case p.wanted <- struct{}{}:
	default:
	}
}

// ended wakes the goroutines that wait for the end of a heartbeat.
func (p *probe) ended() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.next)
	p.next = make(chan struct{})
}

func (p *probe) end() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}

// check waits until the next heartbeat has ended, and returns why Redis is down, nil if it is up.
func (c *Client) check() error {
	end := c.probe.end()
	c.probe.want()
	select {
	case <-end:
	case <-c.closing.Done():
	}
	return c.health.down()
}

// heartbeats runs the heartbeat until the Client is closed. While Redis is down, the heartbeat is the probe.
func (c *Client) heartbeats() {
	for {
		every := heartbeatEvery
		if c.health.down() != nil {
			every = probeEvery
		}
		select {
		case <-c.closing.Done():
			return
		case <-c.probe.wanted:
		case <-time.After(every):
		}
		c.heartbeat(instanceLasts)
	}
}

// heartbeat reports that this instance is present for lasts, and takes the answer of Redis, if it answers.
func (c *Client) heartbeat(lasts time.Duration) {
	defer c.probe.ended()
	sent := time.Now()
	answer, err := c.register(lasts)
	if err != nil {
		c.failed(err)
		return
	}
	now := time.Now()
	c.health.setClock(answer.duration(0), sent, now)
	c.setMemory(answer.number(1), now)
	c.number.Store(answer.number(2))
	instances := make([]string, len(answer)-3)
	for i := range instances {
		instances[i] = answer.text(i + 3)
	}
	if c.health.rise(now) {
		c.log.Info("Redis answers; pace is shared with other instances")
		c.adopt()
	}
	c.health.setInstances(instances, now)
	if c.reset.Swap(false) {
		c.resend()
	}
	if c.hasPending() {
		c.wantSend()
	}
	c.wantSync()
}

// register runs instances.lua. It sends no more than the ten words that Redis accepts from a client without the
// password, so that the error says that the password is missing. If the connection breaks, it tries again over
// others, since the server may be up.
func (c *Client) register(lasts time.Duration) (reply, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.closing), commandTimeout)
	defer cancel()
	all := c.prefix + hashTag
	run := func() ([]any, error) {
		keys := []string{all + "instances", all + "memory", all + "numbers"}
		return instancesScript.Run(ctx, c.redis, keys, c.id, micros(lasts), c.channel, c.number.Load()).Slice()
	}
	v, err := run()
	var refusal redis.Error
	for tries := 1; tries < 5 && err != nil && !errors.As(err, &refusal) && ctx.Err() == nil; tries++ {
		v, err = run()
	}
	if err == nil && len(v) < 3 {
		err = errors.New("the answer of the script is too short")
	}
	return v, err
}

// setMemory takes since when Redis remembers. If Redis has lost its memory, this instance sends it what it knows.
func (c *Client) setMemory(since int64, now time.Time) {
	if c.health.setMemory(since, now) {
		c.places.forget()
		c.log.Warn("Redis has lost its memory; sending it the pauses and overrides that this instance knows")
		c.renewAll()
		c.resend()
	}
}

// failed marks Redis as down because of err.
func (c *Client) failed(err error) {
	if c.closing.Err() != nil {
		return
	}
	if c.health.fall(err, time.Now()) {
		c.places.forget()
		c.downs.Add(1)
		c.log.Warn("Redis is down; pace is not shared with other instances", "err", err, "on_down", c.onDown)
	}
	if c.onDown == OnDownSpread && c.health.unknownInstances(time.Now()) {
		c.log.Warn("Redis was never reached, so this instance paces as if there were no other, " +
			"and a host may get requests of all instances")
	}
}

// connected identifies the server of a new connection. A server that was restarted, or takes over from another, may
// have lost its memory, so this instance sends it what it knows. A server that does not answer INFO is trusted, since
// it may lack the command or the right to it. A node of a Cluster that does not have the keys refuses TYPE, and does
// not count.
func (c *Client) connected(ctx context.Context, conn *redis.Conn) error {
	line := conn.Pipeline()
	server, keyType := line.Info(ctx, "server"), line.Type(ctx, c.prefix+hashTag+"memory")
	_, _ = line.Exec(ctx)
	if server.Err() != nil || keyType.Err() != nil {
		return nil
	}
	now, run := time.Now(), infoField(server.Val(), "run_id")
	uptime, err := strconv.Atoi(infoField(server.Val(), "uptime_in_seconds"))
	if err == nil && run != "" && c.health.setServer(run, now.Add(-time.Duration(uptime)*time.Second), now) {
		c.log.Warn("Redis was restarted or another server has taken over; " +
			"sending it the pauses and overrides that this instance knows")
		c.renewAll()
		c.resend()
	}
	return nil
}

// infoField returns the value of a line "name:value".
func infoField(info, name string) string {
	lines := bufio.NewScanner(strings.NewReader(info))
	for lines.Scan() {
		if value, found := strings.CutPrefix(lines.Text(), name+":"); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// listen calls the function of Watch with the key of each message, and synchronizes the Document if it has changed. go-redis connects again if the connection breaks.
func (c *Client) listen() {
	messages := c.redis.Subscribe(c.closing, c.channel, c.documentChannel())
	defer messages.Close()
	c.awaitSubscription(messages)
	channel := messages.Channel()
	for {
		select {
		case <-c.closing.Done():
			return
		case m, open := <-channel:
			if !open {
				return
			}
			if m.Channel == c.documentChannel() {
				c.wantSync()
				continue
			}
			c.hear(m.Payload)
		}
	}
}

// hear takes a message: the key of a lane for which it is worth asking again, or, after "want ", of a lane of which
// another instance wants a lease.
func (c *Client) hear(message string) {
	if key, want := strings.CutPrefix(message, "want "); want {
		c.wanted(key)
		return
	}
	c.places.doubt(message, time.Now())
	if f := c.wake.Load(); f != nil && message != "" {
		(*f)(message)
	}
}

// awaitSubscription waits until Redis confirms the subscription, and logs an error if Redis is up and refuses it.
func (c *Client) awaitSubscription(messages *redis.PubSub) {
	for {
		_, err := messages.ReceiveTimeout(c.closing, commandTimeout)
		if err == nil || c.closing.Err() != nil {
			c.hears.Store(err == nil && c.onDown != OnDownRefuse)
			return
		}
		if c.health.down() == nil {
			c.log.Warn("Redis sends no messages; waiting instances ask again a little later", "error", err)
			return
		}
		select {
		case <-c.closing.Done():
			return
		case <-time.After(probeEvery):
		}
	}
}
