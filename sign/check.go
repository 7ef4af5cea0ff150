package sign

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/robotsproxy/robotsproxy/origin"
)

// Published is a directory as a verifier gets it.
type Published struct {
	Agent  string // by whose URL it was found
	Status int
	Header http.Header
	Body   []byte
}

// Check returns what is wrong with a published directory of k, in words, the worst first.
func (k *Keys) Check(p Published, now time.Time) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if p.Status != http.StatusOK {
		fault("the status is %d; verifiers accept only 200, and follow no redirects", p.Status)
		return faults
	}
	var set jwks
	if err := json.Unmarshal(p.Body, &set); err != nil {
		fault("it is no JWK Set: %v", err)
		return faults
	}
	for _, j := range set.Keys {
		if j.D != "" {
			fault("it has the PRIVATE part of the key %s: replace the file, and then the key: robotsproxy key rotate --compromised", j.ID)
		}
	}
	faults = append(faults, k.missing(set, now)...)
	if t, _, _ := mime.ParseMediaType(p.Header.Get("Content-Type")); t != DirectoryType {
		fault("its Content-Type is %q; verifiers expect %s", p.Header.Get("Content-Type"), DirectoryType)
	}
	faults = append(faults, p.checkAge()...)
	signed, err := p.checkSignatures(set, now)
	if err != nil {
		fault("%v", err)
		return faults
	}
	for _, key := range k.published(now) {
		if len(signed) > 0 && !signed[key.ID] {
			fault("the key %s does not sign it: publish the file and its fields again: robotsproxy key directory", key.ID)
		}
	}
	return faults
}

// missing names the differences between k and a directory.
func (k *Keys) missing(set jwks, now time.Time) (faults []string) {
	there := make(map[string]*jwk)
	for i := range set.Keys {
		j := &set.Keys[i]
		there[j.X] = j
	}
	for _, key := range k.published(now) {
		own := key.jwk()
		j := there[own.X]
		delete(there, own.X)
		switch {
		case j == nil && key.NotBefore.After(now):
			faults = append(faults, fmt.Sprintf("the next key %s is missing; it signs from %s on", key.ID, key.NotBefore.Format(time.RFC3339)))
		case j == nil:
			faults = append(faults, fmt.Sprintf("the key %s is missing", key.ID))
		case j.ID != "" && j.ID != key.ID:
			faults = append(faults, fmt.Sprintf("the kid of the key %s is %q; verifiers look for its thumbprint", key.ID, j.ID))
		case j.Type != own.Type || j.Curve != own.Curve:
			faults = append(faults, fmt.Sprintf("the key %s has kty %q and crv %q there; its thumbprint is that of %q and %q",
				key.ID, j.Type, j.Curve, own.Type, own.Curve))
		case j.Begin > now.Unix() && j.Begin > own.Begin:
			faults = append(faults, fmt.Sprintf("the key %s is not valid yet there: nbf is %s", key.ID, time.Unix(j.Begin, 0).UTC().Format(time.RFC3339)))
		case j.Expires != 0 && j.Expires <= now.Unix():
			faults = append(faults, fmt.Sprintf("the key %s has expired there: exp is %s", key.ID, time.Unix(j.Expires, 0).UTC().Format(time.RFC3339)))
		}
	}
	for _, j := range set.Keys {
		if there[j.X] != nil {
			faults = append(faults, fmt.Sprintf("the key %s is not one of this configuration; remove it, or name its file", j.ID))
		}
	}
	return faults
}

// checkAge compares max-age with the time for which a rotation waits.
func (p *Published) checkAge() []string {
	for directive := range strings.SplitSeq(p.Header.Get("Cache-Control"), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(directive), "=")
		age, err := strconv.Atoi(value)
		if strings.EqualFold(name, "max-age") && err == nil && time.Duration(age)*time.Second > DirectoryAge {
			return []string{fmt.Sprintf("its max-age is %d; more than %d delays rotations", age, int(DirectoryAge.Seconds()))}
		}
	}
	return nil
}

// checkSignatures checks those of the response, and returns the IDs of the keys that sign it.
func (p *Published) checkSignatures(set jwks, now time.Time) (signed map[string]bool, err error) {
	if p.Header.Get("Signature-Input") == "" {
		return nil, errors.New("it is not signed, and some verifiers accept only a signed one: publish the fields of robotsproxy key directory too")
	}
	inputs, err := httpsfv.UnmarshalDictionary(p.Header.Values("Signature-Input"))
	if err != nil {
		return nil, fmt.Errorf("its Signature-Input is malformed: %w", err)
	}
	signatures, err := httpsfv.UnmarshalDictionary(p.Header.Values("Signature"))
	if err != nil {
		return nil, fmt.Errorf("its Signature is malformed: %w", err)
	}
	if err := p.checkDigest(); err != nil {
		return nil, err
	}
	_, o, err := parseAgent(p.Agent)
	if err != nil {
		return nil, err
	}
	signed = make(map[string]bool)
	for _, name := range inputs.Names() {
		input, _ := inputs.Get(name)
		list, isList := input.(httpsfv.InnerList)
		member, _ := signatures.Get(name)
		item, isItem := member.(httpsfv.Item)
		signature, isBytes := item.Value.([]byte)
		if !isList || !isItem || !isBytes {
			return nil, fmt.Errorf("its signature %s is malformed", name)
		}
		id, err := p.checkSignature(list, signature, set, o, now)
		if err != nil {
			return nil, fmt.Errorf("its signature %s %w", name, err)
		}
		signed[id] = true
	}
	return signed, nil
}

// checkDigest compares each digest of Content-Digest that it knows with the body (RFC 9530). Other members may be there.
func (p *Published) checkDigest() error {
	digests, err := httpsfv.UnmarshalDictionary(p.Header.Values("Content-Digest"))
	if err != nil {
		return fmt.Errorf("its Content-Digest is malformed: %w", err)
	}
	sum256, sum512 := sha256.Sum256(p.Body), sha512.Sum512(p.Body)
	for algorithm, want := range map[string][]byte{"sha-256": sum256[:], "sha-512": sum512[:]} {
		member, there := digests.Get(algorithm)
		item, _ := member.(httpsfv.Item)
		if got, _ := item.Value.([]byte); there && !bytes.Equal(got, want) {
			return errors.New("its Content-Digest is not that of the body: publish the file and its fields again: robotsproxy key directory")
		}
	}
	return nil
}

// checkSignature checks one signature and returns the ID of its key.
func (p *Published) checkSignature(input httpsfv.InnerList, signature []byte, set jwks, o origin.Origin, now time.Time) (id string, err error) {
	params, err := httpsfv.Marshal(httpsfv.List{input})
	if err != nil {
		return "", fmt.Errorf("is malformed: %w", err)
	}
	var base strings.Builder
	for _, component := range input.Items {
		identifier, err := httpsfv.Marshal(component)
		if err != nil {
			return "", fmt.Errorf("is malformed: %w", err)
		}
		switch identifier {
		case `"@authority";req`:
			fmt.Fprintf(&base, "%s: %s\n", identifier, o.Authority())
		case `"content-digest"`:
			fmt.Fprintf(&base, "%s: %s\n", identifier, strings.Join(p.Header.Values("Content-Digest"), ", "))
		default:
			return "", fmt.Errorf("covers %s, which this version cannot check", identifier)
		}
	}
	fmt.Fprintf(&base, "\"@signature-params\": %s", params)
	if created, _ := input.Params.Get("created"); isAfter(created, now) {
		return "", errors.New("was created in the future: set the clock of the machine that signs it")
	}
	if expires, _ := input.Params.Get("expires"); isPast(expires, now) {
		return "", fmt.Errorf("has expired: publish the file and its fields again: robotsproxy key directory")
	}
	if tag, _ := input.Params.Get("tag"); tag != directoryTag {
		return "", fmt.Errorf("has the tag %q; verifiers look for %s", tag, directoryTag)
	}
	keyID, _ := input.Params.Get("keyid")
	for _, j := range set.Keys {
		x, err := base64.RawURLEncoding.DecodeString(j.X)
		if err == nil && j.ID == keyID && len(x) == ed25519.PublicKeySize && ed25519.Verify(x, []byte(base.String()), signature) {
			return j.ID, nil
		}
	}
	return "", fmt.Errorf("is not valid for %s by the key %v", o.Authority(), keyID)
}

func isAfter(created any, now time.Time) bool {
	t, ok := created.(int64)
	return ok && t > now.Unix()
}

func isPast(expires any, now time.Time) bool {
	t, ok := expires.(int64)
	return ok && t <= now.Unix()
}
