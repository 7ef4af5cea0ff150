package main

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"os"
	"reflect"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/hostset"
	"github.com/robotsproxy/robotsproxy/internal/settings"
	"github.com/robotsproxy/robotsproxy/robots"
)

// reload puts next in force, except for the keys that need a restart, and reads the files that it names again. Lanes,
// the cache, connections and waiting requests stay. It returns what has changed. If next or a file is wrong, it changes
// nothing.
func (c *components) reload(next *config.Config) ([]settings.Change, error) {
	c.reloading.Lock()
	defer c.reloading.Unlock()
	now := c.control.inForce.Load()
	merged, changes, err := now.cfg.Merge(next)
	if err != nil {
		return nil, usage(err)
	}
	contents := readContents(merged)
	changed := changedContents(c.contents, contents, merged)
	r, err := c.prepare(now, merged, contents)
	if err != nil {
		return nil, err
	}
	if err := c.control.apply(r.replace); err != nil {
		return nil, err
	}
	c.commit(now, r)
	c.contents = contents
	return append(changes, changed...), nil
}

// replacement holds the parts of a new configuration. They are made before any part in force is replaced.
type replacement struct {
	inputs
	fallible []func() error // replace parts that check what they get
	own      ownFiles
	cache    robots.CacheOptions
}

// prepare makes the replacement for a configuration.
func (c *components) prepare(now *inputs, cfg *config.Config, contents map[string]string) (r replacement, err error) {
	r.inputs = *now
	r.cfg = cfg
	if now.cfg.Limits != cfg.Limits {
		r.limits = newLimits(cfg, c.control.log)
	}
	same := func(path string) bool { return contents[path] == c.contents[path] }
	if err := r.readUsers(now, same(cfg.Auth.HtpasswdFile)); err != nil {
		return r, err
	}
	unchanged := maps.Clone(now.lists)
	maps.DeleteFunc(unchanged, func(path string, _ *hostset.Set) bool { return !same(path) })
	if r.lists, err = readHostLists(cfg, unchanged); err != nil {
		return r, err
	}
	if r.signers, err = newSigners(cfg); err != nil {
		return r, err
	}
	if !sameEgress(now.cfg.Egress, cfg.Egress) || !same(cfg.Egress.CAFile) {
		r.guard = now.guard.With(guardOptions(cfg))
		if r.transport, err = newTransport(cfg, r.guard, c.pseudonym); err != nil {
			return r, err
		}
	}
	if r.own, err = readOwn(cfg.Hosts); err != nil {
		return r, err
	}
	if r.cache, err = cacheOptions(cfg, r.transport, c.fetchOptions(cfg)); err != nil {
		return r, err
	}
	if c.certificates != nil {
		r.fallible = append(r.fallible, c.certificates.Reload)
	}
	r.fallible = append(r.fallible, func() error { return c.limiter.Reload(limiterOptions(cfg)) })
	return r, r.compile()
}

// readUsers reads the file of passwords, unless its content is the same: the passwords that were right are remembered.
func (r *replacement) readUsers(now *inputs, same bool) (err error) {
	if same && r.cfg.Auth.HtpasswdFile == now.cfg.Auth.HtpasswdFile {
		return checkUsers(r.cfg, r.users)
	}
	r.users, err = newUsers(r.cfg, now.users)
	return err
}

// sameEgress reports whether connections that were made by a may carry requests by b.
func sameEgress(a, b config.Egress) bool { return reflect.DeepEqual(a, b) }

// replace puts r into in. What operators have added to in since prepare stays.
func (r *replacement) replace(in *inputs) error {
	in.cfg, in.users, in.limits, in.guard, in.transport = r.cfg, r.users, r.limits, r.guard, r.transport
	in.lists, in.signers = r.lists, r.signers
	for _, replace := range r.fallible {
		if err := replace(); err != nil {
			return err
		}
	}
	return nil
}

// commit replaces the parts that do not decide about requests. It cannot fail.
func (c *components) commit(before *inputs, r replacement) {
	c.files.own.Store(&r.own)
	c.records.SetContinue(r.cfg.Audit.OnFailure == config.OnFailureContinue)
	old, now := before.cfg, r.cfg
	if r.transport != before.transport && c.addresses != nil {
		c.addresses.Reload(r.guard)
	}
	if r.transport != before.transport || old.Identity != now.Identity || old.Robots != now.Robots ||
		old.Pacing.MaxWait != now.Pacing.MaxWait {
		_ = c.files.Cache.Reload(r.cache) // cacheOptions has set Fetch
	}
	if r.transport != before.transport {
		before.transport.CloseIdleConnections()
	}
}

// readContents returns the hash of each file that cfg names and that may change without a restart, by its path. Instead
// of the hash of a file that cannot be read it returns the error.
func readContents(cfg *config.Config) map[string]string {
	contents := make(map[string]string)
	for _, file := range cfg.Files() {
		hash, err := hashFile(file.Text)
		if err != nil {
			hash = err.Error()
		}
		contents[file.Text] = hash
	}
	return contents
}

func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// changedContents returns a change for each file of cfg that was read before with other content.
func changedContents(before, now map[string]string, cfg *config.Config) (changes []settings.Change) {
	for _, file := range cfg.Files() {
		old, known := before[file.Text]
		if known && old != now[file.Text] {
			changes = append(changes, settings.Change{Key: file.Key, Text: file.Text + " has other content"})
		}
	}
	return changes
}
