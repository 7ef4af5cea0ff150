package sign

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/durable"
)

// Key is an Ed25519 key of an agent.
type Key struct {
	ID        string    // its thumbprint (RFC 7638)
	NotBefore time.Time // it signs from then on
	Expires   time.Time // it is not used any more, and leaves the directory; if zero, it has no end

	private ed25519.PrivateKey
}

// sign returns the signature of base as a Byte Sequence.
func (k *Key) sign(base string) string { return byteSequence(ed25519.Sign(k.private, []byte(base))) }

func newKey(notBefore time.Time) Key {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err) // crypto/rand returns no error
	}
	return Key{ID: thumbprint(private), NotBefore: notBefore.UTC().Truncate(time.Second), private: private}
}

// thumbprint returns the SHA-256 of the required members of the JWK in their order (RFC 7638, RFC 8037 appendix A.3).
func thumbprint(private ed25519.PrivateKey) string {
	sum := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + public(private) + `"}`))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func public(private ed25519.PrivateKey) string {
	return base64.RawURLEncoding.EncodeToString(private[ed25519.SeedSize:])
}

// Keys are the keys of an agent in the order of NotBefore. They do not change.
type Keys struct{ all []Key }

// NewKeys returns one new key, which signs from now on.
func NewKeys(now time.Time) *Keys { return &Keys{[]Key{newKey(now)}} }

// List returns the keys.
func (k *Keys) List() []Key { return slices.Clone(k.all) }

// at returns the key that signs at t: of those that are valid, the one that began last.
func (k *Keys) at(t time.Time) (*Key, bool) {
	for i := len(k.all) - 1; i >= 0; i-- {
		key := &k.all[i]
		if !t.Before(key.NotBefore) && (key.Expires.IsZero() || t.Before(key.Expires)) {
			return key, true
		}
	}
	return nil, false
}

// Signing returns the key that signs at t.
func (k *Keys) Signing(t time.Time) (Key, bool) {
	key, ok := k.at(t)
	if !ok {
		return Key{}, false
	}
	return *key, true
}

// overlap is the time for which a key stays in the directory after its last signature. It is longer than Lifetime, for
// clocks that differ.
const overlap = time.Hour

// Rotate returns k with a new key that signs from start on, or from the end of the others if that is before, without the
// keys that have expired by now. The others expire an hour after start. It returns an error if a new key waits for its
// start already.
func (k *Keys) Rotate(now, start time.Time) (*Keys, error) {
	if end, ends := k.end(now); ends && end.Before(start) {
		start = end
	}
	start = start.UTC().Truncate(time.Second)
	next := &Keys{}
	for _, key := range k.all {
		if key.NotBefore.After(now) {
			return nil, fmt.Errorf("the key %s, which signs from %s on, waits already", key.ID, key.NotBefore.Format(time.RFC3339))
		}
		if !key.Expires.IsZero() && !now.Before(key.Expires) {
			continue
		}
		if end := start.Add(overlap); key.Expires.IsZero() || end.Before(key.Expires) {
			key.Expires = end
		}
		next.all = append(next.all, key)
	}
	next.all = append(next.all, newKey(start))
	return next, nil
}

// end returns the time from which on no key is valid, now at the earliest, of keys that have begun. It returns false if one
// has no end.
func (k *Keys) end(now time.Time) (end time.Time, ends bool) {
	end = now
	for _, key := range k.all {
		if key.Expires.IsZero() {
			return time.Time{}, false
		}
		if key.Expires.After(end) {
			end = key.Expires
		}
	}
	return end, true
}

// jwk is a JSON Web Key (RFC 7517, RFC 8037).
type jwk struct {
	Type    string `json:"kty"`
	Curve   string `json:"crv"`
	ID      string `json:"kid"`
	X       string `json:"x"`
	D       string `json:"d,omitempty"` // the private part
	Use     string `json:"use,omitempty"`
	Begin   int64  `json:"nbf,omitempty"` // Unix time
	Expires int64  `json:"exp,omitempty"`
}

type jwks struct {
	Keys []jwk `json:"keys"`
}

func (k *Key) jwk() jwk {
	j := jwk{Type: "OKP", Curve: "Ed25519", ID: k.ID, X: public(k.private), Use: "sig"}
	if !k.NotBefore.IsZero() {
		j.Begin = k.NotBefore.Unix()
	}
	if !k.Expires.IsZero() {
		j.Expires = k.Expires.Unix()
	}
	return j
}

// LoadKeys reads the file of Create. It returns an error if other users can read the file.
func LoadKeys(path string) (*Keys, error) {
	text, err := durable.ReadSecret(path)
	if err != nil {
		return nil, err
	}
	k, err := parseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return k, nil
}

var errKeys = errors.New("expected a JWK Set with private Ed25519 keys, as robotsproxy key new writes it")

func parseKeys(text []byte) (*Keys, error) {
	var set jwks
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("%w: %w", errKeys, err)
	}
	if len(set.Keys) == 0 {
		return nil, fmt.Errorf("%w: it has none", errKeys)
	}
	k := &Keys{}
	for i, j := range set.Keys {
		key, err := j.key()
		if err != nil {
			return nil, fmt.Errorf("keys[%d]: %w", i, err)
		}
		k.all = append(k.all, key)
	}
	slices.SortStableFunc(k.all, func(a, b Key) int { return a.NotBefore.Compare(b.NotBefore) })
	return k, nil
}

func (j *jwk) key() (Key, error) {
	seed, err := base64.RawURLEncoding.DecodeString(j.D)
	if err != nil || len(seed) != ed25519.SeedSize || j.Type != "OKP" || j.Curve != "Ed25519" {
		return Key{}, errKeys
	}
	private := ed25519.NewKeyFromSeed(seed)
	if j.X != public(private) {
		return Key{}, errors.New("x does not belong to d")
	}
	key := Key{ID: thumbprint(private), private: private}
	if j.Begin != 0 {
		key.NotBefore = time.Unix(j.Begin, 0).UTC()
	}
	if j.Expires != 0 {
		key.Expires = time.Unix(j.Expires, 0).UTC()
	}
	return key, nil
}

// text returns k with the private parts.
func (k *Keys) text() []byte {
	var set jwks
	for i := range k.all {
		j := k.all[i].jwk()
		j.D = base64.RawURLEncoding.EncodeToString(k.all[i].private.Seed())
		set.Keys = append(set.Keys, j)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	if err := e.Encode(set); err != nil {
		panic(err) // the types can be encoded
	}
	return b.Bytes()
}

// Create writes k to a new file with mode 0600. It returns an error (fs.ErrExist) if there is one.
func (k *Keys) Create(path string) error { return durable.Create(path, k.text(), 0o600) }

// Save replaces the file by k. It keeps its owner: root may rotate the keys of a proxy that runs as another user.
func (k *Keys) Save(path string) error { return durable.Update(path, k.text()) }

// Merge returns the keys of all, each once.
func Merge(all ...*Keys) *Keys {
	merged := &Keys{}
	for _, k := range all {
		for _, key := range k.all {
			same := func(other Key) bool { return other.ID == key.ID }
			if !slices.ContainsFunc(merged.all, same) {
				merged.all = append(merged.all, key)
			}
		}
	}
	slices.SortStableFunc(merged.all, func(a, b Key) int { return a.NotBefore.Compare(b.NotBefore) })
	return merged
}
