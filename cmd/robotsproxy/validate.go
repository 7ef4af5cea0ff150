package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

func newValidate(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check a configuration and report all errors at once",
		Args:  noArgs,
	}
	settings := configFlags(cmd, "listen", "admin.listen", "mode")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := settings.load(cmd, std)
		if err != nil {
			return err
		}
		if _, err := newPolicy(cfg); err != nil {
			return usage(err)
		}
		if err := checkOwnData(cfg); err != nil {
			return err
		}
		guard, err := newGuard(cfg)
		if err != nil {
			return err
		}
		protectListeners(guard, cfg)
		warn := func(err error) {
			fmt.Fprintf(std.err, "robotsproxy: warning: %s: %s\n", unresolvedUpstream, safetext.Lines(err.Error()))
		}
		if err := checkUpstream(guard, warn); err != nil {
			return usage(err)
		}
		if _, err := newUsers(cfg, nil); err != nil {
			return err
		}
		if _, err := newCertificates(cfg); err != nil {
			return err
		}
		lists, err := readHostLists(cfg, nil)
		if err != nil {
			return err
		}
		signers, err := newSigners(cfg)
		if err != nil {
			return err
		}
		for _, fault := range signers.unsigned(time.Now()) {
			fmt.Fprintf(std.err, "robotsproxy: warning: %s\n", fault)
		}
		prefix := ""
		if settings.file != "" {
			prefix = settings.file + ": "
		}
		const format = "%sconfiguration OK: proxy at %s, admin at %s, mode %s, %d clients, %d hosts, %d exemptions\n%s"
		_, err = fmt.Fprintf(std.out, format, prefix, cfg.Listen, cfg.Admin.Listen, cfg.Mode,
			len(cfg.Clients), len(cfg.Hosts), len(cfg.Exemptions), lists.summary())
		return err
	}
	return cmd
}
