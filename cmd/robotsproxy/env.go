package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/clientenv"
)

func newEnv(std stdio) *cobra.Command {
	var shell string
	cmd := &cobra.Command{
		Use:   "env",
		Short: `Print the variables that send this shell's programs through the proxy: eval "$(robotsproxy env)"`,
		Long: `Print the variables that send this shell's programs through the proxy and make them trust its CA:

  eval "$(robotsproxy env)"                      sh, bash, zsh
  robotsproxy env --shell fish | source          fish
  robotsproxy env --shell pwsh | Invoke-Expression

The files that the variables name are in the data directory. If that has no CA or belongs to another user, env gets the
CA from the proxy that runs at listen or admin.listen, over a loopback address, and writes the files into your cache
directory. It prints the fingerprint of that CA, for you to compare with "robotsproxy ca show". If no proxy runs, env
creates the CA.

  eval "$(robotsproxy env --proxy http://robotsproxy:3128)"

is for a proxy on another machine or outside of a container. Over such a network others could replace the CA: compare its
fingerprint, unless nobody else is on that network.`,
		Args: noArgs,
	}
	settings := configFlags(cmd, "listen", "admin.listen")
	adminURL := cmd.Flags().String("admin", "", "get the CA from the instance with this `URL` of the admin listener")
	proxyURL := cmd.Flags().String("proxy", "", "name the proxy at this `URL` of another machine, and get its CA from there;\nno configuration is read")
	cmd.Flags().StringVar(&shell, "shell", "sh", "write the syntax of `SHELL`: sh, fish or pwsh")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		assignment, err := clientenv.Assignment(shell)
		if err != nil {
			return usage(fmt.Errorf("--shell: %w", err))
		}
		vars, err := variablesFor(cmd, settings, *proxyURL, *adminURL, std)
		if err != nil {
			return err
		}
		for _, v := range vars {
			if _, err := fmt.Fprintln(std.out, assignment(v)); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

// variablesFor returns the variables for the proxy at proxyURL, or if that is empty for the one of the configuration.
func variablesFor(cmd *cobra.Command, settings *configSource, proxyURL, adminURL string, std stdio) ([]clientenv.Variable, error) {
	if proxyURL != "" {
		return remoteVariables(cmd.Context(), proxyURL, std)
	}
	cfg, err := settings.load(cmd, std)
	if err != nil {
		return nil, err
	}
	ca, err := findClientCA(cmd.Context(), cfg, adminURL, std)
	if err != nil {
		return nil, err
	}
	return clientVariables(cfg, ca, std)
}

// remoteVariables writes the files for clients of the proxy at a URL, and returns the variables that name them.
func remoteVariables(ctx context.Context, proxyURL string, std stdio) ([]clientenv.Variable, error) {
	u, err := url.Parse(proxyURL)
	if err != nil || u.Scheme != "http" || u.Port() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return nil, usage(fmt.Errorf("--proxy %q is not a URL such as http://robotsproxy:3128", proxyURL))
	}
	fetched, err := fetchCA(ctx, url.URL{Scheme: u.Scheme, Host: u.Host})
	if err != nil {
		return nil, err
	}
	ca, err := fetched.keep(std)
	if err != nil {
		return nil, err
	}
	vars, err := clientenv.Write(clientenv.Options{Listen: u.Host, CA: ca.pem, Dir: ca.dir})
	if err != nil {
		return nil, err
	}
	warnReplaced(std, vars)
	return vars, nil
}

// clientVariables writes the files for clients of the proxy that runs with cfg, and returns the variables that name them.
func clientVariables(cfg *config.Config, ca clientCA, std stdio) ([]clientenv.Variable, error) {
	vars, err := clientenv.Write(clientenv.Options{Listen: cfg.Listen, TLS: hasTLS(cfg), CA: ca.pem, Dir: ca.dir})
	if err != nil {
		return nil, err
	}
	if cfg.Auth.Required {
		fmt.Fprintln(std.err, "robotsproxy:", passwordHint(cfg))
	}
	if hasTLS(cfg) {
		fmt.Fprintln(std.err, "robotsproxy:", tlsHint)
	}
	warnReplaced(std, vars)
	return vars, nil
}

// warnReplaced names the proxy variables of the user that vars replace.
func warnReplaced(std stdio, vars []clientenv.Variable) {
	if names := clientenv.Replaced(vars); len(names) > 0 {
		fmt.Fprintf(std.err, "robotsproxy: replacing the values of %s\n", strings.Join(names, ", "))
	}
}
