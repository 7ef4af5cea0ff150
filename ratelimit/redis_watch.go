package ratelimit

import (
	"bufio"
	"context"
	_ "embed"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// beatEvery is how often an instance says that it is here.
	beatEvery = 2 * time.Second

	// probeEvery is how often it looks whether Redis is back.
	probeEvery = 250 * time.Millisecond
)

var (
	//go:embed instances.lua
	instancesSource string
	instancesScript = redis.NewScript(instancesSource)
)

// watch says that this instance is here and hears who else is, or looks whether Redis is back.
func (r *Redis) watch() {
	for {
		every := beatEvery
		if r.health.down() != nil {
			every = probeEvery
		}
		select {
		case <-r.closing.Done():
			return
		case <-time.After(every):
			r.beat(instanceLasts)
		}
	}
}

// beat says that this instance is here for lasts, and notes what Redis answers, if it does.
func (r *Redis) beat(lasts time.Duration) {
	sent := time.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.closing), commandTimeout)
	defer cancel()
	v, err := instancesScript.Run(ctx, r.client, []string{r.prefix + "{instances}"}, r.id, micros(lasts), r.channel).Slice()
	if err != nil || len(v) == 0 {
		r.failed(err)
		return
	}
	answer, now := reply(v), time.Now()
	r.health.hears(answer.duration(0), sent, now)
	r.remind()
	if !r.sendUnsent() {
		return
	}
	if r.health.returns(now) {
		r.log.Info("Redis answers; pace is shared with other instances")
	}
	instances := make([]string, len(v)-1)
	for i := range instances {
		instances[i] = answer.text(i + 1)
	}
	r.health.meets(instances, now)
}

// failed notes a command that was not answered as it should be, for whatever reason.
func (r *Redis) failed(err error) {
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

// connected looks at each new connection whose server it is: one that was restarted, or takes over from another, may
// have forgotten something. A server that does not tell is believed, since it may lack the command or the right to it.
func (r *Redis) connected(ctx context.Context, conn *redis.Conn) error {
	info, err := conn.Info(ctx, "server").Result()
	if err != nil {
		return nil
	}
	now, run := time.Now(), infoField(info, "run_id")
	uptime, err := strconv.Atoi(infoField(info, "uptime_in_seconds"))
	if err == nil && run != "" && r.health.serves(run, now.Add(-time.Duration(uptime)*time.Second), now) {
		r.forgetful.Store(true)
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
func (r *Redis) listen() {
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
func (r *Redis) confirm(messages *redis.PubSub) {
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
