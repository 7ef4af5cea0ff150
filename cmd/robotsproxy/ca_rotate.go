package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/certs"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/clientenv"
)

// defaultOverlap spans a weekend, so that a client that was forgotten fails on a working day.
const defaultOverlap = "72h"

func newCARotate(std stdio) *cobra.Command {
	var overlap string
	var now bool
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Create the next CA, which signs after an overlap in which clients learn to trust it",
		Long: `Create the next CA. From now on clients get both certificates (env, /ca.pem, ca export). The old CA signs until
the overlap ends; then the new one signs, and the key of the old one is destroyed. A running proxy follows without a
restart.

  --now  skips the overlap, or ends a running one. Use it if others may have seen the key. Clients that do not trust the
         new CA yet fail from then on. If the key was exposed during an overlap, so was the key of the next CA: run
         --now twice, which ends the overlap and then creates another CA.`,
		Example: "  robotsproxy ca rotate --overlap 168h\n  robotsproxy ca install",
		Args:    noArgs,
	}
	withCA(cmd, std, openCA, func(o *openedCA) error {
		if o.cfg.Intercept.CACert != "" {
			return usage(fmt.Errorf("the CA in intercept.ca_cert (%s) is your own: create the next one with your own tools, "+
				"set intercept.ca_cert and ca_key to its files, and restart", o.cfg.Intercept.CACert))
		}
		lasts, err := readOverlap(overlap, now, cmd.Flags().Changed("overlap"))
		if err != nil {
			return usage(err)
		}
		if err := o.ca.Rotate(lasts); err != nil {
			return err
		}
		if err := refreshClients(o.cfg.DataDir, o.ca); err != nil {
			return err
		}
		if err := showCA(std, o.ca, time.Now()); err != nil {
			return err
		}
		fmt.Fprintln(std.err, rotatedHint)
		return nil
	})
	cmd.Flags().StringVar(&overlap, "overlap", defaultOverlap, "let the old CA sign for this `TIME`, such as 72h or 7d")
	cmd.Flags().BoolVar(&now, "now", false, "let the new CA sign at once; ends a running overlap")
	return cmd
}

// readOverlap returns the time for which the old CA still signs. given reports whether --overlap was given.
func readOverlap(text string, now, given bool) (time.Duration, error) {
	switch {
	case now && given:
		return 0, errors.New("--overlap and --now contradict each other: --now does without an overlap")
	case now:
		return 0, nil
	}
	lasts, err := config.ParseDuration(text)
	if err == nil && lasts == 0 {
		err = errors.New("must not be zero")
	}
	if err != nil {
		return 0, fmt.Errorf("--overlap: %w; --now does without an overlap", err)
	}
	return lasts, nil
}

const rotatedHint = `
The files of "robotsproxy env" hold the new CA already; restart programs that read them at their start. Elsewhere:
  robotsproxy ca install    on every machine on which the old CA was installed
  robotsproxy ca export     for every copy of the old CA`

// refreshClients replaces the CA in the files that "env" and "run" wrote.
func refreshClients(dir string, ca *certs.Authority) error {
	all, err := ca.CAs()
	if err != nil {
		return err
	}
	var old []*x509.Certificate
	for _, c := range all {
		old = append(old, c.Certificate)
	}
	return clientenv.Refresh(dir, old, ca.PEM())
}
