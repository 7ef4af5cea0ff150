package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/durable"
	"github.com/robotsproxy/robotsproxy/sign"
)

func newKeyDirectory(std stdio) *cobra.Command {
	var out, valid string
	cmd := &cobra.Command{
		Use:   "directory",
		Short: "Print the public keys as sites expect them, or write them into a folder to publish",
		Long: `Print the directory of the agent: the public keys as a JWK Set. With -o, write it into a folder as
http-message-signatures-directory, with the header fields to send beside it in
http-message-signatures-directory.headers: Content-Type, Cache-Control, and the signatures that prove that the keys
belong to the agent's host.

A running proxy serves the same at ` + sign.DirectoryPath + ` of its admin listener.`,
		Example: "  robotsproxy key directory -o /var/www/crawler/.well-known",
	}
	k := withKeys(cmd, std, func(_ context.Context, k *keyFlags) error {
		agent, keys, err := k.published()
		if err != nil {
			return err
		}
		lasts, err := config.ParseDuration(valid)
		if err != nil || lasts <= 0 {
			return usage(fmt.Errorf("--valid %q is no time such as 30d", valid))
		}
		now := time.Now()
		body := keys.Directory(now)
		if out == "" {
			_, err := fmt.Fprintf(std.out, "%s\n", body)
			return err
		}
		h, err := keys.DirectoryHeader(agent, body, now, lasts)
		if err != nil {
			return err
		}
		return writeDirectory(std, out, agent, body, h)
	})
	k.agentFlag(cmd)
	cmd.Flags().StringVarP(&out, "output", "o", "", "write two files into this `FOLDER`")
	cmd.Flags().StringVar(&valid, "valid", "30d", "let the signatures of the directory hold for this `TIME`")
	return cmd
}

func writeDirectory(std stdio, folder, agent string, body []byte, h http.Header) error {
	url, err := sign.DirectoryURL(agent)
	if err != nil {
		return err
	}
	path := filepath.Join(folder, "http-message-signatures-directory")
	var fields bytes.Buffer
	for _, name := range []string{"Content-Type", "Cache-Control", "Content-Digest", "Signature-Input", "Signature"} {
		fmt.Fprintf(&fields, "%s: %s\n", name, h.Get(name))
	}
	if err := os.MkdirAll(folder, 0o755); err != nil { // durable makes folders that only their owner can read
		return err
	}
	if err := durable.Replace(path, body, 0o644); err != nil {
		return err
	}
	if err := durable.Replace(path+".headers", fields.Bytes(), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(std.out, "%s\n%s\n", path, path+".headers")
	fmt.Fprintf(std.err, "\nPublish the first as %s, with the fields in the second. Then: robotsproxy key check\n", url)
	return nil
}

func newKeyCheck(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Fetch the published directory, and say what is wrong with it",
		Long: `Fetch the directory from the URL of the agent as a site does, and compare it with the keys. The exit status is 1 if
something is wrong, and 4 if it cannot be fetched.`,
		Example: "  robotsproxy key check",
	}
	k := withKeys(cmd, std, func(ctx context.Context, k *keyFlags) error {
		agent, keys, err := k.published()
		if err != nil {
			return err
		}
		url, err := sign.DirectoryURL(agent)
		if err != nil {
			return usage(err)
		}
		published, err := fetchDirectory(ctx, k.cfg, agent, url)
		if err != nil {
			return &exitError{exitUnknown, fmt.Errorf("fetching %s: %w", url, err)}
		}
		faults := keys.Check(*published, time.Now())
		if len(faults) == 0 {
			fmt.Fprintf(std.out, "%s has the keys that sign\n", url)
			return nil
		}
		fmt.Fprintf(std.out, "%s:\n  %s\n", url, strings.Join(faults, "\n  "))
		return &exitError{code: exitNo}
	})
	k.agentFlag(cmd)
	return cmd
}

// maxDirectory bounds the size of a directory in bytes.
const maxDirectory = 1 << 20

// fetchDirectory fetches a directory as a verifier does: it follows no redirects.
func fetchDirectory(ctx context.Context, cfg *config.Config, agent, url string) (*sign.Published, error) {
	transport, err := newCommandLineTransport(cfg)
	if err != nil {
		return nil, err
	}
	defer transport.closeIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, cfg.Robots.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	transport.hosts.Store(req.URL.Hostname(), true)
	req.Header.Set("Accept", sign.DirectoryType)
	req.Header.Set("User-Agent", "robotsproxy")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDirectory))
	if err != nil {
		return nil, err
	}
	return &sign.Published{Agent: agent, Status: resp.StatusCode, Header: resp.Header, Body: body}, nil
}

// serveDirectory serves the directory of the agent in force.
func (c *control) serveDirectory(w http.ResponseWriter, r *http.Request) {
	in := c.inForce.Load()
	if in.signers.all == nil {
		http.Error(w, "no agent signs: set sign.agent and sign.key_file", http.StatusNotFound)
		return
	}
	now := time.Now()
	agent := in.cfg.Sign.Agent
	keys := in.signers.keysOf(agent)
	body := keys.Directory(now)
	h, err := keys.DirectoryHeader(agent, body, now, servedFor)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	for name, values := range h {
		w.Header()[name] = values
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

// servedFor is the time for which the signatures of a directory hold that the admin listener serves.
const servedFor = 7 * 24 * time.Hour
