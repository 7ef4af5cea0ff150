package main

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/smallstep/truststore"
	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/certs"
)

func newCAInstall(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Let this machine's programs trust the CA",
		Long: `Let this machine's programs trust the CA: put it into the system's store and, where they are there, into the NSS databases
of Firefox and Chromium. While a rotation lasts both CAs go in. What is in already stays; to do it twice does no harm.

The system's store is root's: sudo is asked where it is there. The NSS databases are those of the user who runs this.
Programs that read the variables of "robotsproxy env" need none of it.`,
		Args: noArgs,
	}
	return withStores(cmd, std, openCA, func(s rootStore, c certs.CA) (string, error) {
		if c.Role == certs.Previous {
			return "", nil
		}
		if s.has(c.Certificate) {
			return "there already", nil
		}
		return "installed", s.add(c.Certificate)
	})
}

func newCAUninstall(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Take the CA out of this machine's trust stores",
		Long: `Take the CA, and those that were rotated away, out of the stores that "ca install" knows. No other certificate is touched, and
the files in the data directory stay.`,
		Args: noArgs,
	}
	return withStores(cmd, std, existingCA, func(s rootStore, c certs.CA) (string, error) {
		return "not in any more", s.remove(c.Certificate) // whether it was in, not every store can tell
	})
}

// withStores does something with each of our CAs in each store that the flags name. One store's fault does not keep the
// others from being done.
func withStores(cmd *cobra.Command, std stdio, open caOpener, do func(rootStore, certs.CA) (done string, err error)) *cobra.Command {
	wanted := make(map[string]*bool)
	withCA(cmd, std, open, func(o *openedCA) error {
		all, err := o.ca.CAs()
		if err != nil {
			return err
		}
		var errs []error
		for _, s := range chosenStores(std, wanted) {
			errs = append(errs, s.each(std, all, do, "robotsproxy ca "+cmd.Name()+" --"+s.name+o.flags))
		}
		return errors.Join(errs...)
	})
	for _, s := range stores {
		wanted[s.name] = cmd.Flags().Bool(s.name, false, "only "+s.title+", or those of these flags that are given")
	}
	return cmd
}

// rootStore is a place where programs of this machine look for the CAs that they trust.
type rootStore struct {
	name   string // its flag's
	title  string
	byFlag bool         // it is used only if its flag is given
	check  func() error // says why it cannot be used
	has    func(*x509.Certificate) bool
	add    func(*x509.Certificate) error
	remove func(*x509.Certificate) error
}

var stores = []rootStore{
	{
		name: "system", title: "the system's store",
		check:  func() error { return nil }, // only the attempt tells
		has:    func(*x509.Certificate) bool { return false },
		add:    func(c *x509.Certificate) error { return truststore.Install(c) },
		remove: func(c *x509.Certificate) error { return truststore.Uninstall(c) },
	},
	trustStore("nss", "this user's NSS databases (~/.pki/nssdb of Chromium, the profiles of Firefox)", false, checkNSS, func() truststore.Trust {
		t, _ := truststore.NewNSSTrust() // lookNSS has said why there is none
		return t
	}),
	trustStore("java", "the key store of the Java in JAVA_HOME", true, checkJava, func() truststore.Trust {
		t, _ := truststore.NewJavaTrust()
		return t
	}),
}

// trustStore is a store of the library's other kind. It is opened at each use, since most commands use none.
func trustStore(name, title string, byFlag bool, look func() error, open func() truststore.Trust) rootStore {
	return rootStore{
		name: name, title: title, byFlag: byFlag, check: look,
		has: func(c *x509.Certificate) bool { return open().Exists(c) },
		add: func(c *x509.Certificate) error {
			return truststore.Install(c, truststore.WithTrust(open()), truststore.WithNoSystem())
		},
		remove: func(c *x509.Certificate) error {
			return truststore.Uninstall(c, truststore.WithTrust(open()), truststore.WithNoSystem())
		},
	}
}

func checkNSS() error {
	t, err := truststore.NewNSSTrust()
	if err != nil {
		return errors.New(`certutil is not here; install it: apt install libnss3-tools, dnf install nss-tools or brew install nss`)
	}
	if t.PreCheck() != nil {
		home, _ := os.UserHomeDir() // as good as none in a hint
		db := filepath.Join(home, ".pki", "nssdb")
		return fmt.Errorf("there is no NSS database; start Firefox or Chromium once, or make one: mkdir -p %[1]s && certutil -d sql:%[1]s -N --empty-password", db)
	}
	return nil
}

func checkJava() error {
	if _, err := truststore.NewJavaTrust(); err != nil {
		return errors.New("JAVA_HOME names no Java with bin/keytool")
	}
	return nil
}

// chosen returns the stores whose flags are given, or, without any, those of this machine. Of the others it is said why
// they are passed over.
func chosenStores(std stdio, wanted map[string]*bool) (all []rootStore) {
	asked := false
	for _, given := range wanted {
		asked = asked || *given
	}
	for _, s := range stores {
		if asked {
			if *wanted[s.name] {
				all = append(all, s)
			}
			continue
		}
		if s.byFlag {
			continue
		}
		if err := s.check(); err != nil {
			fmt.Fprintf(std.err, "robotsproxy: not done with %s: %v\n", s.title, err)
			continue
		}
		all = append(all, s)
	}
	return all
}

// each does something with every CA in s and says what was done. again is the command for s alone.
func (s rootStore) each(std stdio, all []certs.CA, do func(rootStore, certs.CA) (string, error), again string) error {
	if err := s.check(); err != nil {
		return fmt.Errorf("%s: %w", s.title, err)
	}
	for _, c := range all {
		done, err := do(s, c)
		if err != nil {
			return fmt.Errorf("%s: %w", s.title, withHint(err, again))
		}
		if done != "" {
			fmt.Fprintf(std.out, "%-15s  %s (SHA-256 %.11s...)  %s\n", done, c.Certificate.Subject.CommonName, certs.Fingerprint(c.Certificate), s.title)
		}
	}
	return nil
}

// withRemedy puts what a program said that the library ran into its error, and what to do where that helps.
func withHint(err error, again string) error {
	if errors.Is(err, truststore.ErrNotSupported) {
		return fmt.Errorf("%w: robotsproxy ca export prints the certificate, which can be put in by hand", err)
	}
	var cmd *truststore.CmdError
	if !errors.As(err, &cmd) {
		return err
	}
	said := string(bytes.TrimSpace(cmd.Out()))
	err = fmt.Errorf("%s: %s (%w)", strings.Join(cmd.Cmd().Args, " "), said, cmd.Err())
	if os.Geteuid() != 0 {
		err = fmt.Errorf("%w; it needs root: sudo %s", err, again)
	}
	return err
}
