package main

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/smallstep/truststore"
	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/certs"
)

func newCAInstall(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Make this machine's programs trust the CA",
		Long: `Make this machine's programs trust the CA: add it to the system's store and to existing NSS databases of Firefox
and Chromium. During a rotation it adds both CAs. It can be repeated: a CA that is in a store already stays.

The system's store needs root; the command uses sudo if that is installed. The NSS databases are those of the user who
runs the command; --nss creates ~/.pki/nssdb, which Chromium reads, if that user has no database. Programs that read the variables of "robotsproxy env" do not need it.`,
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
		Short: "Remove the CA from this machine's trust stores",
		Long: `Remove the CA, and those before earlier rotations, from the stores that "ca install" uses. Other certificates and
the files in the data directory stay.`,
		Args: noArgs,
	}
	return withStores(cmd, std, existingCA, func(s rootStore, c certs.CA) (string, error) {
		done := "not there"
		if s.holds(c.Certificate) {
			done = "not in any more"
		}
		return done, s.remove(c.Certificate) // in any case: of several databases only one may have it
	})
}

// storeAction changes a CA in a store, and returns the result for the output.
type storeAction func(rootStore, certs.CA) (done string, err error)

// withStores makes cmd call do for each CA in each store that the flags select. After an error it continues with the
// next store.
func withStores(cmd *cobra.Command, std stdio, open caOpener, do storeAction) *cobra.Command {
	wanted := make(map[string]*bool)
	withCA(cmd, std, open, func(o *openedCA) error {
		all, err := o.ca.CAs()
		if err != nil {
			return err
		}
		var errs []error
		for _, s := range chosenStores(std, wanted) {
			if s.make != nil && *wanted[s.name] && cmd.Name() == "install" {
				errs = append(errs, s.make())
			}
			errs = append(errs, s.each(std, all, do, "robotsproxy ca "+cmd.Name()+" --"+s.name+o.flags))
		}
		return errors.Join(errs...)
	})
	for _, s := range stores {
		wanted[s.name] = cmd.Flags().Bool(s.name, false, "use only "+s.title+"; store flags can be combined")
	}
	return cmd
}

// rootStore is a store of the CAs that programs of this machine trust.
type rootStore struct {
	name   string // of its flag
	title  string
	byFlag bool                         // used only if its flag is given
	check  func() error                 // returns the reason if the store cannot be used
	make   func() error                 // creates the store if its flag is given; nil: it cannot
	has    func(*x509.Certificate) bool // so that add is not needed
	holds  func(*x509.Certificate) bool // so that remove has an effect
	add    func(*x509.Certificate) error
	remove func(*x509.Certificate) error
}

var stores = []rootStore{
	{
		name: "system", title: "the system's store",
		check:  func() error { return nil },                   // only an attempt can show it
		has:    func(*x509.Certificate) bool { return false }, // the program that updates the store may have failed
		holds:  systemHolds,
		add:    func(c *x509.Certificate) error { return truststore.Install(c) },
		remove: func(c *x509.Certificate) error { return truststore.Uninstall(c) },
	},
	trustStore("nss", "this user's NSS databases (~/.pki/nssdb of Chromium, the profiles of Firefox)", false, checkNSS, makeNSS,
		func() truststore.Trust {
			t, _ := truststore.NewNSSTrust() // checkNSS has reported an error
			return t
		}),
	trustStore("java", "the key store of the Java in JAVA_HOME", true, checkJava, nil, func() truststore.Trust {
		t, _ := truststore.NewJavaTrust()
		return t
	}),
}

// trustStore returns a store that the library calls a Trust. It is opened at each use, because most commands do not use
// it.
func trustStore(
	name, title string, byFlag bool, look, create func() error, open func() truststore.Trust,
) rootStore {
	exists := func(c *x509.Certificate) bool { return open().Exists(c) }
	return rootStore{
		name: name, title: title, byFlag: byFlag, check: look, make: create, has: exists, holds: exists,
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
		return errors.New("certutil is not here; install it: " +
			"apt install libnss3-tools, dnf install nss-tools or brew install nss")
	}
	if t.PreCheck() != nil {
		return errNoNSS
	}
	return nil
}

var errNoNSS = errors.New("there is no NSS database; start Firefox or Chromium once, " +
	"or let robotsproxy ca install --nss create one")

// makeNSS creates the database that Chromium reads, without a password, if the user has no database.
func makeNSS() error {
	if err := checkNSS(); err != errNoNSS {
		return err
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return fmt.Errorf("finding the home directory: %w", err)
	}
	db := filepath.Join(home, ".pki", "nssdb")
	if err := os.MkdirAll(db, 0o700); err != nil {
		return err
	}
	create := exec.Command("certutil", "-d", "sql:"+db, "-N", "--empty-password")
	if out, err := create.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %s (%w)", create, bytes.TrimSpace(out), err)
	}
	return nil
}

func checkJava() error {
	if _, err := truststore.NewJavaTrust(); err != nil {
		return errors.New("JAVA_HOME names no Java with bin/keytool")
	}
	return nil
}

// chosenStores returns the stores whose flags are given, or, without such a flag, those that can be used. It reports
// why the others cannot.
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
			fmt.Fprintf(std.err, "robotsproxy: skipping %s: %v\n", s.title, err)
			continue
		}
		all = append(all, s)
	}
	return all
}

// each calls do for every CA and prints the results. again is the command that uses s only.
func (s rootStore) each(std stdio, all []certs.CA, do storeAction, again string) error {
	if err := s.check(); err != nil {
		return fmt.Errorf("%s: %w", s.title, err)
	}
	for _, c := range all {
		done, err := do(s, c)
		if err != nil {
			return fmt.Errorf("%s: %w", s.title, withHint(err, again))
		}
		if done != "" {
			fmt.Fprintf(std.out, "%-15s  %s (SHA-256 %.11s...)  %s\n",
				done, c.Certificate.Subject.CommonName, certs.Fingerprint(c.Certificate), s.title)
		}
	}
	return nil
}

// withHint adds to an error the output of the program that the library ran, and a hint if there is one.
func withHint(err error, again string) error {
	if errors.Is(err, truststore.ErrNotSupported) {
		return fmt.Errorf("%w: robotsproxy ca export prints the certificate, which you can add by hand", err)
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
