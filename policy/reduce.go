package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// otherHosts stands for the hosts that Reduce removes from a list of allowed hosts, which must not become empty.
const otherHosts = "other-hosts.invalid"

// Reduce returns the part of a Text that concerns one canonical host and some clients: it decides their requests for that
// host as the whole does. Settings of other clients, and entries for other hosts, are not in it. So its SHA-256 is
// another one.
func Reduce(text []byte, host string, clients []string) ([]byte, error) {
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("policy: reading a policy: %w", err)
	}
	if d.Format != textFormat {
		return nil, fmt.Errorf("policy: a policy has the format %d, and this program reads %d", d.Format, textFormat)
	}
	other := func(pattern string) bool { return !MatchHost(pattern, host) }
	unknown := func(client string) bool { return client != "" && !slices.Contains(clients, client) }
	d.TunnelHosts = slices.DeleteFunc(d.TunnelHosts, other)
	d.Hosts = slices.DeleteFunc(d.Hosts, func(h hostText) bool { return other(h.Pattern) })
	d.Clients = slices.DeleteFunc(d.Clients, func(c clientText) bool { return unknown(c.Name) })
	d.Exemptions = slices.DeleteFunc(d.Exemptions, func(e exemptionText) bool { return other(e.Host) || unknown(e.Client) })
	d.Interventions = slices.DeleteFunc(d.Interventions, func(i Intervention) bool { return other(i.Host) })
	d.Access.reduce(other)
	for i := range d.ClientAccess { // whether the proxy itself may visit the host depends on all of them
		a := &d.ClientAccess[i]
		a.reduce(other)
		if unknown(a.Client) {
			a.Client = fmt.Sprintf("(another client %d)", i+1)
		}
	}
	return d.write()
}

// reduce removes the patterns of other hosts.
func (t *accessText) reduce(other func(pattern string) bool) {
	some := len(t.Allow) > 0
	t.Allow, t.Deny = slices.DeleteFunc(t.Allow, other), slices.DeleteFunc(t.Deny, other)
	if some && len(t.Allow) == 0 {
		t.Allow = []string{otherHosts}
	}
}

// write returns d as JSON.
func (d *document) write() ([]byte, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(d); err != nil {
		return nil, fmt.Errorf("policy: writing it as text: %w", err)
	}
	return text.Bytes(), nil
}
