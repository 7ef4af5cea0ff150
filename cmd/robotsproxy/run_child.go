package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/internal/sealed"
)

// child is the program of run.
type child struct {
	name    string
	cmd     *exec.Cmd
	sealed  *sealed.Program // nil without --sealed
	started bool
}

// newChild returns the command at path with args.
func newChild(ctx context.Context, std stdio, path string, args []string) *child {
	cmd := exec.CommandContext(ctx, path, args[1:]...)
	cmd.Args[0] = args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = std.in, std.out, std.err
	return &child{name: args[0], cmd: cmd}
}

// sealedStage is the command that becomes a sealed program.
const sealedStage = "sealed-stage"

func newSealedStage() *cobra.Command {
	return &cobra.Command{
		Use:                sealedStage,
		Short:              "Become the program of run --sealed",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			return &exitError{exitFailed, sealed.Stage(args)}
		},
	}
}

// seal gives the child a network of its own. The caller must close c.sealed.
func (c *child) seal() (err error) {
	if c.cmd.Err != nil {
		return c.cannotRun(c.cmd.Err)
	}
	if c.sealed, err = sealed.Prepare(c.cmd, sealedStage); err != nil {
		return &exitError{exitFailed, err}
	}
	return nil
}

func (c *child) cannotRun(err error) error {
	return &exitError{exitCannotRun, fmt.Errorf("%s cannot be run: %w", c.name, err)}
}

// listen returns a listener that the child reaches.
func (c *child) listen() (net.Listener, error) {
	if c.sealed != nil {
		return c.sealed.Listener, nil
	}
	return net.Listen("tcp", "127.0.0.1:0")
}

// start starts the child with the variables env besides those of this process.
func (c *child) start(env []string) (err error) {
	env = append(os.Environ(), env...)
	if c.sealed != nil {
		err = c.sealed.Exec(env)
	} else {
		c.cmd.Env = env
		err = c.cmd.Start()
	}
	if err != nil {
		return c.cannotRun(err)
	}
	c.started = true
	return nil
}

// supervise runs the child to its end, with the variables env besides those of this process, and returns its exit
// status as an error, or nil for 0. The terminal sends an interrupt to the child too, so supervise ignores it there, to
// end after the child. It forwards all other signals to the child.
func (c *child) supervise(env []string) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	if err := c.start(env); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGTERM || !isTerminal(c.cmd.Stdin) {
				_ = c.cmd.Process.Signal(s) // an error means that the child has just ended
			}
		case err := <-ended:
			return childStatus(err)
		}
	}
}

// childStatus returns an exitError with the status of a child, or with 128 plus the number of the signal that killed
// it, as shells do.
func childStatus(err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &exit):
		return &exitError{exitFailed, err}
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return &exitError{code: 128 + int(status.Signal())}
	}
	return &exitError{code: exit.ExitCode()}
}
