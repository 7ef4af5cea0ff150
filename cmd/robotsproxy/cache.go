package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/admin"
)

func newCacheCommand(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cache",
		Short: "The robots.txt files that a running robotsproxy keeps",
		Long: `Show and change the robots.txt files that a running robotsproxy keeps and enforces. The commands call its admin API
at admin.listen with the token in data_dir.

HOST is a host such as a.example, for all of its origins, or one origin such as https://a.example:8443.`,
		Args: cobra.ArbitraryArgs,
		RunE: subcommandsOnly,
	}
	cmd.AddCommand(newCacheList(std), newCacheShow(std), newCacheRefresh(std), newCachePurge(std))
	return cmd
}

// oneHost is the Args of a command for one host.
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
	api := newAPICommand(cmd, std)
	cmd.RunE = func(*cobra.Command, []string) error {
		return api.showFiles(apiGet("/cache", nil), isMissing)
	}
	return cmd
}

func newCacheShow(std stdio) *cobra.Command {
	var body bool
	var version string
	cmd := &cobra.Command{
		Use: "show HOST", Args: oneHost,
		Short: "Show one robots.txt: state, age, redirects, earlier versions, and its text",
	}
	api := newAPICommand(cmd, std)
	cmd.Flags().BoolVar(&body, "body", false, "print only the text, byte by byte")
	cmd.Flags().StringVar(&version, "version", "", "print only the text, current or old, whose `SHA-256` begins with this")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if (body || version != "") && cmd.Flags().Changed("format") {
			return usage(errors.New("--body and --version print a text as it is: they take no --format"))
		}
		if version != "" {
			return api.showVersion(url.Values{"host": args, "sha256": {version}})
		}
		var files []admin.FileDetails
		r := apiGet("/cache/file", url.Values{"host": args})
		return api.show(r, &files, func(w io.Writer) error {
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

func newCacheRefresh(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use: "refresh HOST", Short: "Ask the origin for its robots.txt now", Args: oneHost,
	}
	api := newAPICommand(cmd, std)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		return api.showFiles(apiRequest{method: http.MethodPost, path: "/cache/refresh", query: url.Values{"host": args}}, hasError)
	}
	return cmd
}

func newCachePurge(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use: "purge HOST", Short: "Forget a robots.txt; the next request fetches it", Args: oneHost,
	}
	api := newAPICommand(cmd, std)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		var done struct {
			Purged []string `json:"purged"`
		}
		r := apiRequest{method: http.MethodPost, path: "/cache/purge", query: url.Values{"host": args}}
		return api.show(r, &done, func(w io.Writer) error {
			for _, o := range done.Purged {
				fmt.Fprintln(w, "purged", o)
			}
			return nil
		})
	}
	return cmd
}

// showFiles shows a list of files, and on standard error the errors of those that report selects. It returns an
// exitError if a file is missing.
func (c *apiCommand) showFiles(r apiRequest, report func(admin.File) bool) error {
	var list admin.FileList
	err := c.show(r, &list, func(w io.Writer) error {
		if list.More {
			fmt.Fprintln(c.std.err, "robotsproxy: there are more; cache show HOST finds each")
		}
		showErrors(c.std.err, list.Files, report)
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

func (c *apiCommand) showVersion(query url.Values) error {
	var text admin.FileText
	return c.show(apiGet("/cache/version", query), &text, func(w io.Writer) error {
		_, err := w.Write(text.Body)
		return err
	})
}
