package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/robotsproxy/robotsproxy/config"
)

// inheritanceVar is the environment variable by which an old process describes the descriptors that it passes on.
const inheritanceVar = "UPGRADE_FDS"

// inheritance is the value of inheritanceVar, in JSON. The descriptors are those of the control connection, of the
// connection for the lanes, and of the sockets.
type inheritance struct {
	Pace    string // see paceName
	Sockets []socketName
	Managed map[string]string // see sockets
}

// socketName identifies a listener: the key of the configuration, and the address that was configured.
type socketName struct{ Key, Address string }

const (
	controlFD = 3 + iota
	lanesFD
	firstSocketFD
)

// paceName names what lanes depend on: what a lane is, and who else shares it. A process can take over the lanes of
// another only if it is the same.
func paceName(cfg *config.Config) string {
	name := "pacing.key " + string(cfg.Pacing.Key)
	if cfg.Redis.URL != "" || cfg.Redis.URLFile != "" {
		name += " with redis"
	}
	return name
}

// predecessor is the process that this one replaces.
type predecessor struct {
	inheritance
	control *upgradeControl
	lanes   net.Conn
	sockets map[socketName]net.Listener
}

// inherit returns the process that has started this one to replace it, or nil.
func inherit() (_ *predecessor, err error) {
	text, ok := os.LookupEnv(inheritanceVar)
	if !ok {
		return nil, nil
	}
	_ = os.Unsetenv(inheritanceVar) // so that no child believes it
	p := &predecessor{sockets: make(map[socketName]net.Listener)}
	if err := json.Unmarshal([]byte(text), &p.inheritance); err != nil {
		return nil, fmt.Errorf("reading the variable %s, which only robotsproxy may set: %w", inheritanceVar, err)
	}
	control, err := inheritedConn(controlFD)
	if err != nil {
		return nil, err
	}
	p.control = newUpgradeControl(control)
	if p.lanes, err = inheritedConn(lanesFD); err != nil {
		return nil, err
	}
	for i, name := range p.Sockets {
		if p.sockets[name], err = inheritedListener(firstSocketFD + i); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func inheritedConn(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "connection to the old process")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("using descriptor %d of the old process: %w", fd, err)
	}
	return c, nil
}

func inheritedListener(fd int) (net.Listener, error) {
	f := os.NewFile(uintptr(fd), "listener of the old process")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("using descriptor %d of the old process: %w", fd, err)
	}
	return l, nil
}

// fail tells the old process why this one cannot replace it.
func (p *predecessor) fail(err error) {
	_ = p.control.send(upgradeMessage{Error: err.Error()}) // the old process may have ended
}

// takeOver makes s the process that paces and serves. It returns when the old process has handed over, or has ended
// after it had handed over its lanes.
func (p *predecessor) takeOver(s *service) error {
	if pace := paceName(s.cfg); pace != p.Pace {
		return fmt.Errorf("an upgrade cannot change pacing.key or begin to use redis: "+
			"the running process has %s, and the new one %s; restart robotsproxy", p.Pace, pace)
	}
	if err := p.control.send(upgradeMessage{Ready: true, Version: buildVersion()}); err != nil {
		return fmt.Errorf("taking over from the old process: %w", err)
	}
	if s.components.redis != nil {
		p.lanes.Close()
	} else if err := s.components.limiter.TakeOver(p.lanes); err != nil {
		return err
	}
	m, err := p.control.receive()
	if err != nil {
		return nil
	}
	return p.accept(s, m)
}

// accept makes s serve with the orders in m.
func (p *predecessor) accept(s *service, m upgradeMessage) error {
	if !m.Serve || m.Orders == nil {
		return errors.New("the old process continues to serve")
	}
	control := s.components.control
	if _, err := control.follow(*m.Orders); err != nil {
		s.log.Error("the operator's orders of the old process are not in force", "err", err)
	}
	prior := &oldProcess{control: p.control, replies: make(chan upgradeMessage, 1)}
	go prior.listen()
	control.ordering.Lock()
	defer control.ordering.Unlock()
	control.prior = prior
	return nil
}

// closeUnused closes the inherited sockets for which the configuration has no use any more.
func (p *predecessor) closeUnused() {
	for name, l := range p.sockets {
		delete(p.sockets, name)
		l.Close()
	}
}
