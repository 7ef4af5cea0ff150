//go:build linux

package main

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"github.com/robotsproxy/robotsproxy/bench/internal/lab"
)

// peer is a proxy that is measured.
type peer struct {
	name    string
	about   string // its settings, for the report
	skills  skill
	tunnels bool                                       // it is left out of scenarios in clear, in which another peer is the same
	find    func(b *bench) (version string, err error) // an error is the reason why it is left out
	start   func(s *setting) (*exec.Cmd, error)
	version string // after find
}

func (p *peer) String() string { return p.name }

// skill is what a proxy can do besides requests in clear.
type skill uint8

const (
	intercepts skill = 1 << iota
	speaksHTTP2
	mapsHosts
)

// reasons say why a peer without a skill is left out of a scenario.
var reasons = map[skill]string{
	intercepts:  "with these settings it passes tunnels on unread",
	speaksHTTP2: "with these settings it does not speak HTTP/2 with clients",
	mapsHosts:   "it has no setting for the addresses of hosts, and the system does not know them",
}

// setting is where one process of a peer runs.
type setting struct {
	*bench
	dir         string // its own, with web.pem: the CA of the origin
	addr, admin string
	intercept   bool   // whether tunnels are opened, in peers that can also pass them on
	lines       string // further lines of a configuration
}

// peers are in the order of the report.
var peers = []*peer{
	{
		name: robotsproxyName, skills: intercepts | speaksHTTP2 | mapsHosts,
		about: "everything on: robots.txt of 25 rules, lanes (`max_concurrent: 0`), guard, records in SQLite and as JSON lines",
		find:  findRobotsproxy, start: (*setting).robotsproxy,
	},
	{
		name: "goproxy", skills: intercepts | mapsHosts,
		about: "as its README shows it: built-in RSA CA, HTTP/1.1; with a certificate cache",
		find:  findGoproxy, start: (*setting).goproxyAsIs,
	},
	{
		name: "goproxy-tuned", skills: intercepts | speaksHTTP2, tunnels: true,
		about: "P-256 CA, HTTP/2; with a certificate cache; in clear it is goproxy",
		find:  findGoproxy, start: (*setting).goproxyTuned,
	},
	{
		name: "squid", skills: intercepts | mapsHosts,
		about: "no cache, no access log, P-256 CA; ssl-bump for intercepted requests",
		find:  findSquid, start: (*setting).squid,
	},
	{
		name: "tinyproxy", about: "`MaxClients 3000`, log of critical errors alone",
		find: findProgram("tinyproxy", "-v"), start: (*setting).tinyproxy,
	},
	{
		name: "privoxy", about: "no filters and actions, no log, `max-client-connections 5000`, `connection-sharing 1`",
		find: findProgram("privoxy", "--version"), start: (*setting).privoxy,
	},
	{
		name: "mitmproxy", skills: intercepts | speaksHTTP2,
		about: "mitmdump, quiet, `stream_large_bodies=1m`, `connection_strategy=lazy`, `upstream_cert=false`",
		find:  findProgram("mitmdump", "--version"), start: (*setting).mitmproxy,
	},
}

// robotsproxyName is the peer that the others are compared with.
const robotsproxyName = "robotsproxy"

// start starts a peer. Another program may take its address before it listens there, so there are three attempts.
func (b *bench) start(p *peer, intercept bool, lines string) (running *process, err error) {
	for range 3 {
		if running, err = b.startOnce(p, intercept, lines); err == nil {
			return running, nil
		}
	}
	return nil, err
}

func (b *bench) startOnce(p *peer, intercept bool, lines string) (running *process, err error) {
	s := &setting{bench: b, intercept: intercept, lines: lines}
	if s.dir, err = os.MkdirTemp(b.dir, p.name); err != nil {
		return nil, err
	}
	if err := s.write("web.pem", string(b.origin.ca.PEM())); err != nil {
		return nil, err
	}
	if s.addr, err = freeAddr(); err != nil {
		return nil, err
	}
	if s.admin, err = freeAddr(); err != nil {
		return nil, err
	}
	cmd, err := p.start(s)
	if err != nil {
		return nil, err
	}
	if running, err = start(b.proxyCPU, cmd, s.addr); err != nil {
		return nil, err
	}
	if running.admin = s.admin; p.skills&intercepts == 0 || !intercept {
		return running, nil
	}
	if err := running.trust(s.file("ca.pem")); err != nil {
		running.stop()
		return nil, err
	}
	return running, nil
}

func (s *setting) file(name string) string { return filepath.Join(s.dir, name) }

func (s *setting) write(name, text string) error {
	return os.WriteFile(s.file(name), []byte(text), 0o644)
}

func (s *setting) port() string { return s.addr[strings.LastIndexByte(s.addr, ':')+1:] }

// findRobotsproxy returns the commit of the source tree too, if there is one.
func findRobotsproxy(b *bench) (string, error) {
	version, err := versionOf(b.program, "version")
	if err != nil || b.source == "" {
		return version, err
	}
	commit, err := exec.Command("git", "-C", b.source, "describe", "--always", "--dirty").Output()
	if err != nil {
		return version, nil
	}
	return version + " " + strings.TrimSpace(string(commit)), nil
}

func (s *setting) robotsproxy() (*exec.Cmd, error) {
	config := fmt.Sprintf(`egress:
  allow_addresses: [127.0.0.0/8]
  ca_file: web.pem
  resolve: {localhost: 127.0.0.1, "*%s": 127.0.0.1}
pacing:
  max_concurrent: 0
%s`, domain, s.lines)
	if err := s.write("config.yaml", config); err != nil {
		return nil, err
	}
	data := s.file("data")
	if err := os.Symlink(filepath.Join("data", "ca.pem"), s.file("ca.pem")); err != nil {
		return nil, err
	}
	return exec.Command(s.program, "serve", "--config", s.file("config.yaml"), "--data-dir", data,
		"--listen", s.addr, "--admin-listen", s.admin), nil
}

func findGoproxy(*bench) (string, error) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", errors.New("this program does not know its modules")
	}
	for _, m := range info.Deps {
		if m.Path == "github.com/elazarl/goproxy" {
			return m.Version, nil
		}
	}
	return "", errors.New("this program contains no goproxy")
}

func (s *setting) goproxyAsIs() (*exec.Cmd, error)  { return s.goproxy(asIs) }
func (s *setting) goproxyTuned() (*exec.Cmd, error) { return s.goproxy(tuned) }

func (s *setting) goproxy(kind string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), goproxyEnv+"="+kind, goproxyAddrEnv+"="+s.addr)
	return cmd, nil
}

const certgen = "/usr/lib/squid/security_file_certgen"

func findSquid(b *bench) (string, error) {
	version, err := findProgram("squid", "-v")(b)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(certgen); err != nil {
		return "", fmt.Errorf("its package is not squid-openssl: %w", err)
	}
	return version, nil
}

func (s *setting) squid() (*exec.Cmd, error) {
	var bump string
	if s.intercept {
		var err error
		if bump, err = s.bump(); err != nil {
			return nil, err
		}
	}
	var hosts strings.Builder
	hosts.WriteString("127.0.0.1 localhost\n")
	for i := range s.sizes.hosts {
		fmt.Fprintf(&hosts, "127.0.0.1 %s\n", hostName(i))
	}
	if err := s.write("hosts", hosts.String()); err != nil {
		return nil, err
	}
	config := fmt.Sprintf(`http_port %s %s
http_access allow all
cache deny all
access_log none
cache_log %s
pid_filename none
hosts_file %s
max_filedescriptors 16384
coredump_dir %s
pinger_enable off
shutdown_lifetime 0 seconds
`, s.addr, bump, s.file("cache.log"), s.file("hosts"), s.dir)
	if err := s.write("squid.conf", config); err != nil {
		return nil, err
	}
	return s.unprivileged(program("squid"), "-N", "-f", s.file("squid.conf"))
}

// bump prepares the interception, and returns the options of the port with further lines.
func (s *setting) bump() (string, error) {
	ca, err := lab.NewAuthority("squid")
	if err != nil {
		return "", err
	}
	key, err := x509.MarshalPKCS8PrivateKey(ca.Pair().PrivateKey)
	if err != nil {
		return "", err
	}
	if err := s.write("ca.pem", string(ca.PEM())); err != nil {
		return "", err
	}
	both := string(ca.PEM()) + string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	if err := s.write("pair.pem", both); err != nil {
		return "", err
	}
	create, err := s.unprivileged(certgen, "-c", "-s", s.file("leaves"), "-M", "16MB")
	if err != nil {
		return "", err
	}
	if out, err := create.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", create, err, out)
	}
	return fmt.Sprintf(`ssl-bump generate-host-certificates=on dynamic_cert_mem_cache_size=16MB tls-cert=%s
sslcrtd_program %s -s %s -M 16MB
tls_outgoing_options cafile=%s
ssl_bump bump all`, s.file("pair.pem"), certgen, s.file("leaves"), s.file("web.pem")), nil
}

// unprivileged returns a command that runs as the user proxy if this process is root: squid does not run as root. The
// folder of the setting is that user's then.
func (s *setting) unprivileged(name string, args ...string) (*exec.Cmd, error) {
	cmd := exec.Command(name, args...)
	if os.Getuid() != 0 {
		return cmd, nil
	}
	owner, err := user.Lookup("proxy")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.Atoi(owner.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(owner.Gid)
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	return cmd, errors.Join(os.Chmod(s.dir, 0o755), os.Chown(s.dir, uid, gid))
}

func (s *setting) tinyproxy() (*exec.Cmd, error) {
	config := fmt.Sprintf("Port %s\nListen 127.0.0.1\nTimeout 600\nMaxClients 3000\nLogLevel Critical\nLogFile %q\nAllow 127.0.0.1\n",
		s.port(), s.file("log"))
	return exec.Command(program("tinyproxy"), "-d", "-c", s.file("config")), s.write("config", config)
}

func (s *setting) privoxy() (*exec.Cmd, error) {
	config := fmt.Sprintf(`listen-address %s
confdir %s
logdir %s
toggle 0
max-client-connections 5000
keep-alive-timeout 300
default-server-timeout 300
socket-timeout 300
connection-sharing 1
tolerate-pipelining 1
`, s.addr, s.dir, s.dir)
	return exec.Command(program("privoxy"), "--no-daemon", s.file("config")), s.write("config", config)
}

func (s *setting) mitmproxy() (*exec.Cmd, error) {
	if err := os.Symlink("mitmproxy-ca-cert.pem", s.file("ca.pem")); err != nil {
		return nil, err
	}
	return exec.Command(program("mitmdump"), "-q", "--listen-host", "127.0.0.1", "-p", s.port(), "--set", "confdir="+s.dir,
		"--set", "ssl_verify_upstream_trusted_ca="+s.file("web.pem"), "--set", "stream_large_bodies=1m",
		"--set", "connection_strategy=lazy", "--set", "upstream_cert=false"), nil
}

// program returns the path of a program, which may be in a folder for administrators. It is empty if there is none.
func program(name string) string {
	for _, path := range []string{name, "/usr/sbin/" + name} {
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	return ""
}

func findProgram(name, flag string) func(*bench) (string, error) {
	return func(*bench) (string, error) {
		path := program(name)
		if path == "" {
			return "", errors.New("it is not installed")
		}
		return versionOf(path, flag)
	}
}

var versionNumber = regexp.MustCompile(`\d+\.\d+[\w.-]*|[0-9a-f]{7,}\S*|devel\S*`)

// versionOf runs a program to learn its version.
func versionOf(path, flag string) (string, error) {
	out, err := exec.Command(path, flag).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", path, flag, err, out)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	if version := versionNumber.FindString(line); version != "" {
		return version, nil
	}
	return line, nil
}
