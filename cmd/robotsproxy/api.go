package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

// apiCommand is a command that calls the admin API of a running instance. Its flags select the instance and the format
// of the output.
type apiCommand struct {
	*cobra.Command
	std      stdio
	settings *configSource
	adminURL string // if empty, admin.listen
	format   string // text or json
}

// apiRequest is a request to the admin API.
type apiRequest struct {
	method, path string // path below /api/v1
	query        url.Values
	body         any // if nil, the request has no body
}

func apiGet(path string, query url.Values) apiRequest {
	return apiRequest{method: http.MethodGet, path: path, query: query}
}

func newAPICommand(cmd *cobra.Command, std stdio) *apiCommand {
	c := &apiCommand{Command: cmd, std: std, settings: configFlags(cmd, "admin.listen", "admin.token_file")}
	cmd.Flags().StringVar(&c.adminURL, "admin", "", "call the instance with this `URL` of the admin listener")
	cmd.Flags().StringVar(&c.format, "format", "text", "print as `FORMAT`: text or json")
	return c
}

// call sends a request to the instance and decodes the response into v.
func (c *apiCommand) call(r apiRequest, v any) error {
	cfg, err := c.settings.loadForAPI(c.Command, c.std)
	if err != nil {
		return err
	}
	i, err := findInstance(cfg, c.adminURL)
	if err != nil {
		return err
	}
	return i.call(c.Context(), r.method, r.path, r.query, r.body, v)
}

// show sends a request, decodes the response into v, and writes it as JSON, or as text does.
func (c *apiCommand) show(r apiRequest, v any, text func(io.Writer) error) error {
	if c.format != "text" && c.format != "json" {
		return usage(fmt.Errorf("--format %q is neither text nor json", c.format))
	}
	if err := c.call(r, v); err != nil {
		return err
	}
	if c.format == "text" {
		return text(c.std.out)
	}
	e := json.NewEncoder(safetext.JSONWriter(c.std.out))
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
