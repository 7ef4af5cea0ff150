package sign

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
)

// testKey is the key test-key-ed25519 of RFC 9421 appendix B.1.4.
const testKey = `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"test-key-ed25519",
	"d":"n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU","x":"JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs"}]}`

const testKeyID = "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"

var at = time.Unix(1735689600, 0).UTC()

func parsed(t *testing.T, text string) *Keys {
	t.Helper()
	k, err := parseKeys([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func mustOrigin(t *testing.T, s string) origin.Origin {
	t.Helper()
	o, err := origin.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestVectors signs the bases of RFC 9421 appendix B.2.6 and of draft-ietf-webbotauth-httpsig-protocol appendix "Test
// Vectors": Ed25519 has one signature for each.
func TestVectors(t *testing.T) {
	key := parsed(t, testKey).all[0]
	if key.ID != testKeyID {
		t.Fatalf("the thumbprint is %s, want %s", key.ID, testKeyID)
	}
	for name, test := range map[string]struct{ base, signature string }{
		"RFC 9421": {
			`"date": Tue, 20 Apr 2021 02:07:55 GMT
"@method": POST
"@path": /foo
"@authority": example.com
"content-type": application/json
"content-length": 18
"@signature-params": ("date" "@method" "@path" "@authority" "content-type" "content-length");created=1618884473;keyid="test-key-ed25519"`,
			"wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==",
		},
		"dictionary": {
			`"@authority": example.com
"signature-agent";key="sig2": "https://signature-agent.test"
"@signature-params": ("@authority" "signature-agent";key="sig2");created=1735689600;keyid="poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U";alg="ed25519";expires=4889289600;nonce="n9p433xm+NJ3ph3upfBIGmsuwHw387YV7Q/F+6BSpGCVjYCqQw6rznNA8PVVLySrAWsv0hQtFioQb6E1YsauiA==";tag="web-bot-auth"`,
			"CGokAoY/FrPpyuzTe1Fb2kLTAH9Idw6qSFd1+D77r1firsMRCxeuLu5e6O+ek3zQgDMAzjiXtLVfqE00xnABCQ==",
		},
		"string": {
			`"@authority": example.com
"signature-agent": "https://signature-agent.test"
"@signature-params": ("@authority" "signature-agent");created=1735689600;keyid="poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U";alg="ed25519";expires=1735693200;nonce="e8N7S2MFd/qrd6T2R3tdfAuuANngKI7LFtKYI/vowzk4lAZYadIX6wW25MwG7DCT9RUKAJ0qVkU0mEeLElW1qg==";tag="web-bot-auth"`,
			"jdq0SqOwHdyHr9+r5jw3iYZH6aNGKijYp/EstF4RQTQdi5N5YYKrD+mCT1HA1nZDsi6nJKuHxUi/5Syp3rLWBA==",
		},
	} {
		if got := key.sign(test.base); got != ":"+test.signature+":" {
			t.Errorf("%s: %s, want :%s:", name, got, test.signature)
		}
	}
}

// TestBases compares the bases of Signed with those of the draft, but for the label and the lifetime.
func TestBases(t *testing.T) {
	for agent, want := range map[string]string{
		`sig1="https://signature-agent.test"`: `"@authority": example.com
"signature-agent";key="sig1": "https://signature-agent.test"
"@signature-params": ("@authority" "signature-agent";key="sig1");created=1735689600;keyid="` + testKeyID + `";alg="ed25519";expires=1735689660;nonce="bm9uY2U=";tag="web-bot-auth"`,
		`"https://signature-agent.test"`: `"@authority": example.com
"signature-agent": "https://signature-agent.test"
"@signature-params": ("@authority" "signature-agent");created=1735689600;keyid="` + testKeyID + `";alg="ed25519";expires=1735689660;nonce="bm9uY2U=";tag="web-bot-auth"`,
	} {
		s := Signed{Agent: agent, KeyID: testKeyID, Created: at, Nonce: "bm9uY2U="}
		if got := s.Base(mustOrigin(t, "https://EXAMPLE.com:443/")); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", agent, got, want)
		}
	}
}

// TestDirectoryVector signs the directory of the draft's vector.
func TestDirectoryVector(t *testing.T) {
	body := `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U","x":"JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs","use":"sig"}]}`
	digest := contentDigest([]byte(body))
	if want := "sha-256=:CADMT2aBdV/rqQr/NIru64ERQkCobVvllA4V0fLFDu0=:"; digest != want {
		t.Errorf("the digest is %s, want %s", digest, want)
	}
	key := parsed(t, testKey).all[0]
	params := directoryParams(key.ID, at, time.Unix(4889289600, 0))
	got := key.sign(directoryBase(mustOrigin(t, "https://signature-agent.test"), digest, params))
	if want := ":l6P8R67tm3kujAxbHWio7ll01qrEZ0dKD/WWlGhNYEmTnFZM8Wt0VQ9zqGfvo7T/UMkBxsigzChM1Gpz7gOVBg==:"; got != want {
		t.Errorf("the signature is %s, want %s", got, want)
	}
	published := parsed(t, testKey).Directory(at)
	if string(published) != body {
		t.Errorf("the directory is %s, want %s", published, body)
	}
}

func newSigner(t *testing.T, o Options) *Signer {
	t.Helper()
	if o.Agent == "" {
		o.Agent = "https://crawler.example.org"
	}
	if o.Keys == nil {
		o.Keys = NewKeys(at)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// verify checks the signature in h by the parameters in h.
func verify(t *testing.T, h http.Header, o origin.Origin, key Key) {
	t.Helper()
	params := strings.TrimPrefix(h.Get("Signature-Input"), "sig1=")
	component, value := `"signature-agent"`, h.Get("Signature-Agent")
	if inner, ok := strings.CutPrefix(value, "sig1="); ok {
		component, value = `"signature-agent";key="sig1"`, inner
	}
	base := `"@authority": ` + o.Authority() + "\n" + component + ": " + value + "\n" + `"@signature-params": ` + params
	text := strings.TrimSuffix(strings.TrimPrefix(h.Get("Signature"), "sig1=:"), ":")
	signature, err := base64.StdEncoding.DecodeString(text)
	if err != nil || !ed25519.Verify(key.private.Public().(ed25519.PublicKey), []byte(base), signature) {
		t.Errorf("the signature is not that of\n%s\nin %v: %v", base, h, err)
	}
}

func TestSign(t *testing.T) {
	o := mustOrigin(t, "http://a.example:8080")
	for _, form := range []Form{"", Dictionary, String} {
		s := newSigner(t, Options{Form: form})
		h := http.Header{"User-Agent": {"NewsBot/1.0"}}
		signed, ok := s.Sign(h, o, at.Add(900*time.Millisecond))
		if !ok {
			t.Fatal("not signed")
		}
		verify(t, h, o, s.keys.all[0])
		if !signed.Created.Equal(at) || signed.KeyID != s.keys.all[0].ID || signed.Agent != h.Get("Signature-Agent") {
			t.Errorf("%+v for %v", signed, h)
		}
		if nonce, err := base64.StdEncoding.DecodeString(signed.Nonce); err != nil || len(nonce) != nonceLen {
			t.Errorf("the nonce %q has %d bytes", signed.Nonce, len(nonce))
		}
		again := http.Header{}
		if next, _ := s.Sign(again, o, at); next.Nonce == signed.Nonce || again.Get("Signature") == h.Get("Signature") {
			t.Error("two requests have one nonce")
		}
	}
}

func TestSignNot(t *testing.T) {
	o, other := mustOrigin(t, "https://www.a.example"), mustOrigin(t, "https://b.example")
	expired := NewKeys(at)
	expired.all[0].Expires = at
	for name, test := range map[string]struct {
		signer *Signer
		to     origin.Origin
		header http.Header
	}{
		"nil":            {nil, o, http.Header{}},
		"None":           {None, o, http.Header{}},
		"another host":   {newSigner(t, Options{Hosts: []string{"*.a.example"}}), other, http.Header{}},
		"signed already": {newSigner(t, Options{}), o, http.Header{"Signature": {"a=:AA==:"}, "Signature-Input": {"a=()"}}},
		"expired":        {newSigner(t, Options{Keys: expired}), o, http.Header{}},
		"not replaced":   {newSigner(t, Options{Keys: expired, Replace: true}), o, http.Header{"Signature": {"a=:AA==:"}}},
		"too early":      {newSigner(t, Options{Keys: NewKeys(at.Add(time.Second))}), o, http.Header{}},
	} {
		before := len(test.header)
		if _, ok := test.signer.Sign(test.header, test.to, at); ok || len(test.header) != before {
			t.Errorf("%s: signed: %v", name, test.header)
		}
	}
	s := newSigner(t, Options{Replace: true, Hosts: []string{"*.a.example"}})
	h := http.Header{"Signature": {"a=:AA==:"}, "Signature-Input": {"a=()"}, "Signature-Agent": {`"https://b.example"`, "x"}}
	if _, ok := s.Sign(h, o, at); !ok || len(h["Signature-Agent"]) != 1 {
		t.Errorf("not replaced: %v", h)
	}
	verify(t, h, o, s.keys.all[0])
}

func TestNewRefuses(t *testing.T) {
	for _, agent := range []string{
		"", "crawler.example.org", "http://crawler.example.org", "https://", "https://u:p@crawler.example.org", "https://a.example/?q",
		"https://a.example/#f", "https://a.example/\"b", "https://a.example/é",
	} {
		_, err := New(Options{Agent: agent, Keys: NewKeys(at)})
		if (err == nil) != strings.Contains(agent, `"b`) {
			t.Errorf("%q: %v", agent, err)
		}
	}
	if _, err := New(Options{Agent: "https://a.example"}); err == nil {
		t.Error("no error without keys")
	}
}

// TestRotate follows two keys through a rotation, and reads them back at each step.
func TestRotate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	first := NewKeys(at)
	if err := first.Create(path); err != nil {
		t.Fatal(err)
	}
	if err := first.Create(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second Create: %v", err)
	}
	start := at.Add(48 * time.Hour)
	both, err := first.Rotate(at.Add(time.Hour), start)
	if err != nil {
		t.Fatal(err)
	}
	if err := both.Save(path); err != nil {
		t.Fatal(err)
	}
	if both, err = LoadKeys(path); err != nil {
		t.Fatal(err)
	}
	if _, err := both.Rotate(at.Add(2*time.Hour), start); err == nil {
		t.Error("no error for a rotation during a rotation")
	}
	old, next := both.all[0].ID, both.all[1].ID
	for after, want := range map[time.Duration]struct {
		signs     string
		published []string
	}{
		0:                          {old, []string{old, next}},
		48*time.Hour - 1:           {old, []string{old, next}},
		48 * time.Hour:             {next, []string{old, next}},
		48*time.Hour + overlap - 1: {next, []string{old, next}},
		48*time.Hour + overlap:     {next, []string{next}},
	} {
		now := at.Add(after)
		if key, ok := both.Signing(now); !ok || key.ID != want.signs {
			t.Errorf("after %v: %s signs, want %s", after, key.ID, want.signs)
		}
		var set jwks
		if err := json.Unmarshal(both.Directory(now), &set); err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, key := range set.Keys {
			if ids = append(ids, key.ID); key.D != "" {
				t.Error("the directory has a private key")
			}
		}
		if !slices.Equal(ids, want.published) {
			t.Errorf("after %v: the directory has %v, want %v", after, ids, want.published)
		}
	}
	third, err := both.Rotate(start.Add(overlap), start.Add(72*time.Hour))
	if err != nil || len(third.all) != 2 || third.all[0].ID != next {
		t.Errorf("a rotation after the first: %+v, %v", third, err)
	}
}

// TestRotateBeforeTheEnd rotates keys that end before the next one would sign: it signs at once when they end.
func TestRotateBeforeTheEnd(t *testing.T) {
	for ends, want := range map[time.Duration]time.Duration{-time.Hour: 0, time.Hour: time.Hour, 100 * time.Hour: 48 * time.Hour} {
		k := NewKeys(at.Add(-240 * time.Hour))
		k.all[0].Expires = at.Add(ends)
		next, err := k.Rotate(at, at.Add(48*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if got := next.all[len(next.all)-1].NotBefore; !got.Equal(at.Add(want)) {
			t.Errorf("the keys end after %v: the next one signs at %v, want %v", ends, got, at.Add(want))
		}
		for after := time.Duration(0); after < 60*time.Hour; after += 30 * time.Minute {
			if _, ok := next.Signing(at.Add(after)); !ok {
				t.Errorf("the keys end after %v: none signs after %v", ends, after)
			}
		}
	}
}

func TestLoadKeysRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	for name, text := range map[string]string{
		"no JSON":    "-----BEGIN PRIVATE KEY-----",
		"no keys":    `{"keys":[]}`,
		"public":     `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs"}]}`,
		"another x":  strings.Replace(testKey, "JrQLj5P", "JrQLj5Q", 1),
		"P-256":      strings.Replace(testKey, "Ed25519", "P-256", 1),
		"short seed": strings.Replace(testKey, "n4Ni-", "", 1),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadKeys(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(path, []byte(testKey), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadKeys(path); err == nil {
		t.Error("no error for a file that others can read")
	}
}

func BenchmarkSign(b *testing.B) {
	s, err := New(Options{Agent: "https://crawler.example.org", Keys: NewKeys(at)})
	if err != nil {
		b.Fatal(err)
	}
	o, err := origin.Parse("https://www.a.example")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Sign(http.Header{}, o, at)
	}
}
