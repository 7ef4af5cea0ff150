package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/clientenv"
	"github.com/robotsproxy/robotsproxy/onboarding"
	"github.com/robotsproxy/robotsproxy/proxy"
)

func newServe(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the proxy",
		Long: `Run the proxy. With no configuration at all it listens on this machine only, keeps its data in your own folder, and makes
its CA at the first start. SIGTERM or an interrupt drains: no new connections, the requests under way end (see grace in
config.example.yaml); a second one ends at once.`,
		Args: noArgs,
	}
	settings := configFlags(cmd, "listen", "admin.listen", "mode")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := settings.load(cmd, std)
		if err != nil {
			return err
		}
		s, err := newService(cfg, newLog(std.err, cfg.Log))
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM) // before the banner: a program that reads it may send a signal
		defer stop()
		context.AfterFunc(ctx, stop) // a second signal ends at once
		s.flags = settings.pasted(cmd, cfg.DataDir, written(cfg.Listen, s.proxyAt))
		fmt.Fprint(std.err, s.banner())
		return s.run(ctx)
	}
	return cmd
}

// pasted returns the flags by which "robotsproxy env", in any folder, finds the proxy that was started with these flags,
// keeps its data in dataDir and listens at listen. A space precedes each flag.
func (s *configSource) pasted(cmd *cobra.Command, dataDir, listen string) string {
	paste := func(flag, value string) string {
		if !cmd.Flags().Changed(flag) {
			return ""
		}
		return " --" + flag + " " + clientenv.Quote(value)
	}
	file, err := absolute(s.file)
	if err != nil {
		file = s.file // it was read under that name
	}
	return paste("config", file) + paste("data-dir", dataDir) + paste("listen", listen)
}

// written returns the address of l as the operator wrote it, but with the port that it has: the system calls 0.0.0.0
// [::], and port 0 is any.
func written(listen string, l net.Listener) string {
	host, _, err := net.SplitHostPort(listen)
	_, port, errPort := net.SplitHostPort(l.Addr().String())
	if err != nil || errPort != nil {
		return l.Addr().String()
	}
	return net.JoinHostPort(host, port)
}

// service is a running proxy with its operator's listener.
type service struct {
	cfg      *config.Config
	log      *slog.Logger
	parts    *parts
	admin    *http.Server
	token    string // path of the admin token
	flags    string // of "env", for the banner
	proxyAt  net.Listener
	adminAt  net.Listener
	draining atomic.Bool
}

// newService makes the parts and opens the listeners, so that faults are reported before the banner.
func newService(cfg *config.Config, log *slog.Logger) (_ *service, err error) {
	s := &service{cfg: cfg, log: log, token: tokenFile(cfg)}
	metrics := admin.NewMetrics()
	if s.parts, err = newParts(cfg, log, metrics.Observe); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.parts.close())
		}
	}()
	if s.proxyAt, err = listen("listen", cfg.Listen); err != nil {
		return nil, err
	}
	if err := s.newAdmin(metrics); err != nil {
		return nil, errors.Join(err, s.proxyAt.Close())
	}
	if s.adminAt, err = listen("admin.listen", cfg.Admin.Listen); err != nil {
		return nil, errors.Join(err, s.proxyAt.Close())
	}
	s.parts.guard.Protect(s.adminAt.Addr())
	s.parts.guard.Protect(s.proxyAt.Addr())
	if err := checkUpstream(s.parts.guard, func(err error) { log.Warn(notResolved, "err", err) }); err != nil {
		return nil, errors.Join(usage(err), s.proxyAt.Close(), s.adminAt.Close())
	}
	return s, nil
}

func listen(key, addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		flag := strings.ReplaceAll(key, ".", "-")
		return nil, usage(fmt.Errorf("%w; choose another address with --%s", err, flag))
	}
	return l, nil
}

func (s *service) newAdmin(metrics *admin.Metrics) error {
	token, _, err := admin.LoadToken(s.token)
	if err != nil {
		return usage(err)
	}
	handler, err := admin.New(admin.Options{
		Token: token, Version: buildVersion(), Hosts: adminHosts(s.cfg), Ready: s.ready, Metrics: metrics, Gauges: s.parts.gauges(),
		CA: onboarding.CA(s.parts.ca), PAC: onboarding.PAC(onboarding.ProxyAddress(s.proxyAt.Addr())),
		Files: s.parts.files, History: history{s.parts.state, s.parts.files.Unsaved},
	})
	if err != nil {
		return err
	}
	s.admin = &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	return nil
}

// adminHosts returns the names by which the admin listener may be addressed: those of the configuration, and the one by
// which our own commands find it.
func adminHosts(cfg *config.Config) []string {
	name, _, err := net.SplitHostPort(cfg.Admin.Listen)
	if _, isAddr := netip.ParseAddr(name); err != nil || name == "" || isAddr == nil {
		return cfg.Admin.Hosts
	}
	return append(slices.Clip(cfg.Admin.Hosts), name)
}

func (s *service) ready() error {
	if s.draining.Load() {
		return errors.New("draining: the proxy is about to stop")
	}
	return nil
}

// gauges are the numbers that the parts keep themselves.
func (p *parts) gauges() []admin.Gauge {
	return slices.Concat(p.files.gauges(), redisGauges(p.redis), []admin.Gauge{
		{Name: "robotsproxy_active_requests", Help: "Requests under way.", Value: func() float64 { return float64(p.server.Active()) }},
		{Name: "robotsproxy_connections", Help: "Connections of clients that are open.", Value: func() float64 { return float64(p.server.Connections()) }},
		{Name: "robotsproxy_refused_connections_total", Help: "Connections and tunnels that were answered 503 because of limits.", Counter: true, Value: func() float64 { return float64(p.server.Refused()) }},
		{Name: "robotsproxy_ca_end_timestamp_seconds", Help: "When the last CA ends that clients are told to trust, in Unix time.", Value: func() float64 { return float64(p.ca.Ends().Unix()) }},
		{Name: "robotsproxy_distrusted_total", Help: "TLS handshakes that ended because the client did not trust the CA.", Counter: true, Value: func() float64 { return float64(p.server.Distrusted()) }},
		{Name: "robotsproxy_tunnels", Help: "Tunnels and WebSockets that are open.", Value: func() float64 { return float64(p.server.Tunnels()) }},
		{Name: "robotsproxy_unrecorded_total", Help: "Requests refused because their decision could not be recorded.", Counter: true, Value: func() float64 { return float64(p.server.Unrecorded()) }},
		{Name: "robotsproxy_lanes", Help: "Hosts whose pace is kept.", Value: func() float64 { return float64(p.limiter.Stats().Lanes) }},
		{Name: "robotsproxy_waiting_requests", Help: "Requests that wait for their host's pace.", Value: func() float64 { return float64(p.limiter.Stats().Waiting) }},
		{Name: "robotsproxy_throttled_total", Help: "Requests that were told to come back later.", Counter: true, Value: func() float64 { return float64(p.limiter.Stats().Throttled) }},
		{Name: "robotsproxy_abandoned_total", Help: "Requests whose client left before they were sent.", Counter: true, Value: func() float64 { return float64(p.limiter.Stats().Abandoned) }},
		{Name: "robotsproxy_pushed_back_total", Help: "Answers of 429 and 503 by origins.", Counter: true, Value: func() float64 { return float64(p.limiter.Stats().PushedBack) }},
		{Name: "robotsproxy_pauses_total", Help: "Pauses of hosts that pushed back, begun or made longer.", Counter: true, Value: func() float64 { return float64(p.limiter.Stats().Paused) }},
		{Name: "robotsproxy_unkept_pauses_total", Help: "Long pauses that could not be kept on disk: a restart forgets them.", Counter: true, Value: func() float64 { return float64(p.limiter.Stats().Unkept) }},
		{Name: "robotsproxy_kept_places_total", Help: "Reservations for clients that were answered 429 with a time to come back.", Counter: true, Value: func() float64 { return float64(p.limiter.Stats().Reserved) }},
		{Name: "robotsproxy_lapsed_places_total", Help: "Reservations that were not claimed in time.", Counter: true, Value: func() float64 { return float64(p.limiter.Stats().Expired) }},
		{Name: "robotsproxy_store_bytes", Help: "Bytes that state.db and its write-ahead log take on the disk.", Value: func() float64 { return float64(p.state.Size()) }},
		{Name: "robotsproxy_audit_lost_total", Help: "Records that could not be kept.", Counter: true, Value: func() float64 { return float64(p.records.Lost()) }},
	})
}

// run serves until ctx ends, then drains.
func (s *service) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var housekeeping sync.WaitGroup
	housekeeping.Go(func() { s.parts.keepHouse(ctx, s.log) })
	ended := make(chan error, 2)
	go func() { ended <- s.parts.server.Serve(s.proxyAt) }()
	go func() { ended <- s.admin.Serve(proxy.LimitListener(s.adminAt, newAdminLimits(s.cfg), "admin", s.log)) }()
	var err error
	select {
	case <-ctx.Done():
		err = s.drain()
	case err = <-ended:
		err = fmt.Errorf("a listener ended: %w", err)
	}
	stop()
	housekeeping.Wait()
	return errors.Join(err, s.admin.Close(), s.parts.close())
}

// drain lets the requests under way end. What goes on past the grace is cut off, which is said and is no fault.
func (s *service) drain() error {
	s.draining.Store(true)
	s.log.Info("draining", "grace", s.cfg.Grace, "active", s.parts.server.Active(), "tunnels", s.parts.server.Tunnels())
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Grace)
	defer cancel()
	err := s.parts.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn("the grace is over; what was still under way is cut off", "grace", s.cfg.Grace)
		return nil
	}
	return err
}

// passwordHint is shown beside variables, which contain no password.
const passwordHint = "The proxy asks for a password: write http://USER:PASSWORD@... into http_proxy and https_proxy (HTTP_PROXY and HTTPS_PROXY too)."

// banner returns the text at the start: addresses, files, and two lines to paste.
func (s *service) banner() string {
	ca, proxyAt, adminAt := s.parts.ca, written(s.cfg.Listen, s.proxyAt), written(s.cfg.Admin.Listen, s.adminAt)
	toPaste := proxyAt
	made := "the CA that clients must trust"
	if ca.Created() {
		made = "made just now, " + made
	}
	records := s.cfg.Audit.JSONL
	if records == "" {
		records = filepath.Join(s.cfg.DataDir, "audit.jsonl")
	}
	if address, err := clientenv.DialAddress(proxyAt); err == nil {
		toPaste = address
	}
	user, hint := "", ""
	if s.cfg.Auth.Required {
		user, hint = "USER:PASSWORD@", passwordHint+"\n"
	}
	return fmt.Sprintf(`robotsproxy %s, mode %s
  proxy    http://%s
  admin    http://%s   /healthz /readyz /metrics /ca.pem /proxy.pac
  CA       %s   (%s)
           SHA-256 %s
  records  %s
  token    %s   (for the admin API)

Send this shell's programs through it, or try one request:

  eval "$(%s env%s)"
  curl --proxy http://%s%s --cacert %s https://example.com/
%s
`, buildVersion(), s.cfg.Mode, proxyAt, adminAt, ca.CertFile(), made, ca.Fingerprint(), records, s.token,
		selfCommand(), s.flags, user, toPaste, clientenv.Quote(ca.CertFile()), hint)
}

// selfCommand returns the shell command for this program: its name if PATH leads to it, and its path if not.
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
