package house

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

// The image is built by the same command as "make build", which CI runs: no engine for containers is needed to know
// that it builds.
func TestImageIsBuiltAsTheBinaryIs(t *testing.T) {
	build := regexp.MustCompile(`CGO_ENABLED=0 (?:\$\(GO\)|go) build -trimpath -ldflags .* -o \S+ \./cmd/robotsproxy`)
	for _, file := range []string{"../../deploy/Dockerfile", "../../Makefile"} {
		if !build.Match(read(t, file)) {
			t.Errorf("%s builds the binary in another way than %v", file, build)
		}
	}
}

// TestDockerfileIsWellFormed checks that each line of the Dockerfile is an instruction, and that the image does not run
// as root.
func TestDockerfileIsWellFormed(t *testing.T) {
	instruction := regexp.MustCompile(`^(FROM|WORKDIR|COPY|RUN|ARG|VOLUME|EXPOSE|USER|ENTRYPOINT|CMD|HEALTHCHECK) \S`)
	user := ""
	for line := range strings.Lines(string(read(t, "../../deploy/Dockerfile"))) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if !instruction.MatchString(line) {
			t.Errorf("deploy/Dockerfile: %q is no instruction", line)
		}
		if after, ok := strings.CutPrefix(line, "USER "); ok {
			user = after
		}
	}
	if user == "" || strings.HasPrefix(user, "0") || strings.HasPrefix(user, "root") {
		t.Errorf("deploy/Dockerfile ends as user %q", user)
	}
}

// A crawler in a container has no way out but the proxy, and not the volume with the CA's key.
func TestComposeKeepsCrawlersIn(t *testing.T) {
	type service struct {
		Networks []string
		Volumes  []string
	}
	var file struct {
		Services map[string]service
		Networks map[string]struct{ Internal bool }
	}
	if err := yaml.Unmarshal(read(t, "../../docker-compose.yml"), &file); err != nil {
		t.Fatal(err)
	}
	crawler := file.Services["crawler"]
	if !slices.Equal(crawler.Networks, []string{"crawlers"}) || len(crawler.Volumes) > 0 {
		t.Errorf("the service crawler is %+v, want the network crawlers only, and no volume", crawler)
	}
	if !file.Networks["crawlers"].Internal {
		t.Error("the network crawlers is not internal")
	}
	if got := file.Services["robotsproxy"].Networks; !slices.Equal(got, []string{"default", "crawlers"}) {
		t.Errorf("the proxy has the networks %v, want both", got)
	}
}

// The rules for nftables let crawlers reach the proxy only, and do not concern others.
func TestFirewall(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can put rules in force")
	}
	for _, program := range []string{"bash", "unshare", "nsenter", "setpriv", "ip", "nft", "curl", "python3"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	script, err := filepath.Abs("testdata/firewall.sh")
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	if err := exec.Command("unshare", "-n", "true").Run(); err != nil {
		t.Skip("this system has no network namespaces for tests: ", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "-n", "bash", script)
	cmd.Dir, cmd.Stderr = "../../deploy/nftables", &said
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 77 {
		t.Skip("this system lacks a part of the kernel: ", said.String())
	}
	const want = `a crawler of the network reaches http://10.0.2.9/
a crawler of the network reaches http://10.0.2.5:3128/
a crawler of the network does not reach http://10.0.2.5/
a crawler of the network does not reach http://10.0.2.9/
user 1500 reaches http://10.0.2.9/
user 1500 does not reach http://10.0.2.9/
user 1500 reaches http://127.0.0.1:3128/
user 1501 reaches http://10.0.2.9/
`
	if err != nil || string(out) != want {
		t.Errorf("with the rules of deploy/nftables: %v, %s\n%s\nwant\n%s", err, &said, out, want)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
