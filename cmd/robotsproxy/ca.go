package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/certs"
	"github.com/robotsproxy/robotsproxy/config"
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
		newCAAction(std, "path", "Print where the certificate is", func(ca *certs.Authority) error {
			_, err := fmt.Fprintln(std.out, ca.CertFile())
			return err
		}),
		newCAAction(std, "export", "Print the certificate as PEM (never the key)", func(ca *certs.Authority) error {
			_, err := std.out.Write(ca.PEM())
			return err
		}),
	)
	return cmd
}

func newCAAction(std stdio, name, short string, do func(*certs.Authority) error) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short, Args: noArgs}
	settings := configFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := settings.load(cmd, std)
		if err != nil {
			return err
		}
		ca, err := openCA(cfg)
		if err != nil {
			return err
		}
		return do(ca)
	}
	return cmd
}

// openCA loads the configured CA, or makes one in the data directory.
func openCA(cfg *config.Config) (*certs.Authority, error) {
	ca, err := certs.Open(certs.Options{Dir: cfg.DataDir, CertFile: cfg.Intercept.CACert, KeyFile: cfg.Intercept.CAKey})
	if err != nil {
		return nil, usage(err)
	}
	return ca, nil
}
