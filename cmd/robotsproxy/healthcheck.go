package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

// healthTimeout is less than the usual time-outs of those who run health checks.
const healthTimeout = 4 * time.Second

func newHealthcheck(std stdio) *cobra.Command {
	var adminURL string
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Check that a running robotsproxy is ready, for containers",
		Long: `Check that the robotsproxy at admin.listen is ready. It prints nothing if it is: the exit status is 0. The status
is 1 if the proxy is not ready, for example because it drains, or does not answer within 4 seconds, and 3 if there is none.
The check needs no token.`,
		Args: noArgs,
	}
	settings := configFlags(cmd, "admin.listen")
	cmd.Flags().StringVar(&adminURL, "admin", "", "check the instance with this `URL` of the admin listener")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := settings.load(cmd, std)
		if err != nil {
			return err
		}
		base, err := adminBase(cfg, adminURL)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), healthTimeout)
		defer cancel()
		_, err = newInstance(base, "").page(ctx, "/readyz")
		return err
	}
	return cmd
}

// maxPage is the maximum size of a page without a token.
const maxPage = 1 << 20

// page returns a page of the admin listener that needs no token. The error for a status other than 200 has the text of
// the response.
func (i *instance) page(ctx context.Context, path string) ([]byte, error) {
	u := i.base
	u.Path = path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := i.client.Do(req)
	var dial *net.OpError
	switch {
	case ctx.Err() == nil && errors.As(err, &dial) && dial.Op == "dial":
		return nil, i.notRunning(err)
	case err != nil:
		return nil, fmt.Errorf("asking robotsproxy: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPage))
	if err != nil {
		return nil, fmt.Errorf("reading the answer of %s: %w", i.base.Host, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s: %s", i.base.Host, resp.Status, bytes.TrimSpace(body))
	}
	return body, nil
}
