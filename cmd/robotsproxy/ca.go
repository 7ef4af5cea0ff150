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
		Long: `The certificate that clients must trust, so that the proxy can judge the paths of HTTPS requests. The first use
creates it.`,
		Args: cobra.ArbitraryArgs,
		RunE: subcommandsOnly,
	}
	cmd.AddCommand(
		newCAAction(std, "show", "Show the CA: subject, fingerprint, validity, and the state of a rotation",
			func(ca *certs.Authority) error { return showCA(std, ca, time.Now()) }),
		newCAAction(std, "path", "Print the path of the certificate", func(ca *certs.Authority) error {
			_, err := fmt.Fprintln(std.out, ca.CertFile())
			return err
		}),
		newCAAction(std, "export", "Print the certificate, during a rotation both, as PEM (never the key)",
			func(ca *certs.Authority) error {
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

// openedCA is the configured CA, and the flags that select it in another command.
type openedCA struct {
	cfg   *config.Config
	ca    *certs.Authority
	flags string
}

// caOpener is openCA or existingCA.
type caOpener func(*config.Config, *slog.Logger) (*certs.Authority, error)

// withCA makes cmd open the configured CA with open and call do.
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

// openCA loads the configured CA, or creates one in the data directory.
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

// existingCA loads the configured CA. It returns an error if there is no CA.
func existingCA(cfg *config.Config, log *slog.Logger) (*certs.Authority, error) {
	if err := checkData(cfg); err != nil {
		return nil, err
	}
	o := caOptions(cfg, log)
	o.Existing = true
	ca, err := certs.Open(o)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usage(fmt.Errorf("there is no CA to begin with; --data-dir or --config selects another folder: %w", err))
	}
	if err != nil {
		return nil, usage(err)
	}
	return ca, nil
}

func caOptions(cfg *config.Config, log *slog.Logger) certs.Options {
	return certs.Options{Dir: cfg.DataDir, CertFile: cfg.Intercept.CACert, KeyFile: cfg.Intercept.CAKey, Logger: log}
}

// errorLog returns a log of errors only, for commands that print what they do.
func errorLog(std stdio, cfg *config.Config) *slog.Logger {
	faults := cfg.Log
	faults.Level = slog.LevelError
	return newLog(std.err, faults)
}

// expiryNoticePeriod is the time before the end of the CA in which warnings are given. The program does not rotate
// automatically: it cannot know which clients trust the next CA already.
const expiryNoticePeriod = 30 * 24 * time.Hour

// expiryNotice returns the warning that ca expires soon, or "".
func expiryNotice(ca *certs.Authority, now time.Time) string {
	end := ca.Ends()
	if end.Sub(now) > expiryNoticePeriod {
		return ""
	}
	return fmt.Sprintf("the CA ends on %s, in %s; from then on clients reject its certificates: "+
		"run robotsproxy ca rotate, or renew your own CA", day(end), approximate(end.Sub(now)))
}

// warnExpiry logs a warning if ca expires soon.
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
	const format = "%-9s %s\n  SHA-256 %s\n  serial  %X\n  valid   %s to %s (%s left)\n  signs   %s\n  file    %s\n"
	_, err := fmt.Fprintf(w, format,
		c.Role, cert.Subject, certs.Fingerprint(cert), cert.SerialNumber,
		day(cert.NotBefore), day(cert.NotAfter), approximate(cert.NotAfter.Sub(now)), signs[c.Role], c.File)
	return err
}

func day(t time.Time) string       { return t.UTC().Format(time.DateOnly) }
func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// approximate formats d in days, or, if it is less than two days, to the minute.
func approximate(d time.Duration) string {
	if d >= 48*time.Hour {
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	}
	if d >= time.Minute {
		d = d.Round(time.Minute)
	}
	return d.Round(time.Second).String()
}
