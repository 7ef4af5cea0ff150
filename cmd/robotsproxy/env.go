package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

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

env creates the CA if there is none, and writes the files that the variables name into the data directory.`,
		Args: noArgs,
	}
	settings := configFlags(cmd, "listen")
	cmd.Flags().StringVar(&shell, "shell", "sh", "write the syntax of `sh`, fish or pwsh")
	shells := cobra.FixedCompletions(clientenv.Shells(), cobra.ShellCompDirectiveNoFileComp)
	_ = cmd.RegisterFlagCompletionFunc("shell", shells) // the flag exists
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		assignment, err := clientenv.Assignment(shell)
		if err != nil {
			return usage(fmt.Errorf("--shell: %w", err))
		}
		cfg, err := settings.load(cmd, std)
		if err != nil {
			return err
		}
		ca, err := openCA(cfg, errorLog(std, cfg))
		if err != nil {
			return err
		}
		vars, err := clientenv.Write(clientenv.Options{
			Listen: cfg.Listen, TLS: hasTLS(cfg), CA: ca.PEM(), Dir: cfg.DataDir,
		})
		if err != nil {
			return err
		}
		if cfg.Auth.Required {
			fmt.Fprintln(std.err, "robotsproxy:", passwordHint(cfg))
		}
		if hasTLS(cfg) {
			fmt.Fprintln(std.err, "robotsproxy:", tlsHint)
		}
		warnReplaced(std, vars)
		for _, v := range vars {
			if _, err := fmt.Fprintln(std.out, assignment(v)); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

// warnReplaced names the proxy variables of the user that vars replace.
func warnReplaced(std stdio, vars []clientenv.Variable) {
	if names := clientenv.Replaced(vars); len(names) > 0 {
		fmt.Fprintf(std.err, "robotsproxy: replacing the values of %s\n", strings.Join(names, ", "))
	}
}
