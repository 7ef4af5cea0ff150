package config

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Options say where to read.
type Options struct {
	Path      string     // of the YAML file. If empty, none is read
	Env       []string   // as os.Environ returns it; HOME and XDG_STATE_HOME place the data directory. If nil, no variable is set
	Overrides []Override // flags. The last for a key wins
}

// Override is a value that goes before all others, such as a flag's.
type Override struct {
	Key    string // robots.ttl
	Value  string // as in a variable: a list is split at commas
	Source string // who says so, for faults: "--robots-ttl"
}

// Load reads o into one Config, checked as a whole. Its error is either Faults, which are all there are, or that the
// file cannot be read. Warnings are returned beside an error too.
func Load(o Options) (*Config, []Warning, error) { return load(o, time.Now(), os.Geteuid()) }

func load(o Options, now time.Time, uid int) (*Config, []Warning, error) {
	l := newLoader()
	if o.Path != "" {
		data, err := readFile(o.Path)
		if err != nil {
			return nil, nil, fmt.Errorf("config: %w", err)
		}
		l.readYAML(o.Path, data)
	}
	l.readEnv(o.Env)
	for _, set := range o.Overrides {
		l.set(set.Key, set.Value, set.Source)
	}
	l.placeData(o.Env, uid)
	l.check(now)
	if len(l.faults) > 0 {
		l.faults.sort()
		return nil, l.warnings, l.faults
	}
	return l.cfg, l.warnings, nil
}

// maxFile bounds the memory and time a file can cost: about 250 octets of memory and 2 µs for each of its own, in the worst case.
const maxFile = 1 << 20

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s is larger than %s", path, Size(maxFile))
	}
	return data, nil
}

// loader is a Config that is being filled, with what was wrong so far.
type loader struct {
	cfg      *Config
	source   string // of what is being read
	dir      string // that relative paths in it are relative to
	faults   Faults
	warnings []Warning
	bad      map[string]bool // keys with a fault, and all that enclose them
}

func newLoader() *loader {
	cfg := Default()
	cfg.origins = map[string]Origin{}
	return &loader{cfg: &cfg, bad: map[string]bool{}}
}

// fault reports what is wrong with the value of key, at the place that set it.
func (l *loader) fault(key, format string, args ...any) {
	l.faultAt(l.at(key), key, format, args...)
}

func (l *loader) faultAt(at Origin, key, format string, args ...any) {
	if len(l.faults) == maxFaults {
		return
	}
	for k := key; k != ""; k = enclosing(k) {
		l.bad[k] = true
	}
	l.faults = append(l.faults, Fault{at, key, fmt.Sprintf(format, args...)})
}

func (l *loader) warn(key, format string, args ...any) {
	l.warnings = append(l.warnings, Warning{l.at(key), key, fmt.Sprintf(format, args...)})
}

// at returns where key was set. A key that an entry of a list lacks is where the entry is.
func (l *loader) at(key string) Origin {
	o, ok := l.cfg.origins[key]
	if !ok && strings.Contains(key, "[") {
		return l.at(enclosing(key))
	}
	return o
}

// ok reports whether the values of keys are as they were written, so that it makes sense to judge them together.
func (l *loader) ok(keys ...string) bool {
	return !slices.ContainsFunc(keys, func(k string) bool { return l.bad[k] })
}

const envPrefix = "ROBOTSPROXY_"

// readEnv takes the variables that are ours. An empty one counts as not set, since Compose files and unit files pass
// those on. An unknown one is no fault: Kubernetes sets such for a service of our name.
func (l *loader) readEnv(env []string) {
	keys, names := topKeys(), []string{}
	for _, k := range keys {
		names = append(names, strings.ReplaceAll(k, ".", "_"))
	}
	for _, entry := range slices.Sorted(slices.Values(env)) {
		variable, value, _ := strings.Cut(entry, "=")
		name, ours := strings.CutPrefix(variable, envPrefix)
		if !ours || value == "" {
			continue
		}
		i := slices.IndexFunc(names, func(n string) bool { return strings.ToUpper(n) == name })
		if i >= 0 {
			l.set(keys[i], value, variable)
			continue
		}
		text := "an unknown variable, ignored"
		if near := Suggest(strings.ToLower(name), names); near != "" {
			text += "; did you mean " + envPrefix + strings.ToUpper(near) + "?"
		}
		l.warnings = append(l.warnings, Warning{Origin{Source: variable}, "", text})
	}
}

// placeData fills in the data directory as the XDG Base Directory Specification has it for state, where a path that is
// not absolute is ignored, and as the Filesystem Hierarchy Standard has it for a service that runs as root.
func (l *loader) placeData(env []string, uid int) {
	if l.cfg.DataDir != "" || !l.ok("data_dir") {
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
		l.fault("data_dir", "expected a path, since neither XDG_STATE_HOME nor HOME says where data belongs")
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
