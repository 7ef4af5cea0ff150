package redislease

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// commandTimeout is how long one command, or one dial, may take before Redis counts as down.
const commandTimeout = time.Second

// poolSize exceeds the number of connections in use, which is one for each pipe and one for the probe, so the probe
// never waits for one. After poolSize failed dials, go-redis dials only once a second.
const poolSize = 64

// silence disables the logger of go-redis, which is global and writes every broken connection to stderr.
var silence = sync.OnceFunc(logging.Disable)

// dial returns a client for raw, which is one of
//
//	redis://user:password@host:6379/0                            one server; rediss:// over TLS
//	unix://user:password@/run/redis.sock?db=0                    the same, over a socket
//	redis://host:26379/0?master_name=main&addr=other:26379       servers watched by Sentinel
//	redis://host:6379?addr=other:6379&addr=third:6379            a Cluster
//
// with further parameters of go-redis, such as the password of the server that a Sentinel names, or skip_verify. The
// client tries nothing twice, except that of a Cluster: see unrepeated. It calls onConnect with each new connection. No
// error contains raw, which may hold a password.
func dial(raw string, onConnect func(context.Context, *redis.Conn) error) (redis.UniversalClient, error) {
	silence()
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("it is not a URL")
	}
	q, timeout := u.Query(), commandTimeout.String()
	for name, value := range map[string]string{
		"dial_timeout": timeout, "read_timeout": timeout, "write_timeout": timeout,
		"max_retries": "-1", "pool_size": strconv.Itoa(poolSize),
	} {
		q.Set(name, value)
	}
	u.RawQuery = q.Encode()
	switch {
	case q.Has("master_name"):
		o, err := redis.ParseFailoverURL(u.String())
		if err != nil {
			return nil, err
		}
		o.OnConnect, o.DialerRetries, o.ContextTimeoutEnabled = onConnect, 1, true
		return redis.NewFailoverClient(o), nil
	case q.Has("addr"):
		o, err := redis.ParseClusterURL(u.String())
		if err != nil {
			return nil, err
		}
		o.OnConnect, o.DialerRetries, o.ContextTimeoutEnabled = onConnect, 1, true
		return redis.NewClusterClient(o), nil
	default:
		o, err := redis.ParseURL(u.String())
		if err != nil {
			return nil, err
		}
		o.OnConnect, o.DialerRetries, o.ContextTimeoutEnabled = onConnect, 1, true
		return redis.NewClient(o), nil
	}
}
