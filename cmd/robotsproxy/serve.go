package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/admin/dashboard"
	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/clientenv"
	"github.com/robotsproxy/robotsproxy/internal/durable"
	"github.com/robotsproxy/robotsproxy/internal/requestlog"
	"github.com/robotsproxy/robotsproxy/internal/settings"
	"github.com/robotsproxy/robotsproxy/internal/systemd"
	"github.com/robotsproxy/robotsproxy/onboarding"
	"github.com/robotsproxy/robotsproxy/proxy"
)

func newServe(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the proxy",
		Long: `Run the proxy. Without a configuration it listens on 127.0.0.1 only, and creates its CA at the first start. Its data is in
$XDG_STATE_HOME/robotsproxy or ~/.local/state/robotsproxy, and for root in /var/lib/robotsproxy.

SIGTERM or an interrupt drains it: it accepts no new connections, and requests in progress may end (see grace in
config.example.yaml). A second signal ends it at once. SIGUSR1 makes it reopen the file of the records, which a program
such as logrotate has renamed.

"robotsproxy upgrade" replaces it by the program that is installed then, without a gap.

SIGHUP, "robotsproxy reload" and a change of the configuration or of a file that it names make it read both again. Crawls
go on meanwhile. If the configuration is wrong, the one in force stays.

A service manager such as systemd can open the sockets "proxy" and "admin" for it. Their addresses then replace listen
and admin.listen.`,
		Args: noArgs,
	}
	source := configFlags(cmd, "listen", "admin.listen", "mode")
	watched := cmd.Flags().Bool("watch", true, "reload when the configuration or a file that it names changes")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		prior, err := inherit()
		if err != nil {
			return err
		}
		err = serve(cmd, source, std, *watched, prior)
		if err != nil && prior != nil {
			prior.fail(err)
		}
		return err
	}
	return cmd
}

// serve runs the proxy. If prior is not nil, it replaces that process.
func serve(cmd *cobra.Command, source *configSource, std stdio, watched bool, prior *predecessor) error {
	sockets, err := openSockets(source, prior)
	if err != nil {
		return err
	}
	early := &heldWriter{to: std.err}
	defer early.release("")
	cfg, err := source.load(cmd, stdio{std.in, std.out, early})
	if err != nil {
		return err
	}
	s, err := newService(cfg, std.err, early, sockets)
	if err != nil {
		return err
	}
	s.configFile, s.watchFiles = source.file, watched
	s.readConfig = func() (*config.Config, []settings.Warning, error) { return source.read(cmd) }
	// Before the banner: a program that reads the banner may send a signal, or change a file.
	s.watch()
	drain, abort, release := stopSignals(cmd.Context())
	defer release()
	signal.Notify(s.hangup, syscall.SIGHUP)
	onReopen(s.reopen)
	if prior == nil {
		s.flags = source.envFlags(cmd, cfg.DataDir, boundAddress(cfg.Listen, s.proxyListener))
		early.release(s.banner())
		return s.run(drain, abort)
	}
	if err := prior.takeOver(s); err != nil {
		return errors.Join(err, s.proxyListener.Close(), s.adminListener.Close(), s.close())
	}
	early.release("")
	s.log.Info("serving in place of the old process", "version", buildVersion(), "pid", os.Getpid())
	return s.run(drain, abort)
}

// envFlags returns the flags for "robotsproxy env" that select this proxy, in any folder. The proxy keeps its data in
// dataDir and listens at listen. A space precedes each flag.
func (s *configSource) envFlags(cmd *cobra.Command, dataDir, listen string) string {
	changed := func(flag, value string) string {
		if !cmd.Flags().Changed(flag) && s.sockets[flag] == "" {
			return ""
		}
		return " --" + flag + " " + clientenv.Quote(value)
	}
	file, err := absolute(s.file)
	if err != nil {
		file = s.file // load has read the file under this name
	}
	return changed("config", file) + changed("data-dir", dataDir) + changed("listen", listen)
}

// boundAddress returns the configured address with the port of l, which differs if the configured port is 0. It does
// not return the host of l, because the system reports 0.0.0.0 as [::].
func boundAddress(listen string, l net.Listener) string {
	host, _, err := net.SplitHostPort(listen)
	_, port, errPort := net.SplitHostPort(l.Addr().String())
	if err != nil || errPort != nil {
		return l.Addr().String()
	}
	return net.JoinHostPort(host, port)
}

// service is a running proxy with its admin listener.
type service struct {
	cfg           *config.Config
	early         *heldWriter // of the log
	log           *slog.Logger
	requests      *requestlog.Log
	live          dashboard.Live
	activity      admin.Activity
	components    *components // nil if they could not be made
	admin         *http.Server
	token         string    // path of the admin token
	flags         string    // for "robotsproxy env", in the banner
	terminal      io.Writer // standard error; nil if it is not a terminal
	sockets       *sockets
	proxyListener *heldListener
	adminListener net.Listener
	draining      atomic.Bool
	requestDrain  func()         // ends the context of run
	reopen        chan os.Signal // see onReopen
	reloads

	program   string        // path of the program that replaces this one at an upgrade
	upgrading sync.Mutex    // held by upgrade; guards next
	next      *successor    // if not nil, it has replaced this process
	replaced  chan struct{} // closed when next is set
}

// newService creates the components and opens the listeners, so that errors are reported before the banner. It uses
// those of sockets first. It logs through early, which passes on to stderr.
func newService(cfg *config.Config, stderr io.Writer, early *heldWriter, sockets *sockets) (_ *service, err error) {
	level := new(slog.LevelVar)
	log := newLeveledLog(early, stderr, cfg.Log, level)
	s := &service{
		cfg: cfg, log: log, early: early, token: tokenFile(cfg), sockets: sockets, replaced: make(chan struct{}),
	}
	s.level = level
	s.inForce.Store(time.Now().Unix())
	if isTerminal(stderr) {
		s.terminal = stderr
	}
	s.hangup, s.reopen = make(chan os.Signal, 1), make(chan os.Signal, 1)
	limitMemory(memlimit.FromCgroup, log)
	metrics := admin.NewMetrics()
	metrics.SetClients(clientNames(cfg))
	s.requests = newRequestLog(stderr, cfg.Log, log, func(host string) requestlog.Pause { return s.components.pause(cfg, host) })
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	observe := func(r *audit.Record) {
		metrics.Observe(r)
		s.requests.Observe(r)
		s.live.Observe(r)
		s.activity.Observe(r)
	}
	if s.components, err = newComponents(cfg, log, observer{ended: observe, fetched: metrics.ObserveFetch, wrote: metrics.ObserveWrite}); err != nil {
		return nil, err
	}
	if s.program, err = programPath(); err != nil {
		return nil, err
	}
	l, err := s.listen("listen", cfg.Listen)
	if err != nil {
		return nil, err
	}
	s.proxyListener = newHeldListener(l)
	if err := s.newAdmin(metrics); err != nil {
		return nil, errors.Join(err, s.proxyListener.Close())
	}
	if s.adminListener, err = s.listen("admin.listen", cfg.Admin.Listen); err != nil {
		return nil, errors.Join(err, s.proxyListener.Close())
	}
	s.components.guard.Protect(s.adminListener.Addr())
	s.components.guard.Protect(s.proxyListener.Addr())
	warn := func(err error) { log.Warn(unresolvedUpstream, "err", err) }
	if err := checkUpstream(s.components.guard, warn); err != nil {
		return nil, errors.Join(usage(err), s.proxyListener.Close(), s.adminListener.Close())
	}
	address := boundAddress(cfg.Admin.Listen, s.adminListener)
	if err := durable.Replace(adminAddressFile(cfg), []byte(address+"\n"), 0o600); err != nil {
		log.Warn("commands find this instance only by --admin or admin.listen", "err", err)
	}
	if sockets.prior != nil {
		sockets.prior.closeUnused()
	}
	return s, nil
}

func (s *service) newAdmin(metrics *admin.Metrics) error {
	token, _, err := admin.LoadToken(s.token)
	if err != nil {
		return usage(err)
	}
	pages, err := s.newDashboard(token)
	if err != nil {
		return err
	}
	s.handler, err = admin.New(admin.Options{
		Token: token, Version: buildVersion(), Hosts: adminHosts(s.cfg), Ready: s.ready, State: s.state,
		Exemptions: s.components.exemptions,
		Drain:      s.startDrain,
		Reload:     func() ([]admin.Change, error) { return s.reloadFor("robotsproxy reload") },
		Metrics:    metrics, Gauges: slices.Concat(s.components.gauges(), s.reloads.gauges()), Pprof: s.cfg.Admin.Pprof,
		CA: onboarding.CA(s.components.ca), PAC: newPAC(s.cfg, s.proxyListener),
		Keys:  http.HandlerFunc(s.components.control.serveDirectory),
		Files: s.components.files, History: s.components.history(),
		Interventions: s.components.interventions,
		Upgrade:       s.upgrade,
		Lanes:         lanes{s.components, &s.activity},
		Records:       s.components.kept,
		Dashboard:     pages.Register,
	})
	if err != nil {
		return err
	}
	s.metrics = metrics
	s.admin = &http.Server{
		Handler: s.handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	return nil
}

// clientNames returns the names of the clients that the configuration lists.
func clientNames(cfg *config.Config) (names []string) {
	for _, c := range cfg.Clients {
		names = append(names, c.Name)
	}
	return names
}

// newPAC returns the handler of the PAC file on the admin listener.
func newPAC(cfg *config.Config, proxyListener net.Listener) http.Handler {
	address := onboarding.ProxyAddress(proxyListener.Addr())
	if hasTLS(cfg) {
		return onboarding.SecurePAC(address)
	}
	return onboarding.PAC(address)
}

// adminHosts returns the host names that the admin listener accepts: the configured ones, and the name in admin.listen,
// which the commands use.
func adminHosts(cfg *config.Config) []string {
	name, _, err := net.SplitHostPort(cfg.Admin.Listen)
	if _, isAddr := netip.ParseAddr(name); err != nil || name == "" || isAddr == nil {
		return cfg.Admin.Hosts
	}
	return append(slices.Clip(cfg.Admin.Hosts), name)
}

// state returns what the command status shows.
func (s *service) state() admin.State {
	server, records := s.components.server, s.components.records.Stats()
	return admin.State{
		Listen: "http://" + boundAddress(s.cfg.Listen, s.proxyListener), Mode: s.components.control.config().Mode.String(),
		Active: int(server.Active()), Waiting: s.components.limiter.Stats().Waiting, Tunnels: int(server.Tunnels()),
		Records: admin.RecordCounts{Written: records.Written, Waiting: records.Waiting, Lost: records.Lost, Refused: server.Unrecorded()},
		Fetches: s.components.files.Stats().Waiting, Unsigned: s.components.control.inForce.Load().signers.unsigned(time.Now()),
	}
}

func (s *service) ready() error {
	if s.draining.Load() {
		return errors.New("draining: the proxy is about to stop")
	}
	return nil
}

// run serves until ctx ends or another process replaces this one, then drains. When abort ends, it aborts the drain.
func (s *service) run(ctx, abort context.Context) error {
	ctx, s.requestDrain = context.WithCancel(ctx)
	defer s.requestDrain()
	background, stop := context.WithCancel(abort)
	defer stop()
	var running sync.WaitGroup
	running.Go(func() { s.components.runDaily(background, s.log) })
	running.Go(func() { s.components.keepRecords(background, s.log) })
	running.Go(func() { s.components.sealRecords(background, s.log) })
	running.Go(func() { s.components.reportChanges(background) })
	running.Go(func() { s.components.postReports(background) })
	running.Go(func() { s.reloadOnHangup(background) })
	running.Go(func() { s.components.exemptions.reportExpired(background) })
	running.Go(func() { s.components.control.reportUnsigned(background) })
	running.Go(func() { s.reopenOnSignal(background) })
	running.Go(func() { systemd.Watch(background, s.check, s.log) })
	running.Go(func() { tuneCollector(background) })
	ended := make(chan error, 2)
	go func() { ended <- s.components.server.Serve(s.proxyListener) }()
	go func() {
		ended <- s.admin.Serve(proxy.LimitListener(s.adminListener, newAdminLimits(s.cfg), "admin", s.log))
	}()
	s.notify(systemd.Ready, systemd.Status("listening at "+boundAddress(s.cfg.Listen, s.proxyListener)))
	var err error
	select {
	case <-ctx.Done():
		err = s.drain(abort)
	case <-s.replaced:
		err = s.retire(ctx, abort)
	case err = <-ended:
		err = fmt.Errorf("a listener ended: %w", err)
	}
	stop()
	running.Wait()
	s.unwatch()
	closed := errors.Join(s.closeAdmin(), s.close())
	if errors.Is(err, errAborted) {
		return &exitError{exitInterrupted, closed}
	}
	return errors.Join(err, closed)
}

// close closes the components, and then the log of their requests.
func (s *service) close() (err error) {
	if s.components != nil {
		err = s.components.close()
	}
	return errors.Join(err, s.requests.Close())
}

// closeAdmin closes the admin listener after the responses in progress, or after a second.
func (s *service) closeAdmin() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.admin.Shutdown(ctx) // Close ends the rest
	return s.admin.Close()
}

// reopenOnSignal reopens the file of the records at each signal of onReopen, until ctx ends.
func (s *service) reopenOnSignal(ctx context.Context) {
	for {
		select {
		case <-s.reopen:
			if err := s.components.records.Reopen(); err != nil {
				s.log.Error("the file of the records is not reopened; the old one continues", "err", err)
				continue
			}
			s.log.Info("the file of the records is reopened", "path", recordsFile(s.components.control.config()))
		case <-ctx.Done():
			return
		}
	}
}

// notify reports to the service manager. The service runs without it.
func (s *service) notify(assignments ...string) {
	if err := systemd.Notify(assignments...); err != nil {
		s.log.Warn("the service manager is not notified", "err", err)
	}
}

// passwordHint is shown beside variables, which contain no password.
func passwordHint(cfg *config.Config) string {
	return "The proxy asks for a password: write " + clientenv.Scheme(hasTLS(cfg)) + "://USER:PASSWORD@... " +
		"into http_proxy and https_proxy (HTTP_PROXY and HTTPS_PROXY too)."
}

// tlsHint is shown beside variables, which name neither the listener's CA nor a client's certificate.
const tlsHint = "The proxy speaks TLS to its clients: they must trust the CA of tls.cert_file, " +
	"and send their own certificate if they are known by it (curl: --proxy-cacert, --proxy-cert, --proxy-key). " +
	"wget and Java cannot speak TLS to a proxy."

// hasTLS reports whether the proxy speaks TLS to its clients.
func hasTLS(cfg *config.Config) bool { return cfg.TLS.CertFile != "" }

// banner returns the text that serve prints at the start: addresses, files, and two commands to try.
func (s *service) banner() string {
	ca := s.components.ca
	proxyAt, adminAt := boundAddress(s.cfg.Listen, s.proxyListener), boundAddress(s.cfg.Admin.Listen, s.adminListener)
	clientAddress := proxyAt
	made := "the CA that clients must trust"
	if ca.Created() {
		made = "made just now, " + made
	}
	if address, err := clientenv.DialAddress(proxyAt); err == nil {
		clientAddress = address
	}
	user, hint := "", ""
	if s.cfg.Auth.Required {
		user, hint = "USER:PASSWORD@", passwordHint(s.cfg)+"\n"
	}
	scheme := clientenv.Scheme(hasTLS(s.cfg))
	if hasTLS(s.cfg) {
		hint += tlsHint + "\n"
	}
	return fmt.Sprintf(`robotsproxy %s, mode %s
  proxy    %s://%s
  admin    http://%s   (the dashboard; also /healthz /readyz /metrics /ca.pem /proxy.pac)
  CA       %s   (%s)
           SHA-256 %s
  records  %s
  token    %s   (for changes in the dashboard, and for the admin API)

Send this shell's programs through it, or try one request:

  eval "$(%s env%s)"
  curl --proxy %s://%s%s --cacert %s https://example.com/

A program that ignores these settings goes past the proxy. Your firewall must block that: see docs/operations.md.
%s
`, buildVersion(), s.cfg.Mode, scheme, proxyAt, adminAt, ca.CertFile(), made, ca.Fingerprint(), recordsPlace(s.cfg), s.token,
		selfCommand(), s.flags, scheme, user, clientAddress, clientenv.Quote(ca.CertFile()), hint)
}

// selfCommand returns the shell command for this program: its name if the shell finds it in PATH, else its path.
func selfCommand() string {
	const name = "robotsproxy"
	self, err := os.Executable()
	if err != nil {
		return name
	}
	if found, err := exec.LookPath(name); err == nil && sameFile(found, self) {
		return name
	}
	if strings.ContainsAny(self, " '\"$") {
		return clientenv.Quote(self)
	}
	return self
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}
