package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/robotsproxy/robotsproxy/bench/internal/lab"
)

var (
	binary   string // the path of robotsproxy, which TestMain builds as a release is built
	proxyCPU int    // the processor that all proxies run on
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(goproxyEnv); kind != "" {
		fmt.Fprintln(os.Stderr, runGoproxy(kind))
		os.Exit(1)
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	var err error
	if proxyCPU, err = lab.DivideProcessors(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "robotsproxy-bench")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "robotsproxy")
	if err := lab.Build("..", binary); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := results.print(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
