package house

import (
	"os"
	"regexp"
	"strings"
	"testing"
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

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
