package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/clientenv"
	"github.com/robotsproxy/robotsproxy/internal/durable"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

func newRun(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARG...]",
		Short: "Run one program through its own proxy",
		Long: `Run one program through its own proxy, on a free port. The program gets the variables that "robotsproxy env"
prints, which also make it trust the CA. When it ends, a summary on standard error lists the blocked requests with the
rules that blocked them, and the time waited. The exit status is that of the program.

If the data directory belongs to another user, who runs "robotsproxy serve" with it, the program goes through that proxy
instead, and there is no summary.

With --sealed, the program cannot go past the proxy: it has no other network but a loopback interface of its own. It
needs no privileges, but Linux with user namespaces. The program resolves no names; clients send names to the proxy.
Servers of the machine at 127.0.0.1 are out of its reach. Files, and sockets in the file system such as that of Docker,
are not.`,
		Example: `  robotsproxy run -- scrapy crawl news
  robotsproxy run --mode report -- wget --mirror https://a.example/
  robotsproxy run --sealed -- node crawl.js`,
		Args: cobra.ArbitraryArgs,
	}
	cmd.Flags().SetInterspersed(false) // flags after the name of the command belong to the command
	settings := configFlags(cmd, "mode")
	isSealed := cmd.Flags().Bool("sealed", false, "give the program no network but the proxy (Linux)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage(errors.New("run needs a command: robotsproxy run -- COMMAND [ARG...]"))
		}
		cfg, err := settings.load(cmd, std)
		if err != nil {
			return &exitError{exitFailed, err} // other statuses are those of the child
		}
		list := "robotsproxy audit list"
		if cmd.Flags().Changed("data-dir") {
			list += " --data-dir " + clientenv.Quote(cfg.DataDir)
		}
		if settings.file != "" {
			list += " --config " + clientenv.Quote(settings.file)
		}
		return runChild(cmd.Context(), cfg, std, args, *isSealed, list)
	}
	return cmd
}

// runChild runs args through a private proxy. Its error carries the child's exit status. list is the command that lists
// the proxy's records.
func runChild(ctx context.Context, cfg *config.Config, std stdio, args []string, isSealed bool, list string) error {
	path, err := findCommand(args[0])
	if err != nil {
		return err
	}
	child := newChild(ctx, std, path, args)
	if isForeign(cfg) {
		if isSealed {
			return &exitError{exitFailed, fmt.Errorf("%w; run --sealed needs a proxy of its own: "+
				"give it another folder with --data-dir", checkOwnData(cfg))}
		}
		return runShared(ctx, cfg, std, child)
	}
	if isSealed {
		if err := child.seal(); err != nil {
			return err
		}
		defer child.sealed.Close() // fails only after the program has ended
	}
	sum := newSummary()
	sum.tag, sum.sealed = "run-"+rand.Text()[:6], isSealed
	line := newLiveLine(std.err)
	private, err := startPrivate(cfg, std, sum, line, child.listen)
	if err != nil {
		return &exitError{exitFailed, err}
	}
	line.start(func() string { return private.statusText(sum) })
	status := child.supervise(private.env)
	line.stop()
	if err := private.stop(cfg.Grace); err != nil {
		fmt.Fprintf(std.err, "robotsproxy: %s\n", safetext.Lines(err.Error()))
	}
	if child.started {
		sum.report(std.err, args[0])
		if requests, _ := sum.progress(); requests > 0 && cfg.Audit.Store != config.AuditNone {
			fmt.Fprintf(std.err, "robotsproxy: %s --tag %s shows each request\n", list, sum.tag)
		}
	}
	return status
}

// isForeign reports whether the data folder belongs to another user, so that this one cannot run a proxy with it.
func isForeign(cfg *config.Config) bool {
	return durable.CheckOwner(cfg.DataDir) != nil || errors.Is(checkData(cfg), fs.ErrPermission)
}

// runShared runs child through the running proxy that has the data folder.
func runShared(ctx context.Context, cfg *config.Config, std stdio, child *child) error {
	running := runningCA(ctx, cfg)
	if running == nil {
		return &exitError{exitFailed, fmt.Errorf("%w; and no robotsproxy answers at %s or %s", checkOwnData(cfg),
			cfg.Listen, cfg.Admin.Listen)}
	}
	ca, err := running.keep(std)
	if err != nil {
		return &exitError{exitFailed, err}
	}
	vars, err := clientVariables(cfg, ca, std)
	if err != nil {
		return &exitError{exitFailed, err}
	}
	fmt.Fprintf(std.err, "robotsproxy: %s runs through the proxy at %s, because the data folder %s belongs to another user; "+
		"that proxy has its own mode and configuration\n",
		child.name, cfg.Listen, cfg.DataDir)
	return child.supervise(assignments(vars))
}

// findCommand returns the path of the command name. It runs before the proxy starts.
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

// privateProxy is a proxy for one child.
type privateProxy struct {
	components *components
	served     chan error
	env        []string
	dir        string // of the wget configuration, which contains the proxy's port; other files are in the data directory
}

// startPrivate starts a proxy whose log is written through line, on the listener that listen returns.
func startPrivate(
	cfg *config.Config, std stdio, sum *summary, line io.Writer, listen func() (net.Listener, error),
) (_ *privateProxy, err error) {
	cfg.Log.Level = max(cfg.Log.Level, slog.LevelWarn) // to keep the child's output readable
	// These are for the configured listener; only the child uses this one.
	cfg.Clients, cfg.Auth, cfg.TLS, cfg.ProxyProtocol = nil, config.Auth{}, config.TLS{}, nil
	p := &privateProxy{served: make(chan error, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.dir, err = os.MkdirTemp("", "robotsproxy-run-"); err != nil {
		return nil, fmt.Errorf("making a folder for the child: %w", err)
	}
	log := newLogThrough(line, std.err, cfg.Log)
	limitMemory(memlimit.FromCgroup, log)
	if p.components, err = newComponents(cfg, log, observer{ended: sum.observe, tag: sum.tag}); err != nil {
		return nil, err
	}
	p.components.control.warnUnsigned(nil)
	l, err := listen()
	if err != nil {
		return nil, fmt.Errorf("listening on a free port: %w", err)
	}
	warn := func(err error) { log.Warn(unresolvedUpstream, "err", err) }
	_ = checkUpstream(p.components.guard, warn) // a new port is not the port of the upstream proxy
	if err := p.setEnv(std, cfg.DataDir, l.Addr().String()); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	go func() { p.served <- p.components.server.Serve(l) }()
	return p, nil
}

// setEnv sets the environment of the child, for a proxy at listen.
func (p *privateProxy) setEnv(std stdio, dataDir, listen string) error {
	vars, err := clientenv.Write(clientenv.Options{
		Listen: listen, CA: p.components.ca.PEM(), Dir: dataDir, WgetDir: p.dir,
	})
	if err != nil {
		return err
	}
	warnReplaced(std, vars)
	p.env = assignments(vars)
	return nil
}

// assignments returns vars as an environment.
func assignments(vars []clientenv.Variable) (env []string) {
	for _, v := range vars {
		env = append(env, v.Name+"="+v.Value)
	}
	return env
}

// stop ends the proxy after the child has ended. It waits at most a second for connections that the child left open.
func (p *privateProxy) stop(grace time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), min(grace, time.Second))
	defer cancel()
	_ = p.components.server.Shutdown(ctx) // only connections of the child can be aborted
	return errors.Join(<-p.served, p.close())
}

func (p *privateProxy) close() (err error) {
	if p.components != nil {
		err = p.components.close()
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

// noRequestsWarning returns the warning that command made no requests through the proxy. It may have bypassed the
// proxy, unless it was sealed.
func noRequestsWarning(command string, isSealed bool) string {
	cause := "If it did fetch something, it does not heed HTTP_PROXY and HTTPS_PROXY. Give it the proxy itself:"
	last := "On Linux, robotsproxy run --sealed lets no program go past the proxy."
	if isSealed {
		cause = "If its connections failed, it does not heed HTTP_PROXY and HTTPS_PROXY. Give it the proxy itself:"
		last = "With --sealed, it had no other network, so it cannot have gone past the proxy."
	}
	return fmt.Sprintf(`
robotsproxy: WARNING: not one request of %q came through the proxy: nothing was judged, paced or recorded.
  %s
    Node before 24     fetch heeds no variables: use undici's EnvHttpProxyAgent, or Node 24 with NODE_USE_ENV_PROXY=1
    Python aiohttp     ClientSession(trust_env=True)
    Chromium           --proxy-server="$HTTP_PROXY" (and let it trust our CA: robotsproxy ca install)
    anything else      its own proxy setting, with the value of $HTTP_PROXY
  Names of this machine (localhost, 127.0.0.1) never come through the proxy.
  %s
`, command, cause, last)
}
