package redislease

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/redistest"
)

// Versions are exact if the clock of an instance is in step with that of Redis, and else correct to half a second.
func TestVersionsWithClocksThatDiffer(t *testing.T) {
	ctx := context.Background()
	right := newRedis(t, Options{URL: redistest.Start(t).URL()}).Values()
	now := time.Now().UTC().Truncate(time.Microsecond)
	for name, ahead := range map[string]time.Duration{"fast": 5 * time.Minute, "slow": -5 * time.Minute, "in step": 0} {
		h := newHealth(name, now)
		h.setClock(time.Duration(now.UnixNano())-ahead, now, now) // time.Now is that of the instance
		h.rise(now)
		values := &Values{client: &Client{prefix: right.client.prefix, health: h}, redis: right.redis, turns: right.turns}
		if err := values.Put(ctx, name, now.Add(ahead), []byte("x"), time.Minute, ""); err != nil {
			t.Fatal(err)
		}
		for v, want := range map[*Values]time.Time{right: now, values: now.Add(ahead)} {
			version, data, err := v.Get(ctx, name)
			if err != nil || !bytes.Equal(data, []byte("x")) || !version.Equal(want) {
				t.Errorf("%s: Get = %v, %q, %v, want %v", name, version, data, err, want)
			}
		}
	}
}

// A value that is no version, and one of the future, count as none.
func TestVersionsThatAreDamaged(t *testing.T) {
	ctx := context.Background()
	server := redistest.Start(t)
	values := newRedis(t, Options{URL: server.URL()}).Values()
	for _, version := range []string{"x", "nan", "inf", "9000000000000000000", ""} {
		server.Do("DEL " + values.key("a"))
		server.Do(`HSET ` + values.key("a") + ` data old version "` + version + `"`)
		if got, data, err := values.Get(ctx, "a"); err != nil || !got.IsZero() || len(data) > 0 {
			t.Errorf("version %q: Get = %v, %q, %v", version, got, data, err)
		}
		if err := values.Put(ctx, "a", time.Now(), []byte("new"), time.Minute, ""); err != nil {
			t.Fatal(err)
		}
		if _, data, err := values.Get(ctx, "a"); err != nil || string(data) != "new" {
			t.Errorf("version %q: after a Put Get = %q, %v", version, data, err)
		}
		if err := values.Delete(ctx, "a", time.Minute, ""); err != nil {
			t.Fatal(err)
		}
		if got, data, err := values.Get(ctx, "a"); err != nil || got.IsZero() || len(data) > 0 {
			t.Errorf("version %q: after a Delete Get = %v, %q, %v", version, got, data, err)
		}
	}
}
