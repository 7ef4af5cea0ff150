package sign

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
)

const (
	// DirectoryPath is the path at which verifiers expect the directory of an agent whose URL has no path.
	DirectoryPath = "/.well-known/http-message-signatures-directory"

	// DirectoryType is the media type of a directory.
	DirectoryType = "application/http-message-signatures-directory+json"

	// DirectoryAge is the time for which verifiers may keep the directory (max-age), and so the shortest time between
	// the publication of a new key and its first signature.
	DirectoryAge = 24 * time.Hour

	directoryTag = "http-message-signatures-directory"
)

// Directory returns the public parts of the keys that have not expired, as a JWK Set.
func (k *Keys) Directory(now time.Time) []byte {
	set := jwks{Keys: []jwk{}}
	for _, key := range k.published(now) {
		set.Keys = append(set.Keys, key.jwk())
	}
	text, err := json.Marshal(set)
	if err != nil {
		panic(err) // the types can be encoded
	}
	return text
}

func (k *Keys) published(now time.Time) (keys []*Key) {
	for i := range k.all {
		if end := k.all[i].Expires; end.IsZero() || now.Before(end) {
			keys = append(keys, &k.all[i])
		}
	}
	return keys
}

// DirectoryURL returns the URL of the directory of an agent: its own URL, or, if that has no path, the well-known one.
func DirectoryURL(agent string) (string, error) {
	u, _, err := parseAgent(agent)
	if err != nil {
		return "", err
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = DirectoryPath
	}
	return u.String(), nil
}

// DirectoryHeader returns the header of a response with the directory of an agent, body. Each key signs it, for the
// authority of the agent's URL, from now until the end of valid.
func (k *Keys) DirectoryHeader(agent string, body []byte, now time.Time, valid time.Duration) (http.Header, error) {
	_, o, err := parseAgent(agent)
	if err != nil {
		return nil, err
	}
	digest := contentDigest(body)
	var inputs, signatures []string
	for i, key := range k.published(now) {
		name := "binding" + strconv.Itoa(i)
		params := directoryParams(key.ID, now, now.Add(valid))
		inputs = append(inputs, name+"="+params)
		signatures = append(signatures, name+"="+key.sign(directoryBase(o, digest, params)))
	}
	h := make(http.Header)
	h.Set("Content-Type", DirectoryType)
	h.Set("Cache-Control", fmt.Sprintf("max-age=%d", int(DirectoryAge.Seconds())))
	h.Set("Content-Digest", digest)
	h.Set("Signature-Input", strings.Join(inputs, ", "))
	h.Set("Signature", strings.Join(signatures, ", "))
	return h, nil
}

// contentDigest returns the value of Content-Digest (RFC 9530) for body.
func contentDigest(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha-256=" + byteSequence(sum[:])
}

func directoryParams(keyID string, created, expires time.Time) string {
	return fmt.Sprintf(`("@authority";req "content-digest");created=%d;expires=%d;keyid="%s";tag="%s"`,
		created.Unix(), expires.Unix(), keyID, directoryTag)
}

func directoryBase(o origin.Origin, digest, params string) string {
	return `"@authority";req: ` + o.Authority() + "\n" +
		`"content-digest": ` + digest + "\n" +
		`"@signature-params": ` + params
}
