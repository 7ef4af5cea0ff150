package sign

import (
	"crypto/sha512"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestCheckSignatures checks directories that others could have signed or passed on: with two digests, in one line or in
// two, and with a signature that does not cover what it should.
func TestCheckSignatures(t *testing.T) {
	const agent = "https://crawler.example.org"
	k := NewKeys(at)
	body := k.Directory(at)
	sum := sha512.Sum512(body)
	sha256, sha512 := contentDigest(body), "sha-512="+byteSequence(sum[:])
	signed := func(component, value, digest string) http.Header {
		h, err := k.DirectoryHeader(agent, body, at, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		params := strings.Replace(directoryParams(k.all[0].ID, at, at.Add(time.Hour)), `"@authority";req`, component, 1)
		base := component + ": " + value + "\n" + `"content-digest": ` + digest + "\n" + `"@signature-params": ` + params
		h.Set("Signature-Input", "s="+params)
		h.Set("Signature", "s="+k.all[0].sign(base))
		h.Set("Content-Digest", digest)
		return h
	}
	good := func(digest string) http.Header { return signed(`"@authority";req`, "crawler.example.org", digest) }
	lines := good(sha256 + ", " + sha512)
	lines["Content-Digest"] = []string{sha256, sha512}
	tagged := good(sha256)
	tagged.Set("Signature-Input", strings.Replace(tagged.Get("Signature-Input"), directoryTag, "web-bot-auth", 1))
	wrong512 := "sha-512=" + byteSequence(make([]byte, len(sum)))
	for name, test := range map[string]struct {
		header http.Header
		now    time.Time
		fault  string
	}{
		"one digest":             {good(sha256), at, ""},
		"two digests":            {good(sha512 + ", " + sha256), at, ""},
		"in two lines":           {lines, at, ""},
		"a digest of later":      {good("unknown=:AA==:, " + sha256), at, ""},
		"one wrong digest":       {good(sha256 + ", " + wrong512), at, "Content-Digest is not that of the body"},
		"a digest as text":       {good(`sha-256="x"`), at, "Content-Digest is not that of the body"},
		"without req":            {signed(`"@authority"`, "crawler.example.org", sha256), at, `covers "@authority"`},
		"of another host":        {signed(`"@authority";req`, "other.example", sha256), at, "is not valid for crawler.example.org"},
		"created in the future":  {good(sha256), at.Add(-time.Minute), "created in the future"},
		"expired":                {good(sha256), at.Add(time.Hour), "has expired"},
		"with another tag":       {tagged, at, `has the tag "web-bot-auth"`},
		"without any signatures": {http.Header{"Content-Type": {DirectoryType}}, at, "it is not signed"},
	} {
		test.header.Set("Content-Type", DirectoryType)
		faults := k.Check(Published{Agent: agent, Status: http.StatusOK, Header: test.header, Body: body}, test.now)
		said := strings.Join(faults, "; ")
		if (said == "") != (test.fault == "") || !strings.Contains(said, test.fault) {
			t.Errorf("%s: %q, want %q", name, said, test.fault)
		}
	}
}

// TestCheckMembers checks directories with a key that verifiers do not accept.
func TestCheckMembers(t *testing.T) {
	k := NewKeys(at)
	body := string(k.Directory(at))
	for _, test := range []struct{ old, replacement, fault string }{
		{"", "", ""},
		{`"OKP"`, `"EC"`, `has kty "EC" and crv "Ed25519" there`},
		{`"Ed25519"`, `"X25519"`, `has kty "OKP" and crv "X25519" there`},
		{`"nbf":`, `"nbf":9`, "is not valid yet there"},
		{`"nbf":`, `"exp":1,"nbf":`, "has expired there"},
		{k.all[0].ID, "news", `is "news"`},
	} {
		published := Published{
			Agent: "https://crawler.example.org", Status: http.StatusOK, Body: []byte(strings.Replace(body, test.old, test.replacement, 1)),
		}
		var err error
		if published.Header, err = k.DirectoryHeader(published.Agent, published.Body, at, time.Hour); err != nil {
			t.Fatal(err)
		}
		said := strings.Join(k.Check(published, at), "; ")
		if (said == "") != (test.fault == "") || !strings.Contains(said, test.fault) {
			t.Errorf("%s: %q, want %q", published.Body, said, test.fault)
		}
	}
}

// TestCheckEachKeySigns checks a directory of two keys with the signature of the first alone.
func TestCheckEachKeySigns(t *testing.T) {
	k, err := NewKeys(at).Rotate(at, at.Add(48*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	p := Published{Agent: "https://crawler.example.org", Status: http.StatusOK, Body: k.Directory(at)}
	if p.Header, err = k.DirectoryHeader(p.Agent, p.Body, at, time.Hour); err != nil {
		t.Fatal(err)
	}
	if faults := k.Check(p, at); len(faults) > 0 {
		t.Fatalf("with both signatures: %q", faults)
	}
	for _, name := range []string{"Signature-Input", "Signature"} {
		first, _, _ := strings.Cut(p.Header.Get(name), ", binding1=")
		p.Header.Set(name, first)
	}
	want := "the key " + k.all[1].ID + " does not sign it"
	if said := strings.Join(k.Check(p, at), "; "); !strings.HasPrefix(said, want) {
		t.Errorf("%q, want %q", said, want)
	}
}
