package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

func newEnv(std stdio) *cobra.Command {
	var shell string
	cmd := &cobra.Command{
		Use:   "env",
		Short: `Print what sends this shell's programs through the proxy: eval "$(robotsproxy env)"`,
		Long: `Print the variables that send a shell's programs through the proxy and make them trust its CA:

  eval "$(robotsproxy env)"                      sh, bash, zsh
  robotsproxy env --shell fish | source          fish
  robotsproxy env --shell pwsh | Invoke-Expression

It makes the CA if there is none, and writes the files that the variables name into the data directory.`,
		Args: noArgs,
	}
	settings := configFlags(cmd, "listen")
	cmd.Flags().StringVar(&shell, "shell", "sh", "write for `sh`, fish or pwsh")
	_ = cmd.RegisterFlagCompletionFunc("shell", cobra.FixedCompletions([]string{"sh", "fish", "pwsh"}, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		write, ok := shells[shell]
		if !ok {
			return usage(fmt.Errorf("--shell %q is none of sh, fish and pwsh", shell))
		}
		cfg, err := settings.load(cmd, std)
		if err != nil {
			return err
		}
		ca, err := openCA(cfg, faultLog(std, cfg))
		if err != nil {
			return err
		}
		if err := writeTrust(cfg.DataDir, ca); err != nil {
			return err
		}
		settings := filepath.Join(cfg.DataDir, wgetFile)
		if err := writeWgetrc(settings, cfg.Listen, cfg.DataDir); err != nil {
			return err
		}
		vars, err := environment(cfg.Listen, cfg.DataDir, settings)
		if err != nil {
			return err
		}
		if cfg.Auth.Required {
			fmt.Fprintln(std.err, "robotsproxy:", passwordHint)
		}
		return printEnvironment(std, vars, write)
	}
	return cmd
}

func printEnvironment(std stdio, vars []variable, write func(variable) string) error {
	if names := replaced(vars); len(names) > 0 {
		fmt.Fprintf(std.err, "robotsproxy: replacing the values of %s\n", strings.Join(names, ", "))
	}
	for _, v := range vars {
		if v.name == "JAVA_TOOL_OPTIONS" {
			v.value = besideOwnJava(v.value)
		}
		if _, err := fmt.Fprintln(std.out, write(v)); err != nil {
			return err
		}
	}
	return nil
}

// besideOwnJava puts our Java options behind the user's own, without those of an earlier call.
func besideOwnJava(ours string) string {
	own, _, _ := strings.Cut(os.Getenv("JAVA_TOOL_OPTIONS"), "-Dhttp.proxyHost=")
	return strings.TrimSpace(strings.TrimSpace(own) + " " + ours)
}

// shells write an assignment that exports, with the value quoted so that nothing in it is read as a command.
var shells = map[string]func(variable) string{
	"sh": func(v variable) string {
		return "export " + v.name + "=" + quote(v.value)
	},
	"fish": func(v variable) string {
		return "set -gx " + v.name + " '" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(v.value) + "'"
	},
	"pwsh": func(v variable) string {
		return "$env:" + v.name + " = '" + strings.ReplaceAll(v.value, "'", "''") + "'"
	},
}
