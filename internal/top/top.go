// Package top shows the hosts to which a running proxy sends requests: on a terminal as a view that follows them, else
// as text.
//
//	err := top.Run(ctx, top.Options{Proxy: proxy, In: os.Stdin, Out: os.Stdout, Interval: 2 * time.Second})
//
// The view asks the proxy anew after each interval, and goes on asking while the proxy does not answer. It changes
// nothing, unless its user stops a host or resumes it.
package top

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/robotsproxy/robotsproxy/admin"
)

// Proxy is a running proxy.
type Proxy interface {
	Sample(ctx context.Context, q Query) (*Sample, error)
	// Stop makes the proxy send nothing more to a host. It returns the effect in a sentence.
	Stop(ctx context.Context, host, reason string) (effect string, err error)
	// Resume ends the interventions of a host.
	Resume(ctx context.Context, host string) (effect string, err error)
}

// Query selects and orders hosts. Its fields are parameters of /api/v1/hosts.
type Query struct {
	Sort   string
	Host   string // a part of the name
	Window time.Duration
	Limit  int
}

// Sample is the state of a proxy at one moment.
type Sample struct {
	Time          time.Time            `json:"time"`
	Status        admin.Status         `json:"status"`
	Interventions []admin.Intervention `json:"interventions"` // in force
	admin.LaneList
}

// Options configure a view. All fields but Query and Colour are required.
type Options struct {
	Proxy    Proxy
	In       io.Reader // of the terminal
	Out      io.Writer
	Query    Query
	Interval time.Duration
	Colour   bool
}

// Run shows the view until its user ends it, or ctx ends. It returns an error if the first sample or the terminal
// fails.
func Run(ctx context.Context, o Options) error {
	m := newModel(ctx, o)
	first, err := o.Proxy.Sample(ctx, m.query)
	if err != nil {
		return err
	}
	m.take(first)
	environ := os.Environ()
	if !o.Colour {
		environ = append(environ, "NO_COLOR=1") // the library knows only some of its values
	}
	program := tea.NewProgram(m,
		tea.WithContext(ctx), tea.WithInput(o.In), tea.WithOutput(o.Out), tea.WithEnvironment(environ))
	_, err = program.Run()
	if ctx.Err() != nil || errors.Is(err, tea.ErrInterrupted) {
		return nil
	}
	return err
}
