package seal

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/robotsproxy/robotsproxy/internal/durable"
)

// The files of the key in the data folder.
const (
	KeyFile    = "seal.key"
	PublicFile = "seal.pub"
)

// Key signs checkpoints.
type Key struct {
	signer   note.Signer
	verifier Verifier
}

// Name returns the name of k, which is the first line of its checkpoints.
func (k *Key) Name() string { return k.verifier.Name() }

// Public returns the public key.
func (k *Key) Public() Verifier { return k.verifier }

func (k *Key) sign(text string) (string, error) {
	signed, err := note.Sign(&note.Note{Text: text}, k.signer)
	if err != nil {
		return "", fmt.Errorf("seal: signing: %w", err)
	}
	return string(signed), nil
}

// Verifier is a public key.
type Verifier struct {
	v    note.Verifier
	text string
}

// Name returns the name of the key.
func (v Verifier) Name() string { return v.v.Name() }

// String returns the key in the form of golang.org/x/mod/sumdb/note, which ParseVerifier reads.
func (v Verifier) String() string { return v.text }

// ParseVerifier parses a public key.
func ParseVerifier(text string) (Verifier, error) {
	text = strings.TrimSpace(text)
	v, err := note.NewVerifier(text)
	if err != nil {
		return Verifier{}, errors.New("not a public key such as robotsproxy audit seal --public-key prints")
	}
	return Verifier{v, text}, nil
}

// OpenVerifier returns the public key that is given as its text or as the name of a file that contains it.
func OpenVerifier(given string) (Verifier, error) {
	if v, err := ParseVerifier(given); err == nil {
		return v, nil
	}
	text, err := os.ReadFile(given)
	if err != nil {
		return Verifier{}, fmt.Errorf("reading the public key: %w", err)
	}
	v, err := ParseVerifier(string(text))
	if err != nil {
		return Verifier{}, fmt.Errorf("%s is %w", given, err)
	}
	return v, nil
}

// OpenKey returns the key of a data folder. It makes one if there is none, with the given name; if that is empty, the
// name is robotsproxy/ and the beginning of the hash of the public key.
func OpenKey(dir, name string) (key *Key, made bool, err error) {
	path := filepath.Join(dir, KeyFile)
	text, err := durable.ReadSecret(path)
	if errors.Is(err, fs.ErrNotExist) {
		made = true
		text, err = makeKey(path, name)
	}
	if err != nil {
		return nil, false, fmt.Errorf("the key of the seals: %w", err)
	}
	if key, err = parseKey(string(text)); err != nil {
		return nil, false, fmt.Errorf("the key of the seals: %s is damaged: restore it from a copy, or move it away "+
			"and begin a new one with --new-key", path)
	}
	if name != "" && name != key.Name() {
		return nil, false, fmt.Errorf("the key of the seals in %s has the name %s; a key keeps its name", path, key.Name())
	}
	public := filepath.Join(dir, PublicFile)
	if kept, err := os.ReadFile(public); err == nil && strings.TrimSpace(string(kept)) == key.verifier.text {
		return key, made, nil
	}
	return key, made, durable.Replace(public, []byte(key.verifier.text+"\n"), 0o644)
}

// makeKey makes a key file. If another process has made one meanwhile, it returns that.
func makeKey(path, name string) ([]byte, error) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	if name == "" {
		name = fmt.Sprintf("robotsproxy/%x", sha256.Sum256(public))[:len("robotsproxy/")+8]
	}
	verifier, err := note.NewEd25519VerifierKey(name, public)
	if err != nil {
		return nil, err
	}
	if _, err := note.NewVerifier(verifier); err != nil {
		return nil, fmt.Errorf("the name %q has a space or a plus sign", name)
	}
	hash, _, _ := strings.Cut(strings.TrimPrefix(verifier, name+"+"), "+")
	seed := append([]byte{ed25519Algorithm}, private.Seed()...)
	text := fmt.Sprintf("PRIVATE+KEY+%s+%s+%s\n", name, hash, base64.StdEncoding.EncodeToString(seed))
	err = durable.Create(path, []byte(text), 0o600)
	if errors.Is(err, fs.ErrExist) {
		return durable.ReadSecret(path)
	}
	return []byte(text), err
}

// ed25519Algorithm is the first byte of keys in package note.
const ed25519Algorithm = 1

// parseKey parses a key in the form of package note, PRIVATE+KEY+name+hash+seed, and derives the public key.
func parseKey(text string) (*Key, error) {
	text = strings.TrimSpace(text)
	signer, err := note.NewSigner(text)
	if err != nil {
		return nil, err
	}
	parts := strings.SplitN(text, "+", 5) // the last one, in base64, may have plus signs
	seed, err := base64.StdEncoding.DecodeString(parts[4])
	if err != nil {
		return nil, err
	}
	public := ed25519.NewKeyFromSeed(seed[1:]).Public().(ed25519.PublicKey)
	verifier, err := note.NewEd25519VerifierKey(signer.Name(), public)
	if err != nil {
		return nil, err
	}
	v, err := ParseVerifier(verifier)
	return &Key{signer, v}, err
}
