package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/hostset"
	"github.com/robotsproxy/robotsproxy/internal/settings"
	"github.com/robotsproxy/robotsproxy/policy"
)

// hostLists are the files of the keys deny_hosts_file, by path. A file that several clients name is read once.
type hostLists map[string]*hostset.Set

// readHostLists reads the files that cfg names, except those in unchanged, which it returns too. Its error names each
// key, and the lines that are not patterns.
func readHostLists(cfg *config.Config, unchanged hostLists) (hostLists, error) {
	lists := make(hostLists)
	maps.Copy(lists, unchanged)
	err := lists.read("deny_hosts_file", cfg.DenyHostsFile)
	for i, client := range cfg.Clients {
		key := settings.Join(settings.Item("clients", i), "deny_hosts_file")
		err = errors.Join(err, lists.read(key, client.DenyHostsFile))
	}
	if err != nil {
		return nil, usage(err)
	}
	return lists, nil
}

// read adds the file of a key, unless path is empty or read already.
func (l hostLists) read(key, path string) error {
	if _, done := l[path]; path == "" || done {
		return nil
	}
	set, err := hostset.Load(path)
	l[path] = set // a nil one too: its faults are reported once
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// summary returns a line for each file, with its number of hosts.
func (l hostLists) summary() string {
	var b strings.Builder
	for _, path := range slices.Sorted(maps.Keys(l)) {
		fmt.Fprintf(&b, "deny_hosts_file %s: %d hosts\n", path, l[path].Len())
	}
	return b.String()
}

// access returns the hosts that all clients and each client may visit.
func (l hostLists) access(cfg *config.Config) (all policy.Access, clients map[string]policy.Access) {
	all = policy.Access{Allow: cfg.AllowHosts, Deny: cfg.DenyHosts, DenyFile: l[cfg.DenyHostsFile]}
	clients = make(map[string]policy.Access, len(cfg.Clients))
	for _, c := range cfg.Clients {
		clients[c.Name] = policy.Access{Allow: c.AllowHosts, Deny: c.DenyHosts, DenyFile: l[c.DenyHostsFile]}
	}
	return all, clients
}
