// Package sign signs the requests that the proxy sends, so that sites can verify which operator's crawler sent them
// (Web Bot Auth).
//
//	keys, err := sign.LoadKeys("agent-keys.json")
//	signer, err := sign.New(sign.Options{Agent: "https://crawler.example.org", Keys: keys})
//	signed, ok := signer.Sign(req.Header, o, time.Now())
//	fmt.Println(signed.KeyID, signed.Base(o)) // the base: what the key has signed
//
// A signature is an HTTP message signature (RFC 9421) with the profile of draft-ietf-webbotauth-httpsig-protocol-01: it
// covers the authority of the request and the URL of the agent, and lasts a minute. The site fetches the agent's keys
// from that URL: see Keys.Directory.
package sign

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/hostset"
	"github.com/robotsproxy/robotsproxy/origin"
)

const (
	// Lifetime is the time from the creation of a signature to its end.
	Lifetime = time.Minute

	tag      = "web-bot-auth"
	label    = "sig1"
	nonceLen = 64 // bytes; verifiers of earlier drafts accept no other length
)

// Form is the form of the field Signature-Agent.
type Form string

const (
	// Dictionary has the URL as a member with the label of the signature.
	Dictionary Form = "dictionary"
	// String has the URL alone, as in drafts before 2026, which some verifiers still need.
	String Form = "string"
)

// Options configure a Signer.
type Options struct {
	Agent string   // the https URL that identifies the agent
	Keys  *Keys    // required
	Hosts []string // patterns of the hosts whose requests are signed; if empty, all are
	Form  Form     // if empty, Dictionary

	// Replace removes the signatures of clients. Otherwise a request that has one is not signed.
	Replace bool
}

// Signer signs requests. A nil Signer signs none. It is safe for concurrent use.
type Signer struct {
	agent   string // the value of Signature-Agent
	keys    *Keys
	hosts   *hostset.Set // nil: all
	replace bool
}

// New returns a Signer. It returns an error if o.Agent is not an https URL.
func New(o Options) (*Signer, error) {
	if o.Keys == nil {
		return nil, errors.New("sign: New needs Keys")
	}
	if err := CheckAgent(o.Agent); err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	s := &Signer{agent: quote(o.Agent), keys: o.Keys, replace: o.Replace}
	if o.Form != String {
		s.agent = label + "=" + s.agent
	}
	if len(o.Hosts) > 0 {
		hosts, err := hostset.New(o.Hosts)
		if err != nil {
			return nil, fmt.Errorf("sign: the hosts: %w", err)
		}
		s.hosts = hosts
	}
	return s, nil
}

// None signs nothing.
var None = &Signer{keys: &Keys{}}

// CheckAgent returns an error unless agent is an absolute https URL without user, query and fragment.
func CheckAgent(agent string) error {
	_, _, err := parseAgent(agent)
	return err
}

func parseAgent(agent string) (u *url.URL, o origin.Origin, err error) {
	u, err = url.Parse(agent)
	switch {
	case err != nil:
		return nil, o, fmt.Errorf("the URL of the agent: %w", err)
	case u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, o, fmt.Errorf("found %q, expected an https URL such as https://crawler.example.org", agent)
	case strings.ContainsFunc(agent, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, o, fmt.Errorf("%q has octets that no URL may contain", agent)
	}
	o, err = origin.FromURL(u)
	return u, o, err
}

// Signed is a signature without its bytes.
type Signed struct {
	Agent   string // the value of Signature-Agent
	KeyID   string // the thumbprint of the key (RFC 7638, RFC 8037 appendix A.3)
	Created time.Time
	Nonce   string
}

// signatureFields are the fields that a signature takes.
var signatureFields = []string{"Signature", "Signature-Input", "Signature-Agent"}

// Sign signs a request to o with the header h, which must be complete: it adds Signature, Signature-Input and
// Signature-Agent. It returns false, and h as it was, if the request is not to be signed or no key is valid.
func (s *Signer) Sign(h http.Header, o origin.Origin, now time.Time) (Signed, bool) {
	if s == nil || !s.signs(o.Host()) {
		return Signed{}, false
	}
	if isSigned(h) && !s.replace {
		return Signed{}, false
	}
	key, ok := s.keys.at(now)
	if !ok {
		return Signed{}, false
	}
	signed := Signed{Agent: s.agent, KeyID: key.ID, Created: now.UTC().Truncate(time.Second), Nonce: newNonce()}
	h.Set("Signature-Agent", signed.Agent)
	h.Set("Signature-Input", label+"="+signed.params())
	h.Set("Signature", label+"="+key.sign(signed.Base(o)))
	return signed, true
}

func (s *Signer) signs(host string) bool {
	if s.hosts == nil {
		return true
	}
	_, ok := s.hosts.Match(host)
	return ok
}

// isSigned reports whether h has a signature, or a part of one.
func isSigned(h http.Header) bool {
	return slices.ContainsFunc(signatureFields, func(field string) bool { return len(h[field]) > 0 })
}

// Remove removes a signature from h.
func Remove(h http.Header) {
	for _, field := range signatureFields {
		h.Del(field)
	}
}

// Base returns the signature base of a request to o (RFC 9421 section 2.5).
func (s Signed) Base(o origin.Origin) string {
	return `"@authority": ` + o.Authority() + "\n" +
		s.component() + ": " + strings.TrimPrefix(s.Agent, label+"=") + "\n" +
		`"@signature-params": ` + s.params()
}

// component returns the component that covers Signature-Agent: its member, or all of a String.
func (s Signed) component() string {
	if strings.HasPrefix(s.Agent, label+"=") {
		return `"signature-agent";key="` + label + `"`
	}
	return `"signature-agent"`
}

// params returns the signature parameters (RFC 9421 section 2.3).
func (s Signed) params() string {
	created := s.Created.Unix()
	return `("@authority" ` + s.component() + `);created=` + strconv.FormatInt(created, 10) + `;keyid="` + s.KeyID +
		`";alg="ed25519";expires=` + strconv.FormatInt(created+int64(Lifetime/time.Second), 10) + `;nonce="` + s.Nonce +
		`";tag="` + tag + `"`
}

func newNonce() string {
	nonce := make([]byte, nonceLen)
	rand.Read(nonce) // never returns an error
	return base64.StdEncoding.EncodeToString(nonce)
}

// quote returns s, which has only visible ASCII, as a String (RFC 9651 section 4.1.6).
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// byteSequence returns b as a Byte Sequence (RFC 9651 section 4.1.8).
func byteSequence(b []byte) string { return ":" + base64.StdEncoding.EncodeToString(b) + ":" }
