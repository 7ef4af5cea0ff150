package clientenv

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/robotsproxy/robotsproxy/internal/durable"
)

// wgetrcFile is the name of wget's configuration in Options.WgetDir.
const wgetrcFile = "wgetrc"

// writeWgetrc writes wget's configuration for the proxy with the given URL and the bundle in dir to path. It is needed because
// Debian builds wget with GnuTLS, which ignores SSL_CERT_FILE. WGETRC replaces the user's own file, so that file's text
// comes first. The proxy is named after it: the last setting wins, and a setting wins over the proxy variables.
func writeWgetrc(path, proxy, dir string) error {
	var b bytes.Buffer
	if user, err := os.ReadFile(userWgetrc(dir)); err == nil {
		b.Write(user)
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "use_proxy = on\nhttp_proxy = %[1]s/\nhttps_proxy = %[1]s/\nca_certificate = %[2]s\n",
		proxy, filepath.Join(dir, bundleFile))
	if err := durable.Replace(path, b.Bytes(), 0o600); err != nil {
		return fmt.Errorf("writing the configuration for wget: %w", err)
	}
	return nil
}

// userWgetrc returns the file that wget reads without the proxy: WGETRC, unless it is the one in dir, or ~/.wgetrc.
func userWgetrc(dir string) string {
	if user := os.Getenv("WGETRC"); user != "" && user != filepath.Join(dir, wgetrcFile) {
		return user
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".wgetrc")
}
