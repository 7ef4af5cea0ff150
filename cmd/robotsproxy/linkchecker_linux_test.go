package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// LinkChecker becomes the user nobody if root starts it, so that it reads no CA in the folder of root. It trusts the
// CA in the store of the system, which is here the one of a mount namespace.
func TestLinkChecker(t *testing.T) {
	long(t)
	program("linkchecker")(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can give a program another store of the system")
	}
	site := robotstest.New(t)
	site.SetRobots("a.example", robotstest.Robots{Body: clientRobots})
	s, c := startCrawl(t, site, "https", "")
	for _, dir := range []string{"up", "work"} {
		if err := os.Mkdir(filepath.Join(c.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("unshare", "--mount", "sh", "-ec", `
mount -t overlay -o lowerdir=/etc/ssl/certs,upperdir=up,workdir=work overlay /etc/ssl/certs
mount -t tmpfs tmpfs /usr/local/share/ca-certificates
"$1" ca install --system --data-dir "$2" >&2
unset SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE
linkchecker --no-robots --no-status --verbose --output csv "$3" || test $? = 1
`, "sh", binaryPath, s.dir, c.start)
	c.env = append(c.env, "HOME=/nonexistent", "PATH="+os.Getenv("PATH"))
	out := c.output(t, cmd)
	for result, paths := range map[string][]string{"200 OK": site.Pages(), "403 ": site.Private()} {
		for _, path := range paths {
			line := regexp.MustCompile(`(?m)^` + path + `;[^;]*;;` + result)
			if path != "/" && !line.MatchString(out) { // the line of the first URL has no parent
				t.Errorf("the report does not say %q of %s:\n%s", result, path, out)
			}
		}
	}
	checkOrigin(t, site)
}
