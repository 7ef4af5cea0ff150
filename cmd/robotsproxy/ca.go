package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/certs"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/clientenv"
)

func newCA(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ca",
		Short: "The certificate that clients must trust",
		Long:  "The certificate that clients must trust, so that the paths of HTTPS requests can be judged. It is made at the first use.",
		Args:  cobra.ArbitraryArgs,
		RunE:  subcommandsOnly,
	}
	cmd.AddCommand(
		newCAAction(std, "show", "Show the CA: subject, fingerprint, validity, and what a rotation does", func(ca *certs.Authority) error {
			return showCA(std, ca, time.Now())
		}),
		newCAAction(std, "path", "Print where the certificate is", func(ca *certs.Authority) error {
			_, err := fmt.Fprintln(std.out, ca.CertFile())
			return err
		}),
		newCAAction(std, "export", "Print the certificate as PEM (never the key); while a rotation lasts, both", func(ca *certs.Authority) error {
			_, err := std.out.Write(ca.PEM())
			return err
		}),
		newCAInstall(std), newCAUninstall(std), newCARotate(std),
	)
	return cmd
}

func newCAAction(std stdio, name, short string, do func(*certs.Authority) error) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short, Args: noArgs}
	return withCA(cmd, std, openCA, func(o *openedCA) error { return do(o.ca) })
}

// openedCA is the configured CA, and the flags by which another command finds the same one.
type openedCA struct {
	cfg   *config.Config
	ca    *certs.Authority
	flags string
}

// caOpener is openCA or existingCA.
type caOpener func(*config.Config, *slog.Logger) (*certs.Authority, error)

// withCA lets cmd work on the configured CA, as open finds it.
func withCA(cmd *cobra.Command, std stdio, open caOpener, do func(*openedCA) error) *cobra.Command {
	settings := configFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := settings.load(cmd, std)
		if err != nil {
			return err
		}
		ca, err := open(cfg, errorLog(std, cfg))
		if err != nil {
			return err
		}
		o := &openedCA{cfg: cfg, ca: ca, flags: " --data-dir " + clientenv.Quote(cfg.DataDir)}
		if settings.file != "" {
			o.flags = " --config " + clientenv.Quote(settings.file) + o.flags
		}
		return do(o)
	}
	return cmd
}

// openCA loads the configured CA, or makes one in the data directory.
func openCA(cfg *config.Config, log *slog.Logger) (*certs.Authority, error) {
	if err := checkData(cfg); err != nil {
		return nil, err
	}
	ca, err := certs.Open(caOptions(cfg, log))
	if err != nil {
		return nil, usage(err)
	}
	return ca, nil
}

// existingCA loads the configured CA, and makes none.
func existingCA(cfg *config.Config, log *slog.Logger) (*certs.Authority, error) {
	if err := checkData(cfg); err != nil {
		return nil, err
	}
	o := caOptions(cfg, log)
	o.Existing = true
	ca, err := certs.Open(o)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usage(fmt.Errorf("there is no CA to begin with; another folder is named by --data-dir or --config: %w", err))
	}
	if err != nil {
		return nil, usage(err)
	}
	return ca, nil
}

func caOptions(cfg *config.Config, log *slog.Logger) certs.Options {
	return certs.Options{Dir: cfg.DataDir, CertFile: cfg.Intercept.CACert, KeyFile: cfg.Intercept.CAKey, Logger: log}
}

// faultLog is for commands that say themselves what they do.
func errorLog(std stdio, cfg *config.Config) *slog.Logger {
	faults := cfg.Log
	faults.Level = slog.LevelError
	return newLog(std.err, faults)
}

// caNotice is how long before the end of the CA it is said. The program never rotates by itself: it cannot know which
// clients still have to be told to trust the next CA.
const expiryNoticePeriod = 30 * 24 * time.Hour

// endNotice says that ca ends soon and what to do, or nothing.
func expiryNotice(ca *certs.Authority, now time.Time) string {
	end := ca.Ends()
	if end.Sub(now) > expiryNoticePeriod {
		return ""
	}
	return fmt.Sprintf("the CA ends on %s, in %s; from then on no client accepts what it signs: run robotsproxy ca rotate, or have your own CA renewed", day(end), approximate(end.Sub(now)))
}

// warnOfEnd tells the log when ca ends soon.
func warnExpiry(ca *certs.Authority, log *slog.Logger) {
	if notice := expiryNotice(ca, time.Now()); notice != "" {
		log.Warn(notice)
	}
}

func showCA(std stdio, ca *certs.Authority, now time.Time) error {
	all, err := ca.CAs()
	if err != nil {
		return err
	}
	for _, c := range all {
		if err := writeCA(std.out, c, now); err != nil {
			return err
		}
	}
	if notice := expiryNotice(ca, now); notice != "" {
		fmt.Fprintln(std.err, "robotsproxy: warning:", notice)
	}
	return nil
}

func writeCA(w io.Writer, c certs.CA, now time.Time) error {
	signs := map[certs.Role]string{
		certs.Active:   "now",
		certs.Next:     fmt.Sprintf("from %s, in %s", timestamp(c.From), approximate(c.From.Sub(now))),
		certs.Previous: "never again: its key is destroyed",
	}
	cert := c.Certificate
	_, err := fmt.Fprintf(w, "%-9s %s\n  SHA-256 %s\n  serial  %X\n  valid   %s to %s (%s left)\n  signs   %s\n  file    %s\n",
		c.Role, cert.Subject, certs.Fingerprint(cert), cert.SerialNumber, day(cert.NotBefore), day(cert.NotAfter), approximate(cert.NotAfter.Sub(now)), signs[c.Role], c.File)
	return err
}

func day(t time.Time) string       { return t.UTC().Format(time.DateOnly) }
func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// span tells people how long something takes: in days, or below two of them by the minute.
func approximate(d time.Duration) string {
	if d >= 48*time.Hour {
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	}
	if d >= time.Minute {
		d = d.Round(time.Minute)
	}
	return d.Round(time.Second).String()
}
