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
	// beatEvery is how often an instance says that it is here.
	beatEvery = 2 * time.Second

	// numbers is how many instances can have a number of their own, as in instances.lua.
	numbers = 1024

	// probeEvery is how often it looks whether Redis is back.
	probeEvery = 250 * time.Millisecond
)

var (
	//go:embed instances.lua
	instancesSource string
	instancesScript = redis.NewScript(instancesSource)
)

// A probe lets several goroutines wait for one look at Redis: see Client.verdict.
type probe struct {
	wanted chan struct{} // capacity 1

	// mu guards next.
	mu   sync.Mutex
	next chan struct{} // closed when the next beat has ended
}

func newProbe() *probe { return &probe{wanted: make(chan struct{}, 1), next: make(chan struct{})} }

// want makes watch look at Redis at once.
func (p *probe) want() {
	select {
	case p.wanted <- struct{}{}:
	default:
	}
}

// looked wakes those that wait for the end of a beat.
func (p *probe) looked() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.next)
	p.next = make(chan struct{})
}

func (p *probe) waiting() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}

// verdict waits for the next beat to end, and returns the reason why Redis is down, nil if it is up.
func (r *Client) verdict() error {
	looked := r.probe.waiting()
	r.probe.want()
	select {
	case <-looked:
	case <-r.closing.Done():
	}
	return r.health.down()
}

// watch says that this instance is here and hears who else is, or looks whether Redis is back.
func (r *Client) watch() {
	for {
		every := beatEvery
		if r.health.down() != nil {
			every = probeEvery
		}
		select {
		case <-r.closing.Done():
			return
		case <-r.probe.wanted:
		case <-time.After(every):
		}
		r.beat(instanceLasts)
	}
}

// beat says that this instance is here for lasts, and notes what Redis answers, if it does.
func (r *Client) beat(lasts time.Duration) {
	defer r.probe.looked()
	sent := time.Now()
	answer, err := r.look(lasts)
	if err != nil {
		r.failed(err)
		return
	}
	now := time.Now()
	r.health.hears(answer.duration(0), sent, now)
	r.remembers(answer.number(1), now)
	r.number.Store(answer.number(2))
	instances := make([]string, len(answer)-3)
	for i := range instances {
		instances[i] = answer.text(i + 3)
	}
	if r.health.returns(now) {
		r.log.Info("Redis answers; pace is shared with other instances")
		r.adopt()
	}
	r.health.meets(instances, now)
	if r.forgetful.Swap(false) {
		r.tellAgain()
	}
	if r.untold() {
		r.wantTelling()
	}
}

// look asks Redis for its clock and the instances. It sends no more than the ten words that Redis takes of a client without
// the password, so that the error names what is missing. If the connection breaks, it asks once more by another one, since the
// server may be up all the same.
func (r *Client) look(lasts time.Duration) (reply, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.closing), commandTimeout)
	defer cancel()
	all := r.prefix + oneSlot
	ask := func() ([]any, error) {
		keys := []string{all + "instances", all + "memory", all + "numbers"}
		return instancesScript.Run(ctx, r.client, keys, r.id, micros(lasts), r.channel, r.number.Load()).Slice()
	}
	v, err := ask()
	var refusal redis.Error
	if err != nil && !errors.As(err, &refusal) && ctx.Err() == nil {
		v, err = ask()
	}
	if err == nil && len(v) < 3 {
		err = errors.New("the script answered less than it should")
	}
	return v, err
}

// remembers takes in since when Redis remembers. If it has lost its memory, this instance tells it what it knows.
func (r *Client) remembers(since int64, now time.Time) {
	if r.health.remembers(since, now) {
		r.log.Warn("Redis has lost its memory; telling it the pauses and orders that this instance knows")
		r.tellAgain()
	}
}

// failed notes a command that was not answered as it should be, for whatever reason.
func (r *Client) failed(err error) {
	if r.closing.Err() != nil {
		return
	}
	if r.health.fails(err, time.Now()) {
		r.downs.Add(1)
		r.log.Warn("Redis is down; pace is not shared with other instances", "err", err, "on_down", r.onDown)
	}
	if r.onDown == OnDownSpread && r.health.alone(time.Now()) {
		r.log.Warn("Redis was never reached, so the other instances are not known: each paces as if there were no other, and a host may see them all")
	}
}

// connected looks at each new connection whose server it is. A server that was restarted, or takes over from another, may
// have forgotten something, so this instance tells it what it knows. A server that does not answer INFO is trusted, since it
// may lack the command or the right to it. A node of a Cluster that does not have our keys refuses TYPE, and does not count.
func (r *Client) connected(ctx context.Context, conn *redis.Conn) error {
	line := conn.Pipeline()
	server, ours := line.Info(ctx, "server"), line.Type(ctx, r.prefix+oneSlot+"memory")
	_, _ = line.Exec(ctx)
	if server.Err() != nil || ours.Err() != nil {
		return nil
	}
	now, run := time.Now(), infoField(server.Val(), "run_id")
	uptime, err := strconv.Atoi(infoField(server.Val(), "uptime_in_seconds"))
	if err == nil && run != "" && r.health.serves(run, now.Add(-time.Duration(uptime)*time.Second), now) {
		r.log.Warn("Redis was restarted or another server has taken over; telling it the pauses and orders that this instance knows")
		r.tellAgain()
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

// listen passes on for which keys it is worth asking again. go-redis connects anew by itself.
func (r *Client) listen() {
	messages := r.client.Subscribe(r.closing, r.channel)
	defer messages.Close()
	r.confirm(messages)
	channel := messages.Channel()
	for {
		select {
		case <-r.closing.Done():
			return
		case m, open := <-channel:
			if !open {
				return
			}
			if f := r.woken.Load(); f != nil && m.Payload != "" {
				(*f)(m.Payload)
			}
		}
	}
}

// confirm waits until Redis says that messages will come, and logs why they will not.
func (r *Client) confirm(messages *redis.PubSub) {
	for {
		_, err := messages.ReceiveTimeout(r.closing, commandTimeout)
		if err == nil || r.closing.Err() != nil {
			return
		}
		if r.health.down() == nil {
			r.log.Warn("Redis sends no messages; who waits for another instance asks again a little later", "error", err)
			return
		}
		select {
		case <-r.closing.Done():
			return
		case <-time.After(probeEvery):
		}
	}
}
