package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func newMan() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages into a folder",
		Long: `Write the manual pages into a folder, one for each command, for example

  sudo robotsproxy man /usr/local/share/man/man1`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(errors.New("man needs one folder, such as /usr/local/share/man/man1"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("making the folder of the manual pages: %w", err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // the pages of a version are the same on each day
			return doc.GenManTree(root, &doc.GenManHeader{Title: "ROBOTSPROXY", Section: "1", Source: "robotsproxy", Manual: "robotsproxy"}, args[0])
		},
	}
}
