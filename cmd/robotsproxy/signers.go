package main

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/settings"
	"github.com/robotsproxy/robotsproxy/proxy"
	"github.com/robotsproxy/robotsproxy/sign"
)

// signers are those of a configuration. They do not change.
type signers struct {
	all    *sign.Signer            // nil: none
	byName map[string]*sign.Signer // those of clients
	loaded []loadedKeys
}

// loadedKeys are the keys of a section sign.
type loadedKeys struct {
	section     string // its key in the configuration
	agent, file string
	keys        *sign.Keys
}

// newSigners reads the keys of the sections sign.
func newSigners(cfg *config.Config) (s signers, err error) {
	if s.all, err = s.load("sign", cfg.Sign); err != nil {
		return s, err
	}
	s.byName = make(map[string]*sign.Signer)
	for i, c := range cfg.Clients {
		if reflect.ValueOf(c.Sign).IsZero() {
			continue
		}
		one, err := s.load(settings.Join(settings.Item("clients", i), "sign"), clientSign(cfg, c.Sign))
		if err != nil {
			return s, err
		}
		s.byName[c.Name] = cmp.Or(one, sign.None)
	}
	return s, nil
}

// keysOf returns the keys of an agent: those of sign, and of clients that sign for the same agent.
func (s signers) keysOf(agent string) *sign.Keys {
	var all []*sign.Keys
	for _, l := range s.loaded {
		if l.agent == agent {
			all = append(all, l.keys)
		}
	}
	return sign.Merge(all...)
}

// clientSign returns the section sign of a client, with what it takes from that of cfg.
func clientSign(cfg *config.Config, s config.Sign) config.Sign {
	if s.Agent == "" && s.KeyFile == "" {
		s.KeyFile = cfg.Sign.KeyFile
	}
	s.Agent, s.Form, s.Existing = cmp.Or(s.Agent, cfg.Sign.Agent), cmp.Or(s.Form, cfg.Sign.Form), cmp.Or(s.Existing, cfg.Sign.Existing)
	if len(s.Hosts) == 0 {
		s.Hosts = cfg.Sign.Hosts
	}
	return s
}

// load returns the signer of a section, or nil if nothing is to be signed.
func (s *signers) load(section string, of config.Sign) (*sign.Signer, error) {
	if of.Agent == "" || of.Agent == config.NoSigner {
		return nil, nil
	}
	keys, err := sign.LoadKeys(of.KeyFile)
	if err != nil {
		return nil, usage(fmt.Errorf("%s.key_file: %w", section, err))
	}
	signer, err := sign.New(sign.Options{
		Agent: of.Agent, Keys: keys, Hosts: of.Hosts, Form: sign.Form(of.Form), Replace: of.Existing == config.SignReplace,
	})
	if err != nil {
		return nil, usage(fmt.Errorf("%s: %w", section, err))
	}
	s.loaded = append(s.loaded, loadedKeys{section, of.Agent, of.KeyFile, keys})
	return signer, nil
}

// unsigned says which sections have no key that signs at a time: their requests are sent without a signature.
func (s signers) unsigned(at time.Time) (faults []string) {
	for _, l := range s.loaded {
		if _, ok := l.keys.Signing(at); !ok {
			faults = append(faults, fmt.Sprintf(
				"%s: no key in %s is valid now; requests are sent without a signature: robotsproxy key ls", l.section, l.file))
		}
	}
	return faults
}

// reportUnsigned logs at the start, and when a key expires or is reloaded, which sections have no key that signs, until
// ctx ends.
func (c *control) reportUnsigned(ctx context.Context) {
	tick := time.NewTicker(time.Second) // and not a timer for the next end: the clock may be set, and keys change
	defer tick.Stop()
	var before []string
	for {
		before = c.warnUnsigned(before)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// warnUnsigned logs the faults of unsigned that are not among those before, and returns all.
func (c *control) warnUnsigned(before []string) []string {
	faults := c.inForce.Load().signers.unsigned(time.Now())
	for _, fault := range faults {
		if !slices.Contains(before, fault) {
			c.log.Warn("nothing is signed", "fault", fault)
		}
	}
	return faults
}

// clients sets the signers of clients.
func (s signers) clients(clients []proxy.Client) []proxy.Client {
	for i := range clients {
		clients[i].Signer = s.byName[clients[i].Name]
	}
	return clients
}
