//go:build unix

package timelimit_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/timelimit"
)

const childEnv = "ROBOTSPROXY_TEST_TIMELIMIT"

// TestStopped stops a process for longer than its limit lasts. When it goes on, a line that came meanwhile can be read
// before the limit ends.
func TestStopped(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		readWithin(t)
		return
	}
	if testing.Short() {
		t.Skip("it takes some seconds")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestStopped$")
	cmd.Env = append(os.Environ(), childEnv+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(out)
	if line, err := said.ReadString('\n'); line != "waiting\n" {
		t.Fatalf("it said %q, %v", line, err)
	}
	for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if signal == syscall.SIGSTOP {
			time.Sleep(childLimit + 2*time.Second)
			fmt.Fprintln(in, "answer")
		}
	}
	rest, _ := io.ReadAll(said)
	if err := cmd.Wait(); err != nil || !strings.Contains(string(rest), "read answer") {
		t.Errorf("it said %q, %v; want that it has read the answer", rest, err)
	}
}

const childLimit = 4 * time.Second

func readWithin(t *testing.T) {
	c := timelimit.New(t.Context(), childLimit, errLate)
	defer c.End()
	lines := make(chan string)
	go func() {
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		lines <- line
	}()
	fmt.Println("waiting")
	select {
	case <-c.Done():
		fmt.Println("the time is up")
	case line := <-lines:
		fmt.Print("read ", line)
	}
}
