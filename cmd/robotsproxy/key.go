package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/config"
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

// withKeys makes cmd load the configuration, or only the keys of needs if there are any, and call do with the flags that
// it returns.
func withKeys(cmd *cobra.Command, std stdio, do func(ctx context.Context, k *keyFlags) error, needs ...string) *keyFlags {
	k := &keyFlags{}
	settings := configFlags(cmd)
	cmd.Args = noArgs
	cmd.Flags().StringVar(&k.file, "key-file", "", "the `FILE` of the keys (default sign.key_file, else agent-keys.json in the data folder)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if len(needs) == 0 {
			k.cfg, err = settings.load(cmd, std)
		} else {
			k.cfg, err = settings.loadFor(cmd, std, needs...)
		}
		if err != nil {
			return err
		}
		return do(cmd.Context(), k)
	}
	return k
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
	all, err := newSigners(k.cfg)
	if err != nil {
		return "", nil, err
	}
	keys := all.keysOf(agent)
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
	withKeys(cmd, std, func(_ context.Context, k *keyFlags) error {
		path, err := absolute(k.path())
		if err != nil {
			return err
		}
		keys := sign.NewKeys(time.Now())
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

  1. Add to the configuration:
       sign:
         agent: %s
         key_file: %s
  2. Publish its public part at the URL of your agent: robotsproxy key directory
  3. Check it: robotsproxy key check
`, path, agent, path)
		return nil
	}, "data_dir", "sign.agent") // sign.key_file may name the file that is about to be made
	return cmd
}

func newKeyList(std stdio) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List the keys, and say which one signs"}
	withKeys(cmd, std, func(_ context.Context, k *keyFlags) error {
		keys, err := k.load()
		if err != nil {
			return err
		}
		listKeys(std.out, keys, time.Now())
		return nil
	})
	return cmd
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
