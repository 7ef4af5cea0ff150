package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

func newExemptCommand(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exempt",
		Short: "Exceptions to robots.txt, while robotsproxy runs",
		Long: `Add, list and remove exceptions to robots.txt while robotsproxy runs, beside the exemptions of its configuration.
They hold at once, and over a restart. The commands call the admin API at admin.listen with the token in data_dir.`,
		Args: cobra.ArbitraryArgs,
		RunE: subcommandsOnly,
	}
	cmd.AddCommand(newExemptAdd(std), newExemptList(std), newExemptRemove(std))
	return cmd
}

func newExemptAdd(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add HOST[/PATH]",
		Short: "Allow what robots.txt disallows, or deny what it allows",
		Long: `Allow some paths of a host that robots.txt disallows, or deny some that it allows. An allowed request is still
paced. The exemption is named in the record of every request that it decides.

HOST is a host such as a.example, or a pattern: '*.example' means all hosts below example. PATH is a pattern as in
robots.txt, such as '/api/*'; without it, every path is meant.`,
		Example: `  robotsproxy exempt add 'a.example/api/*' --effect allow --client news --until 2027-06-30 \
    --reason "contract 12" --owner ops@example.org`,
	}
	entry := make(map[string]*string)
	flag := func(name, usage string) { entry[name] = cmd.Flags().String(name, "", usage) }
	flag("effect", "`EFFECT`: allow or deny; required")
	flag("client", "only for the requests of the client with this `NAME`")
	flag("reason", "`TEXT` that says why; required")
	flag("owner", "`NAME` or address of who answers for it; required")
	flag("until", "last `DAY` in UTC, or moment (RFC 3339), at which it holds; required for allow")
	api := newAPICommand(cmd, std)
	_ = cmd.RegisterFlagCompletionFunc("effect", cobra.FixedCompletions([]string{"allow", "deny"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage(errors.New("exempt add needs one HOST or HOST/PATH, such as a.example or 'a.example/api/*'"))
		}
		host, path, found := strings.Cut(args[0], "/")
		body := map[string]string{"host": host}
		if found {
			body["path"] = "/" + path
		}
		for name, value := range entry {
			body[name] = *value
		}
		if err := missingFlags(body); err != nil {
			return err
		}
		var added admin.ExemptionChange
		request := apiRequest{method: http.MethodPost, path: "/exemptions", body: body}
		return api.show(request, &added, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "Exemption %d holds from now on: %s.\n%srobotsproxy exempt rm %d ends it.\n",
				added.ID, describeExemption(added.Exemption), othersText(added.Others), added.ID)
			return err
		})
	}
	return cmd
}

// missingFlags returns an error that names the flags which an exemption needs and body lacks.
func missingFlags(body map[string]string) error {
	needed := []string{"effect", "reason", "owner"}
	if body["effect"] == "allow" {
		needed = append(needed, "until")
	}
	var missing []string
	for _, name := range needed {
		if body[name] == "" {
			missing = append(missing, "--"+name)
		}
	}
	if missing == nil {
		return nil
	}
	return usage(fmt.Errorf("exempt add needs %s: an exemption has a reason and an owner, for auditors, and an end if it allows",
		strings.Join(missing, ", ")))
}

// othersText says that a change does not concern the other instances.
func othersText(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("That is so on 1 of %d instances: call each of the others with --admin URL.\n", n+1)
}

// describeExemption returns the effect, place, client, end, reason and owner of e on one line.
func describeExemption(e admin.Exemption) string {
	text := e.Effect + " " + e.Host + e.Path
	if e.Client != "" {
		text += " for " + e.Client
	}
	if !e.Until.IsZero() {
		text += " until " + localTime(e.Until)
	}
	return safetext.Text(fmt.Sprintf("%s (%s; %s)", text, e.Reason, e.Owner))
}

// localTime shows t to the minute.
func localTime(t time.Time) string { return t.Local().Format("2006-01-02 15:04") }

func newExemptList(std stdio) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List the exemptions, those of the configuration too", Args: noArgs}
	api := newAPICommand(cmd, std)
	cmd.RunE = func(*cobra.Command, []string) error {
		var list admin.ExemptionList
		return api.show(apiGet("/exemptions", nil), &list, func(w io.Writer) error {
			return showExemptions(w, list.Exemptions)
		})
	}
	return cmd
}

// showExemptions writes how many exemptions there are, and one on each line.
func showExemptions(w io.Writer, all []admin.Exemption) error {
	expired := 0
	for _, e := range all {
		if e.Expired {
			expired++
		}
	}
	fmt.Fprint(w, count(len(all), "exemption"))
	if expired > 0 {
		fmt.Fprintf(w, ", %d of them expired", expired)
	}
	fmt.Fprintln(w, ".")
	if len(all) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tEFFECT\tHOST AND PATH\tCLIENT\tUNTIL\tOWNER\tREASON")
	for _, e := range all {
		fmt.Fprintln(t, exemptionRow(e))
	}
	return t.Flush()
}

// exemptionRow returns the cells of e, with tabs between them. An exemption of the configuration has no ID.
func exemptionRow(e admin.Exemption) string {
	id, client, until := "file", "all", "-"
	if e.Source == admin.SourceStore {
		id = fmt.Sprint(e.ID)
	}
	if e.Client != "" {
		client = e.Client
	}
	if !e.Until.IsZero() {
		until = localTime(e.Until)
	}
	if e.Expired {
		until += " (expired)"
	}
	cells := []string{id, e.Effect, e.Host + e.Path, client, until, e.Owner, e.Reason}
	for i := range cells {
		cells[i] = safetext.Text(cells[i])
	}
	return strings.Join(cells, "\t")
}

func newExemptRemove(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm ID", Short: "Remove an exemption that was added",
		Long: `Remove an exemption that was added. robotsproxy exempt ls shows the IDs. An exemption of the configuration has none:
remove it there, and call robotsproxy reload.`,
	}
	api := newAPICommand(cmd, std)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage(errors.New("exempt rm needs one ID, which robotsproxy exempt ls shows"))
		}
		var removed admin.ExemptionChange
		request := apiRequest{method: http.MethodDelete, path: "/exemptions", query: url.Values{"id": args}}
		return api.show(request, &removed, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "Exemption %d is removed: %s.\n%s",
				removed.ID, describeExemption(removed.Exemption), othersText(removed.Others))
			return err
		})
	}
	return cmd
}
