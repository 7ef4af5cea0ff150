package sealed

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Program is a process in namespaces of its own that waits to become a program.
type Program struct {
	Listener net.Listener // on a free port of 127.0.0.1 inside; the caller closes it

	cmd  *exec.Cmd
	conn *net.UnixConn // to the process
}

// Prepare starts the process of cmd in namespaces of its own. This process runs the executable file of the caller with
// the argument stage, and must call Stage with the arguments that follow. It keeps the user and the groups of the
// caller. The caller must call Close. An error says what the operator can do. Stderr of cmd may not be file 0 or 1:
// package exec would move it over the connection.
func Prepare(cmd *exec.Cmd, stage string) (*Program, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	unix.CloseOnExec(ends[0])
	inner := os.NewFile(uintptr(ends[1]), "connection to the caller") // keeps its number in the process
	defer inner.Close()
	conn, err := connection(ends[0])
	if err != nil {
		return nil, err
	}
	p := &Program{cmd: cmd, conn: conn}
	cmd.Args = append([]string{"robotsproxy", stage, strconv.Itoa(ends[1]), cmd.Path}, cmd.Args...)
	cmd.Path = "/proc/self/exe"
	if cmd.SysProcAttr, err = namespaces(); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(explain(err), conn.Close())
	}
	_ = inner.Close() // so that the end of the process ends the connection
	if p.Listener, err = p.receive(); err != nil {
		return nil, errors.Join(explain(err), p.Close())
	}
	return p, nil
}

// connection returns the connection of the descriptor fd, which it closes.
func connection(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "connection")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.New("the descriptor is not a Unix socket"), conn.Close())
	}
	return unixConn, nil
}

// namespaces returns the attributes of a process with a user and a network namespace of its own. Each user and group
// that the caller may become keeps its number. The process may set up its network.
func namespaces() (*syscall.SysProcAttr, error) {
	attr := &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_NET_ADMIN},
	}
	if os.Geteuid() != 0 {
		return attr, nil
	}
	var users, groups error
	attr.UidMappings, users = identities("/proc/self/uid_map")
	attr.GidMappings, groups = identities("/proc/self/gid_map")
	setgroups, err := os.ReadFile("/proc/self/setgroups")
	attr.GidMappingsEnableSetgroups = string(bytes.TrimSpace(setgroups)) == "allow"
	return attr, errors.Join(users, groups, err)
}

// identities returns a mapping of each number in the file at path to itself.
func identities(path string) (all []syscall.SysProcIDMap, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		var first int
		var outside, size uint64 // more than the int of a 32-bit system
		if _, err := fmt.Sscan(line, &first, &outside, &size); err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		all = append(all, syscall.SysProcIDMap{ContainerID: first, HostID: first, Size: int(min(size, math.MaxInt))})
	}
	return all, nil
}

// maxMessage is the longest error of a process, in bytes.
const maxMessage = 4096

// receive returns the listener that the process has opened, or the error of the process.
func (p *Program) receive() (net.Listener, error) {
	message, control := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4))
	n, length, _, _, err := p.conn.ReadMsgUnix(message, control)
	if err != nil {
		return nil, fmt.Errorf("waiting for the listener: %w", err)
	}
	if length == 0 {
		return nil, stageError(message[:n])
	}
	received, err := unix.ParseSocketControlMessage(control[:length])
	if err != nil {
		return nil, err
	}
	fds, err := unix.ParseUnixRights(&received[0])
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fds[0]), "listener")
	defer f.Close()
	return net.FileListener(f)
}

// stageError returns the error that the process has sent: its number, a space and its text.
func stageError(message []byte) error {
	number, text, found := strings.Cut(string(message), " ")
	errno, err := strconv.Atoi(number)
	if !found || err != nil {
		return errors.New("the process in the network namespace ended before it had a listener")
	}
	if errno == 0 {
		return errors.New(text)
	}
	return fmt.Errorf("%s: %w", text, syscall.Errno(errno))
}

// Exec makes the process the program, with the environment env; of two values of a variable, the last one counts. It
// returns an error if that program cannot be run. The caller waits for the process as for any that it has started.
func (p *Program) Exec(env []string) error {
	p.cmd.Env = env
	_, _ = io.WriteString(p.conn, strings.Join(p.cmd.Environ(), "\x00")+endOfEnv) // an error means that the process was killed
	_ = p.conn.CloseWrite()                                                       // likewise
	message, _ := io.ReadAll(io.LimitReader(p.conn, maxMessage))                  // ends when the program starts
	if len(message) == 0 {
		return nil
	}
	return stageError(message)
}

// Close ends the connection to the process, and the process itself if the caller has not waited for it.
func (p *Program) Close() error {
	err := p.conn.Close()
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill() // an error means that it has just ended
		_ = p.cmd.Wait()         // killed
	}
	return err
}
