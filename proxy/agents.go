package proxy

import (
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/robotsproxy/robotsproxy/rules"
)

// agents gives each User-Agent its label for records and logs: the product token of a crawler, "browser" for a browser,
// and "other" after maxAgents tokens. Clients choose their User-Agent, so nothing but text may depend on a label.
type agents struct {
	mu     sync.RWMutex      // guards labels
	labels map[string]string // by product token
}

const (
	maxAgents     = 10_000
	maxAgentBytes = 64

	browserAgent = "browser"
	otherAgent   = "other"
)

func newAgents() *agents { return &agents{labels: make(map[string]string)} }

// label returns the label of userAgent, and "" if that is empty.
func (a *agents) label(userAgent string) string {
	if userAgent == "" {
		return ""
	}
	token := agentToken(userAgent)
	if token == "" {
		return browserAgent
	}
	a.mu.RLock()
	label, known := a.labels[token]
	a.mu.RUnlock()
	if known {
		return label
	}
	return a.add(token)
}

func (a *agents) add(token string) string {
	if browsers[strings.ToLower(token)] {
		return browserAgent
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.labels[token]; !known && len(a.labels) >= maxAgents {
		return otherAgent
	}
	token = strings.Clone(token) // without the rest of the User-Agent
	a.labels[token] = token
	return token
}

// agentToken returns the product token of a User-Agent, cut to maxAgentBytes. It has letters, digits, "-", "_" and ".",
// and is empty for most browsers.
func agentToken(userAgent string) string {
	token := rules.ProductToken(userAgent)
	for len(token) > maxAgentBytes {
		_, last := utf8.DecodeLastRuneInString(token)
		token = token[:len(token)-last]
	}
	return token
}

// browsers are the names of browsers, in lower case, that are not among those that package rules ignores.
var browsers = map[string]bool{
	"headlesschrome": true, "samsungbrowser": true, "edga": true, "edgios": true, "vivaldi": true, "yabrowser": true,
	"ucbrowser": true, "brave": true, "duckduckgo": true, "gsa": true, "seamonkey": true, "epiphany": true,
}
