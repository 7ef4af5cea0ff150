package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/admin"
)

func newStatus(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of a running robotsproxy, and its decisions since the start",
		Args:  noArgs,
	}
	api := newAPICommand(cmd, std)
	cmd.RunE = func(*cobra.Command, []string) error {
		var s admin.Status
		return api.show(apiGet("/status", nil), &s, func(w io.Writer) error { return showStatus(w, s) })
	}
	return cmd
}

// showStatus writes one sentence, and the numbers after it.
func showStatus(w io.Writer, s admin.Status) error {
	ready := "ready"
	if !s.Ready {
		ready = "not ready: " + s.NotReady
	}
	uptime := time.Duration(s.Uptime * float64(time.Second)).Round(time.Second)
	fmt.Fprintf(w, "robotsproxy %s on %s, mode %s, runs for %s with process ID %d: %s.\n",
		s.Version, s.Listen, s.Mode, uptime, s.PID, ready)
	fmt.Fprintf(w, "%s in progress, of which %d wait for their place; %s.\n",
		count(s.Active, "request"), s.Waiting, count(s.Tunnels, "tunnel"))
	fmt.Fprintf(w, "%s written, %d wait to be written, %d lost.\n",
		count(int(s.Records.Written), "record"), s.Records.Waiting, s.Records.Lost)
	if s.Records.Refused > 0 {
		fmt.Fprintf(w, "%s refused because they could not be recorded: audit-unavailable.\n", count(int(s.Records.Refused), "request"))
	}
	for _, fault := range s.Unsigned {
		fmt.Fprintf(w, "%s.\n", fault)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range s.Counts {
		fmt.Fprintf(t, "%8d\t%s\t%s\n", c.Requests, c.Decision, c.Reason)
	}
	return t.Flush()
}
