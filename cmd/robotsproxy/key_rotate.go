package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/sign"
)

func newKeyRotate(std stdio) *cobra.Command {
	var overlap string
	var compromised bool
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Add the next key, which signs after an overlap in which sites learn it",
		Long: `Add the next key. It belongs into the published directory at once (robotsproxy key directory), and signs when the
overlap has passed: sites may keep the directory for a day. The key before stays published for an hour more. A running
proxy follows without a restart.

  --compromised  replaces all keys by a new one, which signs at once. Sites that keep the old directory refuse its
                 signatures until they fetch the new one.`,
		Example: "  robotsproxy key rotate\n  robotsproxy key directory -o /var/www/crawler",
	}
	withKeys(cmd, std, func(_ context.Context, k *keyFlags) error {
		lasts, err := readKeyOverlap(overlap, compromised, cmd.Flags().Changed("overlap"))
		if err != nil {
			return usage(err)
		}
		keys, err := k.load()
		if err != nil {
			return err
		}
		now := time.Now()
		next := sign.NewKeys(now)
		if !compromised {
			if next, err = keys.Rotate(now, now.Add(lasts)); err != nil {
				return usage(err)
			}
		}
		if err := next.Save(k.path()); err != nil {
			return err
		}
		listKeys(std.out, next, now)
		fmt.Fprintln(std.err, "\nPublish the directory now: robotsproxy key directory. Then: robotsproxy key check")
		return nil
	})
	cmd.Flags().StringVar(&overlap, "overlap", "48h", "let the present key sign for this `TIME`, 24h or more, such as 48h or 7d")
	cmd.Flags().BoolVar(&compromised, "compromised", false, "replace all keys at once, since others know them")
	return cmd
}

// readKeyOverlap returns the time for which the present key still signs. given reports whether --overlap was given.
func readKeyOverlap(text string, compromised, given bool) (time.Duration, error) {
	if compromised {
		if given {
			return 0, errors.New("--overlap and --compromised contradict each other: --compromised does without an overlap")
		}
		return 0, nil
	}
	lasts, err := config.ParseDuration(text)
	if err == nil && lasts < sign.DirectoryAge {
		err = fmt.Errorf("found %s, expected 24h or more: sites may keep the directory for a day", text)
	}
	if err != nil {
		return 0, fmt.Errorf("--overlap: %w", err)
	}
	return lasts, nil
}
