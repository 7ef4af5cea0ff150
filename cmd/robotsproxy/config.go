package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

func newConfigCommand(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the configuration, write an example, or print its JSON Schema",
		Args:  cobra.ArbitraryArgs,
		RunE:  subcommandsOnly,
	}
	cmd.AddCommand(newConfigPrint(std), newConfigInit(std), newConfigSchema(std))
	return cmd
}

func newConfigPrint(std stdio) *cobra.Command {
	var origin bool
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print every key with its value, from the file, variables, flags and defaults",
		Long: `Print every key with the value that robotsproxy serve would use with the same file, variables and flags, as a
file that can be read again. Passwords are masked. With --origin, print one key a line with the place that set it:
"default", FILE:LINE:COLUMN, a variable or a flag.`,
		Args: noArgs,
	}
	source := configFlags(cmd, "listen", "admin.listen", "mode")
	cmd.Flags().BoolVar(&origin, "origin", false, "print the place that set each key")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := source.load(cmd, std)
		if err != nil {
			return err
		}
		if origin {
			return printOrigins(std.out, cfg)
		}
		text, err := cfg.YAML()
		if err != nil {
			return err
		}
		_, err = std.out.Write(text)
		return err
	}
	return cmd
}

func printOrigins(w io.Writer, cfg *config.Config) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, v := range cfg.Values() {
		text := v.Text
		if text == "" {
			text = `""`
		}
		fmt.Fprintf(t, "%s:\t%s\t%s\n", v.Key, safetext.Lines(text), safetext.Lines(v.Origin.String()))
	}
	return t.Flush()
}

func newConfigInit(std stdio) *cobra.Command {
	return &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a configuration with every key, its default and its meaning",
		Long: `Write a configuration with every key, its default and its meaning to FILE, robotsproxy.yaml if none is given,
or to standard output if FILE is "-". An existing file is not replaced.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch len(args) {
			case 0:
				return writeExample(std, "robotsproxy.yaml")
			case 1:
				return writeExample(std, args[0])
			}
			return usage(fmt.Errorf("%s takes one FILE, not %q too", cmd.CommandPath(), args[1]))
		},
	}
}

func writeExample(std stdio, path string) error {
	if path == "-" {
		_, err := io.WriteString(std.out, robotsproxy.ExampleConfig)
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return usage(fmt.Errorf("%s exists; name another file, or - for standard output", path))
	}
	if err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	_, err = f.WriteString(robotsproxy.ExampleConfig)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	fmt.Fprintf(std.err, "robotsproxy: wrote %s; start the proxy with robotsproxy serve --config %s\n", path, path)
	return nil
}

func newConfigSchema(std stdio) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration, for editors",
		Long: `Print the JSON Schema of the configuration, for editors. With yaml-language-server, write it to a file and
begin the configuration with the line

  # yaml-language-server: $schema=FILE`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			schema, err := config.JSONSchema()
			if err != nil {
				return err
			}
			e := json.NewEncoder(std.out)
			e.SetEscapeHTML(false)
			e.SetIndent("", "  ")
			return e.Encode(schema)
		},
	}
}
