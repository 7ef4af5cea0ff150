package main

import (
	"bytes"
	"cmp"
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
	base      url.URL // of the admin listener: scheme and host
	token     string
	tokenFile string // where the configuration names one
	dataDir   string // for errors
	client    *http.Client
}

// findInstance returns the instance that runs with cfg. Its token follows from cfg, and so does its address, unless
// adminURL names it: see adminBase.
func findInstance(cfg *config.Config, adminURL string) (*instance, error) {
	base, err := adminBase(cfg, adminURL)
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
	i := newInstance(base, strings.TrimSpace(string(token)))
	i.dataDir, i.tokenFile = cfg.DataDir, cfg.Admin.TokenFile
	return i, nil
}

// adminBase returns the scheme and host of the admin listener. If adminURL does not name it, it is at admin.listen; if
// that is not set, at the address that the last instance with the data folder has written there.
func adminBase(cfg *config.Config, adminURL string) (url.URL, error) {
	if adminURL == "" {
		listen := cfg.Admin.Listen
		if !cfg.IsSet("admin.listen") {
			listen = cmp.Or(readAdminAddress(cfg), listen)
		}
		address, err := clientenv.DialAddress(listen)
		return url.URL{Scheme: "http", Host: address}, err
	}
	u, err := url.Parse(adminURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" ||
		u.RawQuery != "" || u.User != nil {
		return url.URL{}, usage(fmt.Errorf("--admin %q is not a URL such as http://127.0.0.1:3129", adminURL))
	}
	return url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}

// adminAddressFile returns the path of the file with the address of the admin listener.
func adminAddressFile(cfg *config.Config) string { return filepath.Join(cfg.DataDir, "admin.address") }

// readAdminAddress returns the address in the data folder, or "" if there is none.
func readAdminAddress(cfg *config.Config) string {
	text, err := durable.ReadSecret(adminAddressFile(cfg))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// newInstance returns the instance at base. Its Transport ignores the proxy variables, which may name the proxy itself.
// It follows no redirect: the admin listener sends none. It has no timeout, because a refresh of many origins takes long.
func newInstance(base url.URL, token string) *instance {
	client := &http.Client{
		Transport:     &http.Transport{},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &instance{base: base, token: token, client: client}
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

// call sends a request to path below /api/v1, with body as JSON unless it is nil, and decodes the response into v. The
// error for a refusal is the detail of the response.
func (i *instance) call(ctx context.Context, method, path string, query url.Values, body, v any) error {
	u := i.base
	u.Path, u.RawQuery = "/api/v1"+path, query.Encode()
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(content))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+i.token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := i.client.Do(req)
	var dial *net.OpError
	switch {
	case errors.As(err, &dial) && dial.Op == "dial":
		return i.notRunning(err)
	case err != nil:
		return fmt.Errorf("asking robotsproxy: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("reading the answer of %s: %w", i.base.Host, err)
	}
	if err := i.refusal(resp, answer); err != nil {
		return err
	}
	if err := json.Unmarshal(answer, v); err != nil {
		return fmt.Errorf("reading the answer of %s: %w", i.base.Host, err)
	}
	return nil
}

// notRunning returns the error for an instance that accepts no connections.
func (i *instance) notRunning(err error) error {
	folder := ""
	if i.dataDir != "" {
		folder = " (data folder " + i.dataDir + ")"
	}
	return &exitError{exitNotRunning, fmt.Errorf("no robotsproxy answers at %s (admin.listen): %w%s. "+
		"Start it with: robotsproxy serve; or name its admin listener with --admin URL", i.base.Host, plainError(err), folder)}
}

// maxForeign is how much of a response is shown that is not from the API, in bytes.
const maxForeign = 300

// refusal returns the error for a response, or nil for a response with status 200.
func (i *instance) refusal(resp *http.Response, body []byte) error {
	var problem struct{ Detail string }
	if err := json.Unmarshal(body, &problem); err != nil || problem.Detail == "" {
		problem.Detail = string(bytes.TrimSpace(body[:min(len(body), maxForeign)])) // of another server
	}
	switch err := errors.New(problem.Detail); resp.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return usage(err)
	case http.StatusNotFound, http.StatusConflict:
		return &exitError{exitNo, err}
	case http.StatusUnauthorized:
		if i.tokenFile != "" {
			return fmt.Errorf("the robotsproxy at %s has another token than %s", i.base.Host, i.tokenFile)
		}
		return fmt.Errorf("the robotsproxy at %s has another token: its data folder is not %s; "+
			"name its folder with --data-dir or its configuration with --config", i.base.Host, i.dataDir)
	default:
		return fmt.Errorf("%s answered %s: %w", i.base.Host, resp.Status, err)
	}
}
