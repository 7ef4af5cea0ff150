package egress

import (
	"strings"

	"github.com/robotsproxy/robotsproxy/origin"
)

// patterns maps the hosts of patterns to values: "a.example" is one host, "*.example" every host below example, and "*"
// every host. The most specific pattern counts: the host itself, else the longest suffix.
type patterns[V any] struct {
	hosts map[string]V // by origin.Key
	below map[string]V // ".example" for "*.example", and "" for "*"
}

func newPatterns[V any](values map[string]V) patterns[V] {
	p := patterns[V]{hosts: make(map[string]V), below: make(map[string]V)}
	for pattern, v := range values {
		if suffix, below := strings.CutPrefix(pattern, "*"); below {
			p.below[suffix] = v
		} else {
			p.hosts[origin.Key(pattern)] = v
		}
	}
	return p
}

// find returns the value for a canonical host.
func (p patterns[V]) find(host string) (v V, ok bool) {
	host = origin.Key(host)
	if v, ok = p.hosts[host]; ok || len(p.below) == 0 {
		return v, ok
	}
	for i := range host {
		if host[i] != '.' || i == 0 {
			continue
		}
		if v, ok = p.below[host[i:]]; ok {
			return v, true
		}
	}
	v, ok = p.below[""]
	return v, ok
}
