package redislease

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// commandTimeout is how long one command, or one dial, may take before Redis counts as down.
const commandTimeout = time.Second

// poolSize exceeds the number of connections in use, which is one for each pipe and one for the probe, so the probe never
// waits for one. After poolSize failed dials, go-redis dials only once a second.
const poolSize = 64

// quiet silences go-redis, which writes to stderr whatever happens to a connection: what matters is in our own log. The
// logger is one for the whole process.
var quiet = sync.OnceFunc(logging.Disable)

// newRedisClient returns a client for raw, which is one of
//
//	redis://user:password@host:6379/0                            one server; rediss:// over TLS
//	unix://user:password@/run/redis.sock?db=0                    the same, over a socket
//	redis://host:26379/0?master_name=main&addr=other:26379       servers watched by Sentinel
//	redis://host:6379?addr=other:6379&addr=third:6379            a Cluster
//
// and further parameters of go-redis (password of the server behind a Sentinel, skip_verify). Nothing is tried
// twice, except by the client of a Cluster: see once. onConnect is called with each new connection. No error repeats raw, which may hold a password.
func newRedisClient(raw string, onConnect func(context.Context, *redis.Conn) error) (redis.UniversalClient, error) {
	quiet()
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("it is no URL")
	}
	const once = -1
	switch q := u.Query(); {
	case q.Has("master_name"):
		o, err := redis.ParseFailoverURL(raw)
		if err != nil {
			return nil, err
		}
		o.OnConnect, o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = onConnect, once, 1, true
		o.PoolSize = poolSize
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = commandTimeout, commandTimeout, commandTimeout
		return redis.NewFailoverClient(o), nil
	case q.Has("addr"):
		o, err := redis.ParseClusterURL(raw)
		if err != nil {
			return nil, err
		}
		o.OnConnect, o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = onConnect, once, 1, true
		o.PoolSize = poolSize
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = commandTimeout, commandTimeout, commandTimeout
		return redis.NewClusterClient(o), nil
	default:
		o, err := redis.ParseURL(raw)
		if err != nil {
			return nil, err
		}
		o.OnConnect, o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = onConnect, once, 1, true
		o.PoolSize = poolSize
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = commandTimeout, commandTimeout, commandTimeout
		return redis.NewClient(o), nil
	}
}
