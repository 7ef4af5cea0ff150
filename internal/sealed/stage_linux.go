package sealed

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// endOfEnv follows the environment, whose variables NUL separates. Without it the caller ended before it had sent all.
const endOfEnv = "\x00\x00"

// Stage is the first part of a process that Prepare has started. args are those that Prepare has added. Stage opens the
// listener, passes it to the caller of Prepare, waits for Exec, and becomes the program. It returns nil if it fails
// after the caller is known, which then has the error.
func Stage(args []string) error {
	if len(args) < 3 {
		return errors.New("this command is a part of robotsproxy run --sealed")
	}
	fd, err := strconv.Atoi(args[0])
	if err != nil {
		return fmt.Errorf("the descriptor of the connection: %w", err)
	}
	conn, err := connection(fd)
	if err != nil {
		return err
	}
	if err := become(conn, args[1], args[2:]); err != nil {
		tell(conn, err)
	}
	return nil
}

// become makes this process the program at path when the caller says so.
func become(conn *net.UnixConn, path string, args []string) error {
	runtime.LockOSThread() // capabilities belong to a thread
	if err := offerListener(conn); err != nil {
		return err
	}
	text, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	env, complete := strings.CutSuffix(string(text), endOfEnv)
	if !complete {
		return errors.New("the caller has ended")
	}
	var none [2]unix.CapUserData // also ends the ambient capabilities; the program of root gets its own back
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
		return os.NewSyscallError("capset", err)
	}
	err = syscall.Exec(path, args, strings.Split(env, "\x00"))
	return &os.PathError{Op: "exec", Path: path, Err: err}
}

// tell sends err to the caller: its number, a space and its text.
func tell(conn net.Conn, err error) {
	var errno syscall.Errno
	text := err.Error()
	if errors.As(err, &errno) {
		text = strings.TrimSuffix(text, ": "+errno.Error())
	}
	_, _ = fmt.Fprintf(conn, "%d %s", errno, text) // without a caller, the program does not start
}

// offerListener opens a listener and passes it on.
func offerListener(conn *net.UnixConn) error {
	if err := raiseLoopback(); err != nil {
		return fmt.Errorf("setting up the loopback interface: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	defer f.Close()
	_, _, err = conn.WriteMsgUnix([]byte{0}, unix.UnixRights(int(f.Fd())), nil)
	return err
}

// raiseLoopback puts the interface lo up, which also gives it 127.0.0.1 and ::1.
func raiseLoopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(s)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return os.NewSyscallError("ioctl", unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo))
}
