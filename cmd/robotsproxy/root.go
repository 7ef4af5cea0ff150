package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/clientenv"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
	"github.com/robotsproxy/robotsproxy/internal/settings"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/rules"
)

// configSource holds the flags that determine the configuration of a command.
type configSource struct {
	file   string
	values map[string]*string // of flags, by the key of the configuration

	sockets map[string]string // addresses of the service manager's sockets, by key; they replace all other values
}

// flagName returns the name of the flag for a key: admin-listen for admin.listen.
func flagName(key string) string { return strings.NewReplacer(".", "-", "_", "-").Replace(key) }

func newRoot(std stdio) *cobra.Command {
	root := &cobra.Command{
		Use:           "robotsproxy",
		Short:         "A forward HTTP proxy that makes any crawler polite",
		Version:       versionText(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return usage(unknownCommand(cmd, args[0]))
		},
	}
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(misspelt(cmd, err)) })
	root.SetVersionTemplate("robotsproxy {{.Version}}\n")
	root.SetHelpCommand(newHelp())
	root.AddCommand(
		newServe(std), newRun(std), newDemo(std), newEnv(std), newHealthcheck(std), newCheck(std), newLint(std),
		newPlan(std), newSitemaps(std),
		newAudit(std), newCacheCommand(std), newCA(std), newKey(std),
		newStop(std), newSlow(std), newBypass(std), newResume(std), newInterventions(std), newExemptCommand(std),
		newStatus(std), newTop(std), newWatch(std), newUpgrade(std), newValidate(std), newConfigCommand(std), newReload(std), newVersion(std), newMan(),
		newSealedStage(),
	)
	completeValues(root)
	return root
}

// newHelp returns the command help. That of cobra prints the commands for a name that it does not know, and succeeds.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Print how to use a command",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
			found, _, err := cmd.Root().Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			for _, c := range found.Commands() {
				if c.IsAvailableCommand() {
					names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usage(unknownCommand(found, args[len(args)-max(1, len(rest))]))
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	}
}

// completeValues makes completion offer the values of flags that take one of a few.
func completeValues(cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if values := flagValues(cmd.Name(), f.Name); values != nil {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, // fails only for a flag that does not exist
				cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		}
	})
	for _, c := range cmd.Commands() {
		completeValues(c)
	}
}

// flagValues returns the values that a flag of a command takes, or nil if they are more than a few.
func flagValues(command, flag string) (values []string) {
	switch flag {
	case "purpose":
		for _, purpose := range policy.Purposes {
			values = append(values, string(purpose))
		}
	case "mode":
		for _, mode := range []policy.Mode{policy.Enforce, policy.Report, policy.Off} {
			values = append(values, mode.String())
		}
	case "dialect":
		for _, dialect := range rules.Dialects() {
			values = append(values, dialect.String())
		}
	case "format":
		values = []string{"text", "json"}
		switch command {
		case "lint":
			values = append(values, "sarif")
		case "plan", "sitemaps":
			values = words(planFormats)
		case "top":
			values = words(topFormats)
		}
	case "shell":
		values = clientenv.Shells()
	}
	return values
}

func unknownCommand(cmd *cobra.Command, name string) error {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	if near := settings.Suggest(name, names); near != "" {
		return fmt.Errorf("there is no command %q; did you mean %q?", name, near)
	}
	return fmt.Errorf("there is no command %q; %s --help lists them", name, cmd.CommandPath())
}

// misspelt adds the nearest flag to the error about an unknown one.
func misspelt(cmd *cobra.Command, err error) error {
	name, ok := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !ok {
		return err
	}
	if near := settings.Suggest(name, flagNames(cmd)); near != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, strings.ReplaceAll(near, "_", "-"))
	}
	return fmt.Errorf("%w; %s --help lists them", err, cmd.CommandPath())
}

// flagNames returns the names of cmd's flags in snake case, which settings.Suggest expects.
func flagNames(cmd *cobra.Command) (names []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, strings.ReplaceAll(f.Name, "-", "_")) })
	return names
}

// configFlags adds the flags of every command with a configuration, and those of the given keys, to cmd.
func configFlags(cmd *cobra.Command, keys ...string) *configSource {
	s := &configSource{values: make(map[string]*string)}
	cmd.Flags().StringVar(&s.file, "config", "", "read this YAML `FILE`; robotsproxy validate checks it")
	for _, key := range append([]string{"data_dir"}, keys...) {
		s.values[key] = cmd.Flags().String(flagName(key), "", flagUsage[key])
	}
	return s
}

var flagUsage = map[string]string{
	"data_dir":         "keep the CA, records and the admin token in this `DIR` (default: the user's state\nfolder, for root /var/lib/robotsproxy)",
	"listen":           "accept clients of the proxy at this `ADDRESS` (default 127.0.0.1:3128)",
	"admin.listen":     "serve health checks, metrics and the CA at this `ADDRESS` (default 127.0.0.1:3129)",
	"admin.token_file": "read the admin token from this `FILE` instead of the data folder",
	"mode":             "treat requests in this `MODE`: enforce, report (judge and record, change nothing) or off",
}

// load loads the configuration and writes its warnings to std.err.
func (s *configSource) load(cmd *cobra.Command, std stdio) (*config.Config, error) {
	cfg, warnings, err := s.read(cmd)
	for _, w := range warnings {
		fmt.Fprintln(std.err, "robotsproxy: warning:", safetext.Lines(w.String()))
	}
	return cfg, err
}

// loadForAPI loads the keys by which a command finds a running instance.
func (s *configSource) loadForAPI(cmd *cobra.Command, std stdio) (*config.Config, error) {
	return s.loadFor(cmd, std, "data_dir", "admin", "admin.listen", "admin.token_file")
}

// loadFor loads some keys. Faults of other keys do not keep an operator from the command: they are warnings.
func (s *configSource) loadFor(cmd *cobra.Command, std stdio, keys ...string) (*config.Config, error) {
	cfg, warnings, err := config.LoadFor(s.options(cmd), keys...)
	for _, w := range warnings {
		fmt.Fprintln(std.err, "robotsproxy: warning:", safetext.Lines(w.String()))
	}
	if err != nil {
		return nil, usage(err)
	}
	return cfg, nil
}

// options returns the sources of the configuration.
func (s *configSource) options(cmd *cobra.Command) config.Options {
	o := config.Options{Path: s.file, Env: os.Environ()}
	for key, value := range s.values {
		if flag := flagName(key); cmd.Flags().Changed(flag) {
			o.Overrides = append(o.Overrides, config.Override{Key: key, Value: *value, Source: "--" + flag})
		}
	}
	for key, address := range s.sockets {
		o.Overrides = append(o.Overrides, config.Override{Key: key, Value: address, Source: "a socket of the service manager"})
	}
	return o
}

// read loads the configuration. It returns warnings beside an error too.
func (s *configSource) read(cmd *cobra.Command) (*config.Config, []settings.Warning, error) {
	cfg, warnings, err := config.Load(s.options(cmd))
	if err != nil {
		return nil, warnings, usage(err)
	}
	// Other programs get these paths, and may run in another folder.
	for _, path := range []*string{&cfg.DataDir, &cfg.Intercept.CACert} {
		if *path, err = absolute(*path); err != nil {
			return nil, warnings, usage(err)
		}
	}
	return cfg, warnings, nil
}

// absolute returns the absolute form of path, or "" if path is empty.
func absolute(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	return filepath.Abs(path)
}

// noArgs rejects all arguments, with an error that names the help.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(fmt.Errorf("%s takes no %q; see %s --help", cmd.CommandPath(), args[0], cmd.CommandPath()))
	}
	return nil
}

// subcommandsOnly is the RunE of a command that needs a subcommand.
func subcommandsOnly(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(unknownCommand(cmd, args[0]))
	}
	if err := cmd.Help(); err != nil {
		return err
	}
	return usage(errors.New("missing subcommand"))
}
