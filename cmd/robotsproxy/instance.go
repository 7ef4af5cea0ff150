package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/clientenv"
	"github.com/robotsproxy/robotsproxy/internal/durable"
)

// instance is a running robotsproxy, as a client of its admin API.
type instance struct {
	address string // of the admin listener
	token   string
	client  *http.Client
}

// findInstance returns the instance that runs with cfg. Its address and token follow from cfg.
func findInstance(cfg *config.Config) (*instance, error) {
	address, err := clientenv.DialAddress(cfg.Admin.Listen)
	if err != nil {
		return nil, err
	}
	if err := checkData(cfg); err != nil {
		return nil, err
	}
	path := tokenFile(cfg)
	token, err := durable.ReadSecret(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &exitError{exitNotRunning, fmt.Errorf("there is no token at %s, "+
			"so no robotsproxy has run with this data_dir; see --data-dir and --config", path)}
	}
	if err != nil {
		return nil, fmt.Errorf("reading the token: %w", err)
	}
	return newInstance(address, strings.TrimSpace(string(token))), nil
}

// newInstance returns the instance at address. Its Transport ignores the proxy variables, which may name the proxy
// itself. It has no timeout, because a refresh of many origins takes long.
func newInstance(address, token string) *instance {
	return &instance{address: address, token: token, client: &http.Client{Transport: &http.Transport{}}}
}

// tokenFile returns the path of the admin token.
func tokenFile(cfg *config.Config) string {
	if cfg.Admin.TokenFile != "" {
		return cfg.Admin.TokenFile
	}
	return filepath.Join(cfg.DataDir, "admin.token")
}

// maxAnswer is the maximum size of a response: that of the largest robots.txt that can be configured, in JSON.
const maxAnswer = 256 << 20

// call sends a request and decodes the response into v. The error for a refusal is the text of the response.
func (i *instance) call(ctx context.Context, method, path string, query url.Values, v any) error {
	u := url.URL{Scheme: "http", Host: i.address, Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+i.token)
	resp, err := i.client.Do(req)
	var dial *net.OpError
	switch {
	case errors.As(err, &dial) && dial.Op == "dial":
		return &exitError{exitNotRunning, fmt.Errorf("no robotsproxy answers at %s (admin.listen): %w; "+
			"start it with robotsproxy serve", i.address, err)}
	case err != nil:
		return fmt.Errorf("asking robotsproxy: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("reading the answer of %s: %w", i.address, err)
	}
	switch text := string(bytes.TrimSpace(body)); resp.StatusCode {
	case http.StatusOK:
	case http.StatusBadRequest:
		return usage(errors.New(text))
	case http.StatusNotFound, http.StatusConflict:
		return &exitError{exitNo, errors.New(text)}
	default:
		return fmt.Errorf("%s answered %s: %s", i.address, resp.Status, text)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("reading the answer of %s: %w", i.address, err)
	}
	return nil
}
