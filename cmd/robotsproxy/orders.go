package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/proxy"
	"github.com/robotsproxy/robotsproxy/store"
)

// orders are what operators have added to the configuration while the proxy runs. After an upgrade, the process that
// serves passes them to those that still answer their last requests.
type orders struct {
	Interventions []policy.Intervention
	Exemptions    []store.Exemption
}

func (in *inputs) orders() orders { return orders{in.interventions, in.exemptions} }

var errHandedOver = errors.New("another process has replaced this one; try again")

// order makes a change that an operator orders, here and in the process that this one has replaced, and ends the
// requests that it stops.
func (c *control) order(with func(*inputs) error) (proxy.Ended, error) {
	c.ordering.Lock()
	defer c.ordering.Unlock()
	if c.handedOver {
		return proxy.Ended{}, errHandedOver
	}
	if err := c.apply(with); err != nil {
		return proxy.Ended{}, err
	}
	return c.endStopped(), nil
}

// follow puts the orders of the process that has replaced this one in force.
func (c *control) follow(o orders) (proxy.Ended, error) {
	c.ordering.Lock()
	defer c.ordering.Unlock()
	err := c.apply(func(in *inputs) error {
		in.interventions, in.exemptions = o.Interventions, o.Exemptions
		return nil
	})
	if err != nil {
		return proxy.Ended{}, err
	}
	return c.endStopped(), nil
}

// endStopped ends the requests that are stopped, here and in the process that this one has replaced.
func (c *control) endStopped() proxy.Ended {
	c.fetches.EndStopped()
	ended := c.server.EndStopped()
	if c.prior == nil {
		return ended
	}
	more, err := c.prior.follow(c.inForce.Load().orders())
	if err != nil {
		c.log.Error("the old process does not follow the operator's last order", "err", err)
	}
	ended.Answered += more.Answered
	ended.Tunnels += more.Tunnels
	ended.WebSockets += more.WebSockets
	return ended
}

// handOver passes the orders to send. If that succeeds, this process accepts no more orders from operators.
func (c *control) handOver(send func(orders) error) error {
	c.ordering.Lock()
	defer c.ordering.Unlock()
	err := send(c.inForce.Load().orders())
	c.handedOver = err == nil
	return err
}

// followTime is how long an old process may take to follow an order.
const followTime = 10 * time.Second

// oldProcess passes orders to the process that this one has replaced.
type oldProcess struct {
	control *upgradeControl
	mu      sync.Mutex // one order at a time
	replies chan upgradeMessage
}

// listen receives replies until the other process has ended.
func (p *oldProcess) listen() {
	defer close(p.control.ended)
	for {
		m, err := p.control.receive()
		if err != nil {
			return
		}
		select {
		case p.replies <- m:
		default: // it came too late
		}
	}
}

// follow makes the old process follow o. If it has ended, there is nothing to do.
func (p *oldProcess) follow(o orders) (proxy.Ended, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.control.send(upgradeMessage{Orders: &o}) != nil {
		return proxy.Ended{}, nil
	}
	select {
	case m := <-p.replies:
		if m.Error != "" {
			return proxy.Ended{}, errors.New(m.Error)
		}
		return m.Ended, nil
	case <-p.control.ended:
		return proxy.Ended{}, nil
	case <-time.After(followTime):
		return proxy.Ended{}, fmt.Errorf("it did not confirm within %v", followTime)
	}
}

// followSuccessor follows the orders of the process that has replaced this one, until that has ended.
func (s *service) followSuccessor(control *upgradeControl) {
	defer close(control.ended)
	for {
		m, err := control.receive()
		if err != nil {
			return
		}
		if m.Orders == nil {
			continue
		}
		var reply upgradeMessage
		if reply.Ended, err = s.components.control.follow(*m.Orders); err != nil {
			reply.Error = err.Error()
		}
		_ = control.send(reply)
	}
}
