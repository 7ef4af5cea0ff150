package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/durable"
	"github.com/robotsproxy/robotsproxy/sign"
)

func newKey(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "The keys with which requests are signed (Web Bot Auth)",
		Long: `The keys with which requests are signed, so that sites can verify whose crawler sends them (Web Bot Auth, RFC 9421).
sign: in the configuration names the agent's URL and the file of the keys. docs/signatures.md.`,
		Args: cobra.ArbitraryArgs,
		RunE: subcommandsOnly,
	}
	cmd.AddCommand(newKeyNew(std), newKeyList(std), newKeyRotate(std), newKeyDirectory(std), newKeyCheck(std))
	return cmd
}

// keyFlags select the keys of a command.
type keyFlags struct {
	file, agent string
	cfg         *config.Config
}

// withKeys makes cmd load the configuration and call do.
func withKeys(cmd *cobra.Command, std stdio, do func(ctx context.Context, k *keyFlags) error) *cobra.Command {
	k := &keyFlags{}
	settings := configFlags(cmd)
	cmd.Args = noArgs
	cmd.Flags().StringVar(&k.file, "key-file", "", "the `FILE` of the keys (default sign.key_file, else agent-keys.json in the data folder)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if k.cfg, err = settings.load(cmd, std); err != nil {
			return err
		}
		return do(cmd.Context(), k)
	}
	return cmd
}

func (k *keyFlags) agentFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&k.agent, "agent", "", "the `URL` of the agent (default sign.agent)")
}

func (k *keyFlags) path() string {
	return cmp.Or(k.file, k.cfg.Sign.KeyFile, filepath.Join(k.cfg.DataDir, "agent-keys.json"))
}

func (k *keyFlags) load() (*sign.Keys, error) {
	keys, err := sign.LoadKeys(k.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usage(fmt.Errorf("there are no keys in %s: robotsproxy key new makes one", k.path()))
	}
	if err != nil {
		return nil, usage(err)
	}
	return keys, nil
}

// published returns the agent's URL, and all keys that belong to it: those of the file, and without --key-file those of
// clients of the same agent too.
func (k *keyFlags) published() (string, *sign.Keys, error) {
	agent := cmp.Or(k.agent, k.cfg.Sign.Agent)
	if agent == "" || agent == config.NoSigner {
		return "", nil, usage(errors.New("no agent: set sign.agent, or give --agent https://crawler.example.org"))
	}
	if err := sign.CheckAgent(agent); err != nil {
		return "", nil, usage(err)
	}
	if k.file != "" {
		keys, err := k.load()
		return agent, keys, err
	}
	keys, err := keysOf(k.cfg, agent)
	if err != nil {
		return "", nil, err
	}
	if len(keys.List()) == 0 {
		keys, err = k.load()
	}
	return agent, keys, err
}

func newKeyNew(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Make a key, in a new file that only you can read",
		Example: `  robotsproxy key new
  robotsproxy key new --key-file news-keys.json`,
	}
	return withKeys(cmd, std, func(_ context.Context, k *keyFlags) error {
		keys, path := sign.NewKeys(time.Now()), k.path()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := keys.Create(path); errors.Is(err, fs.ErrExist) {
			return usage(fmt.Errorf("%s has keys already: robotsproxy key rotate adds the next one, --key-file names another file", path))
		} else if err != nil {
			return err
		}
		agent := cmp.Or(k.cfg.Sign.Agent, "https://crawler.example.org")
		fmt.Fprintf(std.out, "%s\n", keys.List()[0].ID)
		fmt.Fprintf(std.err, `The key is in %s. To sign with it:

  1. Publish its public part at the URL of your agent: robotsproxy key directory
  2. Add to the configuration:
       sign:
         agent: %s
         key_file: %s
  3. Check it: robotsproxy key check
`, path, agent, path)
		return nil
	})
}

func newKeyList(std stdio) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List the keys, and say which one signs"}
	return withKeys(cmd, std, func(_ context.Context, k *keyFlags) error {
		keys, err := k.load()
		if err != nil {
			return err
		}
		listKeys(std.out, keys, time.Now())
		return nil
	})
}

func listKeys(w io.Writer, keys *sign.Keys, now time.Time) {
	signing, _ := keys.Signing(now)
	for _, key := range keys.List() {
		fmt.Fprintf(w, "%s  %s\n", key.ID, keyState(key, signing, now))
	}
}

func keyState(key, signing sign.Key, now time.Time) string {
	switch {
	case key.ID == signing.ID:
		return "signs"
	case key.NotBefore.After(now):
		return "signs from " + key.NotBefore.Format(time.RFC3339) + " on"
	case !key.Expires.IsZero() && !now.Before(key.Expires):
		return "expired at " + key.Expires.Format(time.RFC3339)
	case key.Expires.IsZero():
		return "is published"
	}
	return "is published until " + key.Expires.Format(time.RFC3339)
}

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
	k := &keyFlags{}
	withKeys(cmd, std, func(_ context.Context, flags *keyFlags) error {
		flags.agent = k.agent
		agent, keys, err := flags.published()
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
	k := &keyFlags{}
	withKeys(cmd, std, func(ctx context.Context, flags *keyFlags) error {
		flags.agent = k.agent
		agent, keys, err := flags.published()
		if err != nil {
			return err
		}
		url, err := sign.DirectoryURL(agent)
		if err != nil {
			return usage(err)
		}
		published, err := fetchDirectory(ctx, flags.cfg, agent, url)
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

// keysOf returns the keys of an agent in cfg: those of sign, and of clients that sign for the same agent.
func keysOf(cfg *config.Config, agent string) (*sign.Keys, error) {
	var files []string
	add := func(s config.Sign) {
		if s.Agent == agent && s.KeyFile != "" && !slices.Contains(files, s.KeyFile) {
			files = append(files, s.KeyFile)
		}
	}
	add(cfg.Sign)
	for _, c := range cfg.Clients {
		add(clientSign(cfg, c.Sign))
	}
	var all []*sign.Keys
	for _, file := range files {
		keys, err := sign.LoadKeys(file)
		if err != nil {
			return nil, usage(err)
		}
		all = append(all, keys)
	}
	return sign.Merge(all...), nil
}

// serveDirectory serves the directory of the agent in force.
func (c *control) serveDirectory(w http.ResponseWriter, r *http.Request) {
	s := c.inForce.Load().signers
	if s.keys == nil {
		http.Error(w, "no agent signs: set sign.agent and sign.key_file", http.StatusNotFound)
		return
	}
	now := time.Now()
	body := s.keys.Directory(now)
	h, err := s.keys.DirectoryHeader(s.agent, body, now, servedFor)
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
