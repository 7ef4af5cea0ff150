package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/systemd"
	"github.com/robotsproxy/robotsproxy/proxy"
)

// At an upgrade the running process (the old one) starts its program anew. The new process gets the listeners and two
// connections to the old one. It opens its files and says that it is ready; the old process hands over its lanes (see
// ratelimit.HandOver) and lets it serve. Then the old process accepts no more connections, and ends after its last
// request. Until the new process serves, any failure leaves the old one as it was.

func newUpgrade(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Replace a running robotsproxy by the program that is installed now, without a gap",
		Long: `Replace a running robotsproxy by the program that is installed now, without a gap.

The running process starts its program again, with the same arguments and variables. The new process reads the
configuration, takes over the listeners and the pace of each host, and serves. The old process answers the requests that
it has and ends. If the new process fails before it serves, the old one continues, and the command fails.`,
		Args: noArgs,
	}
	api := newAPICommand(cmd, std)
	cmd.RunE = func(*cobra.Command, []string) error {
		var u admin.Upgrade
		return api.show(apiRequest{method: http.MethodPost, path: "/upgrade"}, &u, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "Process %d (robotsproxy %s) serves now. Process %d ends after its last request.\n",
				u.PID, u.Version, u.OldPID)
			return err
		})
	}
	return cmd
}

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

// upgradeMessage is a message on the control connection.
type upgradeMessage struct {
	Ready   bool   `json:"ready,omitempty"`   // from the new process: it can take over
	Version string `json:"version,omitempty"` // of the new process
	Error   string `json:"error,omitempty"`   // from the new process: it cannot
	Serve   bool   `json:"serve,omitempty"`   // from the old process: it has handed over

	// Orders are those in force, with Serve, and from the new process those that the old one must follow. The reply to
	// the latter has Ended or Error.
	Orders *orders     `json:"orders,omitempty"`
	Ended  proxy.Ended `json:"ended,omitzero"`
}

// upgradeControl is one end of the control connection.
type upgradeControl struct {
	net.Conn
	decoder *json.Decoder
	ended   chan struct{} // closed when the other process has ended
}

func newUpgradeControl(c net.Conn) *upgradeControl {
	return &upgradeControl{c, json.NewDecoder(c), make(chan struct{})}
}

func (c *upgradeControl) send(m upgradeMessage) error { return json.NewEncoder(c).Encode(m) }

func (c *upgradeControl) receive() (m upgradeMessage, err error) {
	err = c.decoder.Decode(&m)
	return m, err
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
	if s.components.redis == nil {
		if err := s.components.limiter.TakeOver(p.lanes); err != nil {
			return err
		}
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

// sockets opens the listeners of the configuration, and passes them on to the next process.
type sockets struct {
	prior     *predecessor            // may be nil
	activated map[string]net.Listener // those of the service manager that listen has not returned, by key
	managed   map[string]string       // addresses of the service manager's sockets, by key
	open      []socket
}

// openSockets returns the sockets that this process has inherited from prior, or, if it is nil, from the service
// manager. The addresses of the latter replace those of source.
func openSockets(source *configSource, prior *predecessor) (*sockets, error) {
	s := &sockets{prior: prior, activated: make(map[string]net.Listener), managed: make(map[string]string)}
	if prior != nil {
		s.managed = prior.Managed
		source.sockets = s.managed
		return s, nil
	}
	keys := map[string]string{"proxy": "listen", "admin": "admin.listen"}
	listeners, err := systemd.Sockets("proxy", "admin")
	if err != nil {
		return nil, usage(err)
	}
	for name, l := range listeners {
		s.activated[keys[name]] = l
		s.managed[keys[name]] = l.Addr().String()
	}
	source.sockets = s.managed
	return s, nil
}

type socket struct {
	name     socketName
	listener *net.TCPListener
}

// listen returns the listener for the address of a key: that of the service manager, or that of the old process if it
// has the same address.
func (s *sockets) listen(key, address string) (net.Listener, error) {
	name := socketName{key, address}
	l := s.activated[key]
	delete(s.activated, key)
	if s.prior != nil {
		l = s.prior.sockets[name]
		delete(s.prior.sockets, name)
	}
	if l == nil {
		var err error
		if l, err = net.Listen("tcp", address); err != nil {
			return nil, usage(fmt.Errorf("%w; choose another address with --%s", err, flagName(key)))
		}
	}
	if tcp, ok := l.(*net.TCPListener); ok {
		s.open = append(s.open, socket{name, tcp})
	}
	return l, nil
}

// heldListener can stop accepting without an error, which would end its server.
type heldListener struct {
	net.Listener
	closing sync.Once
	held    chan struct{} // closed by hold
	closed  chan struct{} // closed by Close
}

func newHeldListener(l net.Listener) *heldListener {
	return &heldListener{Listener: l, held: make(chan struct{}), closed: make(chan struct{})}
}

// hold closes the listener of this process. Accept then waits for Close.
func (l *heldListener) hold() {
	close(l.held)
	_ = l.Listener.Close()
}

func (l *heldListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		return c, nil
	}
	select {
	case <-l.held:
		<-l.closed
	default:
	}
	return nil, err
}

func (l *heldListener) Close() error {
	l.closing.Do(func() { close(l.closed) })
	select {
	case <-l.held:
		return nil
	default:
		return l.Listener.Close()
	}
}

// programPath returns the path by which this program was started. At an upgrade it may name another file.
func programPath() (string, error) {
	path, err := exec.LookPath(os.Args[0])
	if err != nil {
		return os.Executable()
	}
	return filepath.Abs(path)
}

// successor is the process that replaces this one.
type successor struct {
	process *os.Process
	path    string
	version string
	control *upgradeControl
	lanes   net.Conn
	exited  chan struct{} // closed when the process has ended
	state   *os.ProcessState
}

// startSuccessor starts the program at path with the arguments of this process, and passes the sockets on.
func startSuccessor(path, pace string, sockets *sockets) (*successor, error) {
	i := inheritance{Pace: pace, Managed: sockets.managed}
	fds := newPassed()
	defer fds.close()
	control, err := fds.pair()
	if err != nil {
		return nil, err
	}
	lanes, err := fds.pair()
	if err != nil {
		control.Close()
		return nil, err
	}
	for _, s := range sockets.open {
		if err = fds.add(s.listener); err != nil {
			break
		}
		i.Sockets = append(i.Sockets, s.name)
	}
	c := &successor{path: path, control: newUpgradeControl(control), lanes: lanes, exited: make(chan struct{})}
	if err == nil {
		c.process, err = fds.start(path, successorEnv(i))
	}
	if err != nil {
		c.close()
		return nil, fmt.Errorf("starting %s: %w", path, err)
	}
	go c.wait()
	return c, nil
}

// successorEnv returns the environment of a process that inherits i.
func successorEnv(i inheritance) []string {
	text, _ := json.Marshal(i) // it has only strings
	env := []string{inheritanceVar + "=" + string(text)}
	for _, v := range os.Environ() {
		// The watchdog watches the process that serves, under whatever number.
		if !strings.HasPrefix(v, "WATCHDOG_PID=") {
			env = append(env, v)
		}
	}
	return env
}

func (c *successor) wait() {
	c.state, _ = c.process.Wait() // an error leaves it nil
	close(c.exited)
}

func (c *successor) close() {
	c.control.Close()
	c.lanes.Close()
}

// readyTime is how long a new process may take until it can take over.
const readyTime = 30 * time.Second

// awaitReady waits until the new process can take over.
func (c *successor) awaitReady() error {
	_ = c.control.SetReadDeadline(time.Now().Add(readyTime))
	m, err := c.control.receive()
	_ = c.control.SetReadDeadline(time.Time{})
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%s was not ready to take over within %v; it was killed", c.path, readyTime)
	case err != nil:
		return c.endedEarly()
	case !m.Ready:
		return fmt.Errorf("%s cannot take over: %s", c.path, m.Error)
	}
	c.version = m.Version
	return nil
}

// endedEarly returns the error for a process that has closed the control connection.
func (c *successor) endedEarly() error {
	select {
	case <-c.exited:
		return fmt.Errorf("%s has ended before it could take over: %v; its messages are in the log", c.path, c.state)
	case <-time.After(time.Second):
		return fmt.Errorf("%s does not take over; it was killed", c.path)
	}
}

// kill ends the process, which may have ended already.
func (c *successor) kill() {
	_ = c.process.Kill()
	<-c.exited
	c.close()
}

var errUpgrading = errors.New("an upgrade is in progress")

// upgrade replaces this process. After an error it continues to serve.
func (s *service) upgrade(context.Context) (admin.Upgrade, error) {
	if !s.upgrading.TryLock() {
		return admin.Upgrade{}, errUpgrading
	}
	defer s.upgrading.Unlock()
	if err := s.mayUpgrade(); err != nil {
		return admin.Upgrade{}, err
	}
	s.log.Info("upgrading", "program", s.program)
	next, err := s.replace()
	if err != nil {
		s.log.Error("the upgrade has failed; this process continues to serve", "err", err)
		return admin.Upgrade{}, err
	}
	s.notify(fmt.Sprintf("MAINPID=%d", next.process.Pid))
	s.next = next
	close(s.replaced)
	return admin.Upgrade{PID: next.process.Pid, Version: next.version, OldPID: os.Getpid()}, nil
}

func (s *service) mayUpgrade() error {
	switch {
	case s.draining.Load():
		return errors.New("this robotsproxy is about to stop")
	case s.next != nil:
		return fmt.Errorf("process %d has replaced this one already", s.next.process.Pid)
	case os.Getpid() == 1:
		return errors.New("the end of process 1 would end its container; start another container instead")
	}
	return nil
}

// replace starts a new process, hands the lanes over, and lets it serve.
func (s *service) replace() (*successor, error) {
	next, err := startSuccessor(s.program, paceName(s.cfg), s.sockets)
	if err != nil {
		return nil, err
	}
	if err = next.awaitReady(); err == nil && s.components.redis == nil {
		err = s.components.limiter.HandOver(next.lanes)
	}
	if err != nil {
		next.kill()
		return nil, err
	}
	// If this fails, the new process has just ended, and no process has the lanes.
	_ = s.components.control.handOver(func(o orders) error {
		return next.control.send(upgradeMessage{Serve: true, Orders: &o})
	})
	go s.followSuccessor(next.control)
	return next, nil
}

// retire ends this process after another has replaced it. Requests that wait for their host's pace may take as long as
// they may wait, and other requests as long as that. After a signal, or after the end of the other process, all have
// the grace. When abort ends, all are aborted.
func (s *service) retire(signaled, abort context.Context) error {
	server, cfg := s.components.server, s.components.control.config()
	grace := cfg.Grace
	s.log.Info("another process serves now; this one ends after its last request", "pid", s.next.process.Pid,
		"active", server.Active(), "tunnels", server.Tunnels())
	ctx, cancel := context.WithTimeout(abort, grace+cfg.Pacing.MaxWaitCap)
	defer cancel()
	go func() {
		select {
		case <-signaled.Done():
		case <-s.next.control.ended:
		case <-ctx.Done():
		}
		time.AfterFunc(grace, cancel)
	}()
	s.proxyListener.hold()
	go func() { _ = s.admin.Shutdown(ctx) }()
	if err := server.Retire(ctx, grace); err != nil && ctx.Err() == nil {
		return err
	}
	if ctx.Err() != nil {
		s.log.Warn("the remaining requests and tunnels were aborted")
	}
	s.awaitPredecessor(ctx)
	return nil
}

// awaitPredecessor waits for the process before this one, whose requests ask for places through this one.
func (s *service) awaitPredecessor(ctx context.Context) {
	prior := s.components.control.prior
	if prior == nil {
		return
	}
	select {
	case <-prior.control.ended:
	case <-ctx.Done():
	}
}
