package main

import (
	"cmp"
	"fmt"
	"reflect"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/settings"
	"github.com/robotsproxy/robotsproxy/proxy"
	"github.com/robotsproxy/robotsproxy/sign"
)

// signers are those of a configuration. They do not change.
type signers struct {
	all    *sign.Signer            // nil: none
	byName map[string]*sign.Signer // those of clients
	agent  string                  // of all
	keys   *sign.Keys              // of that agent, those of clients included; nil: none
}

// newSigners reads the keys of the sections sign.
func newSigners(cfg *config.Config) (s signers, err error) {
	if s.all, err = newSigner("sign", cfg.Sign); err != nil {
		return s, err
	}
	s.byName = make(map[string]*sign.Signer)
	for i, c := range cfg.Clients {
		if reflect.ValueOf(c.Sign).IsZero() {
			continue
		}
		one, err := newSigner(settings.Join(settings.Item("clients", i), "sign"), clientSign(cfg, c.Sign))
		if err != nil {
			return s, err
		}
		s.byName[c.Name] = cmp.Or(one, sign.None)
	}
	if s.all != nil {
		s.agent = cfg.Sign.Agent
		s.keys, err = keysOf(cfg, s.agent)
	}
	return s, err
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

// newSigner returns nil if nothing is to be signed.
func newSigner(key string, s config.Sign) (*sign.Signer, error) {
	if s.Agent == "" || s.Agent == config.NoSigner {
		return nil, nil
	}
	keys, err := sign.LoadKeys(s.KeyFile)
	if err != nil {
		return nil, usage(fmt.Errorf("%s.key_file: %w", key, err))
	}
	signer, err := sign.New(sign.Options{
		Agent: s.Agent, Keys: keys, Hosts: s.Hosts, Form: sign.Form(s.Form), Replace: s.Existing == config.SignReplace,
	})
	if err != nil {
		return nil, usage(fmt.Errorf("%s: %w", key, err))
	}
	return signer, nil
}

// clients sets the signers of clients.
func (s signers) clients(clients []proxy.Client) []proxy.Client {
	for i := range clients {
		clients[i].Signer = s.byName[clients[i].Name]
	}
	return clients
}
