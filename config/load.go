package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/settings"
)

// Options are the sources of a Config.
type Options struct {
	// Path is the path of the YAML file. If empty, no file is read.
	Path string

	// Env holds variables, as os.Environ returns them. HOME and XDG_STATE_HOME determine the data directory. If nil, no
	// variable is set.
	Env []string

	// Overrides are set after all other sources. The last one of a key wins.
	Overrides []Override
}

// Override is the value of a flag.
type Override struct {
	Key    string // robots.ttl
	Value  string // as in a variable: a list is split at commas
	Source string // the flag, for problems: "--robots-ttl"
}

const envPrefix = "ROBOTSPROXY_"

var schema = settings.NewSchema(Config{}, scalars, texts).WithRemoved(map[string]string{
	"pacing.ip_delay":   "use pacing.key: ip, with which all hosts at one address share one pace",
	"pacing.ip_exempt":  "delete the key; pacing.key: ip, which replaces pacing.ip_delay, has no exceptions",
	"pacing.redirects":  "a request that follows a redirect waits for the Delay as every other; delete the key",
	"pacing.visit_time": "Visit-time is not obeyed any more; delete the key",
})

// Load returns the Config of o. Its error wraps settings.Problems, which holds all problems, unless the file cannot be
// read. It returns warnings beside an error too.
func Load(o Options) (*Config, []settings.Warning, error) { return load(o, time.Now(), os.Geteuid()) }

func load(o Options, now time.Time, uid int) (*Config, []settings.Warning, error) {
	l, err := read(o, now, uid)
	if err != nil {
		return nil, nil, err
	}
	return l.result()
}

// LoadFor is Load for a program that uses the values of some keys only. Problems of other keys are warnings, unless the
// file cannot be read as YAML.
func LoadFor(o Options, keys ...string) (*Config, []settings.Warning, error) {
	l, err := read(o, time.Now(), os.Geteuid())
	if err != nil {
		return nil, nil, err
	}
	var problems settings.Problems
	if !errors.As(l.Err(), &problems) || !l.OK(keys...) ||
		slices.ContainsFunc(problems, func(p settings.Problem) bool { return p.Key == "" }) {
		return l.result()
	}
	warnings := l.Warnings()
	for _, p := range problems {
		warnings = append(warnings, settings.Warning(p))
	}
	return l.cfg, warnings, nil
}

// read reads and checks the sources of o.
func read(o Options, now time.Time, uid int) (*loader, error) {
	l := newLoader()
	if o.Path != "" {
		if err := l.ReadFile(o.Path); err != nil {
			return nil, fmt.Errorf("config: %w", err)
		}
	}
	l.ReadEnv(envPrefix, o.Env)
	for _, set := range o.Overrides {
		l.Set(set.Key, set.Value, set.Source)
	}
	l.placeData(o.Env, uid)
	l.check(now)
	return l, nil
}

// result returns the Config, unless it has problems.
func (l *loader) result() (*Config, []settings.Warning, error) {
	if err := l.Err(); err != nil {
		return nil, l.Warnings(), fmt.Errorf("config: %w", err)
	}
	l.cfg.origins = l.Origins()
	return l.cfg, l.Warnings(), nil
}

// loader fills a Config and checks it.
type loader struct {
	*settings.Decoder
	cfg *Config
}

func newLoader() *loader {
	cfg := Default()
	return &loader{Decoder: schema.NewDecoder(&cfg), cfg: &cfg}
}

// placeData sets the data directory if no source did: the place for state of the XDG Base Directory Specification,
// which ignores relative paths, and for root that of the Filesystem Hierarchy Standard.
func (l *loader) placeData(env []string, uid int) {
	if l.cfg.DataDir != "" || !l.OK("data_dir") {
		return
	}
	state, home := lookup(env, "XDG_STATE_HOME"), lookup(env, "HOME")
	switch {
	case filepath.IsAbs(state):
		l.cfg.DataDir = filepath.Join(state, "robotsproxy")
	case uid == 0:
		l.cfg.DataDir = "/var/lib/robotsproxy"
	case filepath.IsAbs(home):
		l.cfg.DataDir = filepath.Join(home, ".local", "state", "robotsproxy")
	default:
		l.Reject("data_dir", "expected a path, since neither XDG_STATE_HOME nor HOME is set")
	}
}

func lookup(env []string, name string) string {
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

// Values returns every key with its value and the place that set it, in the order of Config. It returns the keys of an
// entry of clients, hosts and exemptions only if the entry sets them.
func (c *Config) Values() []settings.Value { return schema.Values(*c, c.origins) }

// IsSet reports whether a source has set key: the value is not the default.
func (c *Config) IsSet(key string) bool { _, set := c.origins[key]; return set }
