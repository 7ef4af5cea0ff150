package lab

import (
	"fmt"
	"os"
	"os/exec"
)

// Build builds robotsproxy from a source tree as a release is built. flags are further ones of go build.
func Build(source, program string, flags ...string) error {
	args := append([]string{"build", "-trimpath", "-ldflags", "-s -w", "-o", program}, flags...)
	cmd := exec.Command("go", append(args, "./cmd/robotsproxy")...)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building robotsproxy in %s: %w\n%s", source, err, out)
	}
	return nil
}
