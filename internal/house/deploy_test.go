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

// composeFile is the part of a file for Compose that is tested.
type composeFile struct {
	Services map[string]composeService
	Networks map[string]struct{ Internal bool }
}

type composeService struct {
	Image       string
	Build       any
	ReadOnly    bool     `yaml:"read_only"`
	CapDrop     []string `yaml:"cap_drop"`
	Restart     string
	Networks    any // a list of names, or a map of settings by name
	Volumes     []string
	Environment map[string]string
	Healthcheck struct{ Test []string }
}

// in returns the networks of a service with their settings.
func (s composeService) in() map[string]any {
	if settings, ok := s.Networks.(map[string]any); ok {
		return settings
	}
	all := make(map[string]any)
	names, _ := s.Networks.([]any)
	for _, name := range names {
		all[name.(string)] = nil
	}
	return all
}

// address returns the address of a service in the network backend.
func (s composeService) address() string {
	settings, _ := s.in()["backend"].(map[string]any)
	address, _ := settings["ipv4_address"].(string)
	return address
}

func readCompose(t *testing.T, file string) (f composeFile) {
	t.Helper()
	if err := yaml.Unmarshal(read(t, "../../"+file), &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// A container of the network crawlers has no way out but the proxy, and not the volume with the CA's key.
func TestComposeKeepsCrawlersIn(t *testing.T) {
	for file, door := range map[string]string{"docker-compose.yml": "haproxy", "docker-compose.single.yml": "robotsproxy"} {
		f := readCompose(t, file)
		if !f.Networks["crawlers"].Internal {
			t.Errorf("%s: the network crawlers is not internal", file)
		}
		for name, s := range f.Services {
			_, inside := s.in()["crawlers"]
			if name == door {
				if _, outside := s.in()["default"]; !inside || !outside {
					t.Errorf("%s: %s has the networks %v, want default and crawlers", file, name, s.in())
				}
			} else if inside && (len(s.in()) > 1 || len(s.Volumes) > 0) {
				t.Errorf("%s: %s has the networks %v and the volumes %v, want the network crawlers only, and no volume", file, name, s.in(), s.Volumes)
			}
		}
	}
}

// The services of docker-compose.yml have an exact version, cannot write to their image, have no capability, and are
// checked while they run. One of them builds the image of the proxy.
func TestComposeIsHardened(t *testing.T) {
	version := regexp.MustCompile(`^(robotsproxy:local|[a-z/]+:v?\d+\.\d+(\.\d+)?)$`)
	builds := 0
	for name, s := range readCompose(t, "docker-compose.yml").Services {
		if s.Build != nil {
			builds++
		}
		if !version.MatchString(s.Image) {
			t.Errorf("%s: the image %s has no exact version", name, s.Image)
		}
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) {
			t.Errorf("%s can write to its image, or has capabilities", name)
		}
		if ends := s.Restart == "no"; !ends && len(s.Healthcheck.Test) == 0 {
			t.Errorf("%s has no health check", name)
		}
	}
	if builds != 1 {
		t.Errorf("%d services build, want 1", builds)
	}
}

// The files of the deployment agree on the addresses.
func TestComposeAddresses(t *testing.T) {
	services := readCompose(t, "docker-compose.yml").Services
	for variable, name := range map[string]string{"ROBOTSPROXY_1": "one", "ROBOTSPROXY_2": "two"} {
		if got, want := services["haproxy"].Environment[variable], services[name].address()+":3128"; got != want {
			t.Errorf("%s is %s, and %s is at %s", variable, got, name, want)
		}
	}
	var config struct {
		ProxyProtocol []string `yaml:"proxy_protocol"`
		Admin         struct{ Hosts []string }
	}
	if err := yaml.Unmarshal(read(t, "../../deploy/instance.yaml"), &config); err != nil {
		t.Fatal(err)
	}
	if want := services["haproxy"].address(); !slices.Equal(config.ProxyProtocol, []string{want}) {
		t.Errorf("proxy_protocol is %v, and HAProxy has the address %s", config.ProxyProtocol, want)
	}
	var prometheus struct {
		Jobs []struct {
			Static []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal(read(t, "../../deploy/prometheus/prometheus.yml"), &prometheus); err != nil {
		t.Fatal(err)
	}
	for i, target := range prometheus.Jobs[0].Static[0].Targets {
		if want := config.Admin.Hosts[i] + ":3129"; target != want {
			t.Errorf("Prometheus asks %s, want %s of admin.hosts", target, want)
		}
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
