package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

func newCacheCommand(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cache",
		Short: "The robots.txt files that a running robotsproxy keeps",
		Long: `Show and change the robots.txt files that a running robotsproxy keeps and enforces. It is found by admin.listen, and the
token in data_dir is its key.

HOST is a host, "a.example", for all of its origins that are kept, or one origin, "https://a.example:8443".`,
		Args: cobra.ArbitraryArgs,
		RunE: subcommandsOnly,
	}
	cmd.AddCommand(newCacheList(std), newCacheShow(std), newCacheRefresh(std), newCachePurge(std))
	return cmd
}

// instanceFlags gives cmd the flags by which a running instance is found.
func instanceFlags(cmd *cobra.Command, std stdio) func() (*instance, error) {
	settings := configFlags(cmd, "admin.listen")
	return func() (*instance, error) {
		cfg, err := settings.load(cmd, std)
		if err != nil {
			return nil, err
		}
		return findInstance(cfg)
	}
}

// formatFlag gives cmd a --format, text or json.
func formatFlag(cmd *cobra.Command) func() (inJSON bool, err error) {
	format := cmd.Flags().String("format", "text", "`text` or json")
	return func() (bool, error) {
		if *format != "text" && *format != "json" {
			return false, usage(fmt.Errorf("--format %q is neither text nor json", *format))
		}
		return *format == "json", nil
	}
}

// oneHost is the Args of a command about one host.
func oneHost(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usage(fmt.Errorf("%s needs one HOST, such as a.example or https://a.example", cmd.CommandPath()))
	}
	return nil
}

func newCacheList(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Short: "List the origins whose robots.txt is kept, with its state and age", Args: noArgs,
	}
	find, format := instanceFlags(cmd, std), formatFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return askFiles(cmd.Context(), std, find, format, apiRequest{http.MethodGet, "/api/cache", nil}, isMissing)
	}
	return cmd
}

// askFiles asks for a list of files and shows it, and says what is wrong with those that tell picks. Its error is also
// for a file that could not be had.
func askFiles(ctx context.Context, std stdio, find func() (*instance, error), format func() (bool, error), q apiRequest, tell func(admin.File) bool) error {
	var list admin.FileList
	err := ask(ctx, std, find, format, q, &list, func(w io.Writer) error {
		if list.More {
			fmt.Fprintln(std.err, "robotsproxy: there are more; cache show HOST finds each")
		}
		showErrors(std.err, list.Files, tell)
		return showFiles(w, list.Files, time.Now())
	})
	switch {
	case err != nil:
		return err
	case slices.ContainsFunc(list.Files, isMissing):
		return &exitError{code: exitNo}
	}
	return nil
}

func newCacheShow(std stdio) *cobra.Command {
	var body bool
	var version string
	cmd := &cobra.Command{
		Use: "show HOST", Short: "Show one robots.txt: state, age, redirects, what it was before, and its text", Args: oneHost,
	}
	find, format := instanceFlags(cmd, std), formatFlag(cmd)
	cmd.Flags().BoolVar(&body, "body", false, "print the text alone, octet by octet")
	cmd.Flags().StringVar(&version, "version", "", "print alone the text whose `SHA-256` begins with this, an older one too")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if (body || version != "") && cmd.Flags().Changed("format") {
			return usage(errors.New("--body and --version print a text as it is: they take no --format"))
		}
		if version != "" {
			return showVersion(cmd.Context(), std, find, format, url.Values{"host": args, "sha256": {version}})
		}
		var files []admin.FileDetails
		return ask(cmd.Context(), std, find, format, apiRequest{http.MethodGet, "/api/cache/file", url.Values{"host": args}}, &files, func(w io.Writer) error {
			if body {
				return showBody(w, files)
			}
			for _, f := range files {
				if err := showDetails(w, f, time.Now()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return cmd
}

func showVersion(ctx context.Context, std stdio, find func() (*instance, error), format func() (bool, error), which url.Values) error {
	var text admin.FileText
	return ask(ctx, std, find, format, apiRequest{http.MethodGet, "/api/cache/version", which}, &text, func(w io.Writer) error {
		_, err := w.Write(text.Body)
		return err
	})
}

func newCacheRefresh(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use: "refresh HOST", Short: "Ask the origin for its robots.txt now", Args: oneHost,
	}
	find, format := instanceFlags(cmd, std), formatFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return askFiles(cmd.Context(), std, find, format, apiRequest{http.MethodPost, "/api/cache/refresh", url.Values{"host": args}}, hasError)
	}
	return cmd
}

func newCachePurge(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use: "purge HOST", Short: "Forget a robots.txt; the next request fetches it", Args: oneHost,
	}
	find, format := instanceFlags(cmd, std), formatFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var done struct {
			Purged []string `json:"purged"`
		}
		return ask(cmd.Context(), std, find, format, apiRequest{http.MethodPost, "/api/cache/purge", url.Values{"host": args}}, &done, func(w io.Writer) error {
			for _, o := range done.Purged {
				fmt.Fprintln(w, "purged", o)
			}
			return nil
		})
	}
	return cmd
}

// instanceQuestion is what a running instance is asked.
type apiRequest struct {
	method, path string
	query        url.Values
}

// ask asks the instance that find finds, and shows its answer: as it came, or in the words of text.
func ask(ctx context.Context, std stdio, find func() (*instance, error), format func() (bool, error), q apiRequest, v any, text func(io.Writer) error) error {
	inJSON, err := format()
	if err != nil {
		return err
	}
	i, err := find()
	if err != nil {
		return err
	}
	if err := i.call(ctx, q.method, q.path, q.query, v); err != nil {
		return err
	}
	if !inJSON {
		return text(std.out)
	}
	e := json.NewEncoder(safetext.JSONWriter(std.out))
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
