// Command robotsproxy is a forward HTTP proxy that makes any crawler polite: every request that goes through it is
// judged by the origin's robots.txt, paced by its Crawl-delay, refused with a reason where it is disallowed, and
// recorded.
//
//	robotsproxy serve                          run the proxy: 127.0.0.1:3128, with no configuration at all
//	eval "$(robotsproxy env)"                  let the programs of this shell go through it, HTTPS too
//	robotsproxy run -- scrapy crawl news       or one program through a proxy of its own, with a summary at the end
//	robotsproxy check https://a.example/x -A NewsBot
//	                                           may NewsBot fetch this? which line of robots.txt says so?
//	robotsproxy lint FILE | URL | -            what in this robots.txt is not what its author meant?
//	robotsproxy cache ls | show HOST | refresh HOST | purge HOST
//	                                           the robots.txt files that a running proxy keeps
//	robotsproxy ca show | path | export | install | uninstall | rotate
//	                                           the certificate that clients must trust
//	robotsproxy validate --config FILE         is this configuration right? every fault at once
//	robotsproxy version | completion SHELL
//
// Every command reads --config FILE, then variables named ROBOTSPROXY_ and the key (ROBOTSPROXY_ROBOTS_ERROR_TTL for
// robots.error_ttl), then its flags; the later goes before the earlier.
//
// Data goes to standard output, talk to standard error. The exit status is 0 where all is well, 1 for "no", 2 for a
// fault in usage or configuration, 3 where no instance runs, 4 where the answer cannot be known, 130 after an
// interrupt. "run" ends with its child's own status: 127 where there is no such command, 126 where it cannot be run,
// 125 where robotsproxy failed.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

func main() { os.Exit(run(os.Args[1:], stdio{os.Stdin, os.Stdout, os.Stderr})) }

// stdio is where a command reads and writes.
type stdio struct {
	in  io.Reader
	out io.Writer // data
	err io.Writer // talk
}

// Exit statuses.
const (
	exitNo         = 1
	exitUsage      = 2
	exitNotRunning = 3
	exitUnknown    = 4
	exitFailed     = 125 // run: we failed
	exitCannotRun  = 126 // run: the command is there and cannot be run
	exitNoCommand  = 127 // run: there is no such command
)

// exitError is an error that ends the program with its own status. Its err may be nil: all is said already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usage marks err as a fault of whoever typed the command or wrote the configuration.
func usage(err error) error { return &exitError{exitUsage, err} }

// run carries out one command line and returns the exit status.
func run(args []string, std stdio) int {
	root := newRoot(std)
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	if err == nil {
		return 0
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		exit = &exitError{exitNo, err}
	}
	if exit.err != nil {
		fmt.Fprintf(std.err, "robotsproxy: %s\n", safetext.Lines(exit.err.Error()))
	}
	return exit.code
}
