package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/clientenv"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

func newRun(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARG...]",
		Short: "Run one program through a proxy of its own",
		Long: `Run one program through a proxy of its own, on a free port: the variables that "robotsproxy env" prints are set for it,
and it trusts our CA. It ends with the program's own exit status; at the end it says on standard error what was blocked,
by which rule, and how long was waited.`,
		Example: "  robotsproxy run -- scrapy crawl news\n  robotsproxy run --mode report -- wget --mirror https://a.example/",
		Args:    cobra.ArbitraryArgs,
	}
	cmd.Flags().SetInterspersed(false) // what follows the command's name is the command's
	settings := configFlags(cmd, "mode")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage(errors.New("run needs a command: robotsproxy run -- COMMAND [ARG...]"))
		}
		cfg, err := settings.load(cmd, std)
		if err != nil {
			return &exitError{exitFailed, err} // its own statuses are the child's
		}
		return runChild(cmd.Context(), cfg, std, args)
	}
	return cmd
}

// runChild runs args through a private proxy. Its error carries the child's exit status.
func runChild(ctx context.Context, cfg *config.Config, std stdio, args []string) error {
	path, err := findCommand(args[0])
	if err != nil {
		return err
	}
	counts := newTally()
	private, err := startPrivate(cfg, std, counts)
	if err != nil {
		return &exitError{exitFailed, err}
	}
	child := exec.CommandContext(ctx, path, args[1:]...)
	child.Args[0] = args[0]
	child.Stdin, child.Stdout, child.Stderr = std.in, std.out, std.err
	child.Env = append(os.Environ(), private.env...)
	status := supervise(child)
	if err := private.stop(cfg.Grace); err != nil {
		fmt.Fprintf(std.err, "robotsproxy: %s\n", safetext.Lines(err.Error()))
	}
	if child.ProcessState != nil { // it has run
		counts.report(std.err, args[0])
	}
	return status
}

// findCommand looks name up before anything is started.
func findCommand(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil || errors.Is(err, exec.ErrDot):
		return path, nil
	case errors.Is(err, fs.ErrPermission):
		return "", &exitError{exitCannotRun, fmt.Errorf("%s cannot be run: %w", name, err)}
	default:
		return "", &exitError{exitNoCommand, fmt.Errorf("there is no command %q", name)}
	}
}

// private is a proxy for one child.
type private struct {
	parts  *parts
	served chan error
	env    []string
	dir    string // of wget's configuration, which names the child's proxy; the other files are in the data directory
}

func startPrivate(cfg *config.Config, std stdio, counts *tally) (_ *private, err error) {
	cfg.Log.Level = max(cfg.Log.Level, slog.LevelWarn) // the child's own output is what its user wants to see
	cfg.Clients, cfg.Auth = nil, config.Auth{}         // they are for the configured listener; this one is the child's alone
	p := &private{served: make(chan error, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.dir, err = os.MkdirTemp("", "robotsproxy-run-"); err != nil {
		return nil, fmt.Errorf("making a folder for the child: %w", err)
	}
	log := newLog(std.err, cfg.Log)
	parts, err := newParts(cfg, log, counts.observe)
	if err != nil {
		return nil, err
	}
	p.parts = parts
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening on a free port: %w", err)
	}
	_ = checkUpstream(parts.guard, func(err error) { log.Warn(notResolved, "err", err) }) // a free port is nobody's upstream proxy
	if err := p.prepare(std, cfg.DataDir, l.Addr().String()); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	go func() { p.served <- p.parts.server.Serve(l) }()
	return p, nil
}

// prepare sets the child's environment, for a proxy at listen.
func (p *private) prepare(std stdio, dataDir, listen string) error {
	vars, err := clientenv.Write(clientenv.Options{Listen: listen, CA: p.parts.ca.PEM(), Dir: dataDir, WgetDir: p.dir})
	if err != nil {
		return err
	}
	warnReplaced(std, vars)
	for _, v := range vars {
		p.env = append(p.env, v.Name+"="+v.Value)
	}
	return nil
}

// stop ends the proxy when the child has ended: what the child left open is nobody's any more.
func (p *private) stop(grace time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), min(grace, time.Second))
	defer cancel()
	_ = p.parts.server.Shutdown(ctx) // what is cut off was the child's, and it is gone
	return errors.Join(<-p.served, p.close())
}

func (p *private) close() (err error) {
	if p.parts != nil {
		err = p.parts.close()
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

// supervise runs child to its end and returns its exit status as an error, or nil for 0. An interrupt at the terminal
// reaches the child by itself, and here must only not end us before it. Every other signal is for us, and is passed on.
func supervise(child *exec.Cmd) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	if err := child.Start(); err != nil {
		return &exitError{exitCannotRun, fmt.Errorf("%s cannot be run: %w", child.Args[0], err)}
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGTERM || !isTerminal(child.Stdin) {
				_ = child.Process.Signal(s) // it may have ended just now
			}
		case err := <-ended:
			return childStatus(err)
		}
	}
}

// childStatus turns the end of a child into ours: its own status, or 128 and the signal that killed it, as shells say.
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

// nothingCame warns, since a crawl that went past the proxy was not polite.
func nothingCame(command string) string {
	return fmt.Sprintf(`
robotsproxy: WARNING: not one request of %q came through the proxy: nothing was judged, paced or recorded.
  If it did fetch something, it does not heed HTTP_PROXY and HTTPS_PROXY. Give it the proxy itself:
    Node before 24     fetch heeds no variables: use undici's EnvHttpProxyAgent, or Node 24 with NODE_USE_ENV_PROXY=1
    Python aiohttp     ClientSession(trust_env=True)
    Chromium           --proxy-server="$HTTP_PROXY" (and let it trust our CA: robotsproxy ca install)
    anything else      its own proxy setting, with the value of $HTTP_PROXY
  Names of this machine (localhost, 127.0.0.1) never come through the proxy.
`, command)
}
