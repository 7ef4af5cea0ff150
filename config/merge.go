package config

import (
	"fmt"
	"maps"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/settings"
)

// Merge returns the Config that a proxy which runs with c has after it has read next: next, but with the values of c
// for keys that need a restart. The changes are those from c to next. Merge returns an error, which wraps
// settings.Problems, if the values do not fit together: next may rely on a key that needs a restart.
func (c *Config) Merge(next *Config) (*Config, []settings.Change, error) {
	return c.merge(next, time.Now())
}

func (c *Config) merge(next *Config, now time.Time) (*Config, []settings.Change, error) {
	changes := schema.Diff(*c, *next)
	l := newLoader()
	*l.cfg = *next
	schema.KeepRestart(l.cfg, c)
	l.SetOrigins(next.mergedOrigins(c))
	l.check(now)
	if err := l.Err(); err != nil {
		return nil, changes, fmt.Errorf("config: with the values that need a restart: %w", err)
	}
	l.cfg.origins = l.Origins()
	return l.cfg, changes, nil
}

// mergedOrigins returns the places of the values in next, or, for keys that need a restart, in c.
func (next *Config) mergedOrigins(c *Config) map[string]settings.Origin {
	merged := maps.Clone(next.origins)
	for _, v := range c.Values() {
		if !v.Restart {
			continue
		}
		delete(merged, v.Key)
		if v.Origin != (settings.Origin{}) {
			merged[v.Key] = v.Origin
		}
	}
	return merged
}

// Files returns the keys and paths of the files that c names and that are read again with the configuration: those of
// tls, and those whose key does not need a restart.
func (c *Config) Files() []settings.Value {
	files := schema.Files(*c)
	for _, f := range []settings.Value{
		{Key: "tls.cert_file", Text: c.TLS.CertFile},
		{Key: "tls.key_file", Text: c.TLS.KeyFile},
		{Key: "tls.client_ca_file", Text: c.TLS.ClientCAFile},
	} {
		if f.Text != "" {
			files = append(files, f)
		}
	}
	return files
}
