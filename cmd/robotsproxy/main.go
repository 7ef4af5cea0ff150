// Command robotsproxy is a forward HTTP proxy that makes any crawler polite. It judges every request by the origin's
// robots.txt, paces it by the Crawl-delay, refuses it with the reason if it is disallowed, and records it.
//
// # Commands
//
//	robotsproxy demo                   show the proxy at work on sample sites, with its dashboard
//	robotsproxy serve                  run the proxy, without a configuration on 127.0.0.1:3128
//	eval "$(robotsproxy env)"          send the programs of this shell through it, HTTPS included
//	robotsproxy run -- scrapy crawl news
//	                                   run one program through its own proxy, with a summary at the end;
//	                                   with --sealed, it has no other network
//	robotsproxy check https://a.example/x -A NewsBot
//	                                   check whether NewsBot may fetch a URL, and which line of robots.txt decides
//	robotsproxy lint FILE|URL|-        find likely mistakes in a robots.txt
//	robotsproxy plan URLS.txt -A NewsBot
//	                                   what becomes of the URLs of a list, and how long a crawl of them takes
//	robotsproxy sitemaps HOST          the sitemaps that a robots.txt names
//	robotsproxy cache ls|show HOST|refresh HOST|purge HOST
//	                                   the robots.txt files that a running proxy keeps
//	robotsproxy watch HOST...          report changes of robots.txt files, with the requests that they decide otherwise
//	robotsproxy healthcheck            exit with 0 if a running proxy is ready
//	robotsproxy status                 the state of a running proxy, and its decisions since the start
//	robotsproxy top                    watch its hosts: refusals, queues, pauses
//	robotsproxy stop HOST|slow HOST DELAY|bypass [HOST]|resume [HOST]|interventions
//	                                   what a running proxy does with a host now, with a reason and an end
//	robotsproxy audit [list|top|summary|explain ID|would-deny|usage]
//	                                   the records: which requests were refused or delayed, and why
//	robotsproxy ca show|path|export|install|uninstall|rotate
//	                                   the certificate that clients must trust
//	robotsproxy upgrade                replace a running proxy by its new program, without a gap
//	robotsproxy validate --config FILE check a configuration, and report all errors at once
//	robotsproxy version
//	robotsproxy completion SHELL
//	robotsproxy man DIR                write the manual pages
//
// # Configuration
//
// Every command reads the file of --config, then variables (ROBOTSPROXY_ROBOTS_ERROR_TTL sets robots.error_ttl), then
// its flags. A later source replaces an earlier one. The file config.example.yaml describes all keys.
//
// # Files
//
// The data directory (data_dir) has the CA and its key, the admin token and address, the records (audit.jsonl) and the
// database of robots.txt files (state.db). It is $XDG_STATE_HOME/robotsproxy or ~/.local/state/robotsproxy, and for root
// /var/lib/robotsproxy.
//
// # Signals
//
// After SIGTERM or an interrupt, serve accepts no new connections and waits for the requests in progress, at most for
// the time of the key grace. A second signal ends it at once, with status 130. After SIGUSR1, serve reopens the file of
// the records by its name.
//
// # Output and exit status
//
// Data goes to standard output, all messages to standard error. The exit status is
//
//	0    success
//	1    the answer is no, or the command failed
//	2    an error in the command line or the configuration
//	3    no instance is running
//	4    the answer is unknown, for example because a robots.txt could not be fetched
//	130  after an interrupt
//
// The exit status of run is that of its program, or 127 if the program does not exist, 126 if it cannot be run, and 125
// if robotsproxy failed.
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

// stdio holds the standard streams of a command.
type stdio struct {
	in  io.Reader
	out io.Writer // data
	err io.Writer // messages
}

// Exit statuses.
const (
	exitNo          = 1
	exitUsage       = 2
	exitNotRunning  = 3
	exitUnknown     = 4
	exitInterrupted = 130
	exitFailed      = 125 // run: robotsproxy failed
	exitPipe        = 141 // as that of a program that SIGPIPE ends
	exitCannotRun   = 126 // run: the program cannot be run
	exitNoCommand   = 127 // run: the program does not exist
)

// exitError is an error with an exit status. If err is nil, no message is printed.
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

// usage returns err with the exit status for an error in the command line or the configuration.
func usage(err error) error { return &exitError{exitUsage, err} }

// run executes a command line and returns the exit status.
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
