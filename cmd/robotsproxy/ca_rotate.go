package main

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/certs"
	"github.com/robotsproxy/robotsproxy/config"
)

// defaultOverlap lets a weekend pass before a client that was forgotten fails.
const defaultOverlap = "72h"

func newCARotate(std stdio) *cobra.Command {
	var overlap string
	var now bool
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Make another CA, and let it sign after a time in which clients learn to trust it",
		Long: `Make another CA. From this moment on everything that clients are handed (env, /ca.pem, ca export) holds both certificates;
the old CA goes on signing until the overlap is over, and then the new one signs and the old one's key is destroyed. A
proxy that is running follows by itself.

  --now  does without an overlap, or ends the one that is under way: for a key that others may have seen. Clients that do
         not trust the new CA yet fail from that moment on. Where the key was seen during an overlap, that of the next CA
         was too: say --now twice, which ends the overlap and then makes another CA.`,
		Example: "  robotsproxy ca rotate --overlap 168h\n  robotsproxy ca install",
		Args:    noArgs,
	}
	withCA(cmd, std, openCA, func(o *openedCA) error {
		if o.cfg.Intercept.CACert != "" {
			return usage(fmt.Errorf("the CA in intercept.ca_cert (%s) is your own: make another with the tools that made it, name its files in intercept.ca_cert and ca_key, and restart", o.cfg.Intercept.CACert))
		}
		lasts, err := readOverlap(overlap, now, cmd.Flags().Changed("overlap"))
		if err != nil {
			return usage(err)
		}
		if err := o.ca.Rotate(lasts); err != nil {
			return err
		}
		if err := refreshTrust(o.cfg.DataDir, o.ca); err != nil {
			return err
		}
		if err := showCA(std, o.ca, time.Now()); err != nil {
			return err
		}
		fmt.Fprintln(std.err, rotated)
		return nil
	})
	cmd.Flags().StringVar(&overlap, "overlap", defaultOverlap, "for this `time`, such as 72h or 7d, the old CA goes on signing")
	cmd.Flags().BoolVar(&now, "now", false, "let the new CA sign at once; ends an overlap that is under way")
	return cmd
}

// readOverlap returns for how long the old CA goes on signing, by the flags.
func readOverlap(text string, now, given bool) (time.Duration, error) {
	switch {
	case now && given:
		return 0, errors.New("--overlap and --now contradict each other: --now does without an overlap")
	case now:
		return 0, nil
	}
	lasts, err := config.ParseDuration(text)
	if err == nil && lasts == 0 {
		err = errors.New("it is no time")
	}
	if err != nil {
		return 0, fmt.Errorf("--overlap: %w; --now does without an overlap", err)
	}
	return lasts, nil
}

const rotated = `
What "robotsproxy env" has written trusts the new CA already; programs that read it at their start need another one. Elsewhere:
  robotsproxy ca install    where the old CA was installed
  robotsproxy ca export     for whoever keeps a copy`

// refreshTrust brings what clients were handed before up to date: our CAs in it are replaced by those of now.
func refreshTrust(dir string, ca *certs.Authority) error {
	bundle, err := os.ReadFile(filepath.Join(dir, bundleFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the CA bundle: %w", err)
	}
	ours, err := ca.CAs()
	if err != nil {
		return err
	}
	return writeBundles(dir, withoutOurs(bundle, ours), ca)
}

// withoutOurs returns bundle without the certificates of ours.
func withoutOurs(bundle []byte, ours []certs.CA) []byte {
	var b bytes.Buffer
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		own := false
		for _, ca := range ours {
			own = own || bytes.Equal(block.Bytes, ca.Certificate.Raw)
		}
		if !own {
			_ = pem.Encode(&b, block) // a buffer takes everything
		}
	}
	return b.Bytes()
}
