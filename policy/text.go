package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/hostset"
	"github.com/robotsproxy/robotsproxy/rules"
)

// textFormat is the version of the format of Text.
const textFormat = 1

// document is the form of Text. Its fields are those of Options.
type document struct {
	Format         int               `json:"format"`
	Mode           string            `json:"mode"`
	Dialect        string            `json:"dialect"`
	Interception   string            `json:"intercept"`
	TunnelHosts    []string          `json:"tunnel_hosts,omitempty"`
	MaxCrawlDelay  span              `json:"max_crawl_delay,omitzero"`
	RefuseOverMax  bool              `json:"refuse_over_max,omitempty"`
	RequireContact bool              `json:"require_contact,omitempty"`
	Usage          string            `json:"usage"`
	UsageHeader    bool              `json:"usage_header,omitempty"` // false in texts of versions that did not judge responses
	Queries        string            `json:"queries,omitempty"`
	Hosts          []hostText        `json:"hosts,omitempty"`
	Access         accessText        `json:"access,omitzero"`
	Clients        []clientText      `json:"clients,omitempty"`
	ClientAccess   []clientListsText `json:"client_access,omitempty"` // in the order of the names
	Exemptions     []exemptionText   `json:"exemptions,omitempty"`
	Interventions  []Intervention    `json:"interventions,omitempty"`
}

type hostText struct {
	Pattern      string `json:"host"`
	Mode         string `json:"mode,omitempty"`
	Dialect      string `json:"dialect,omitempty"`
	Delay        span   `json:"delay,omitzero"`
	Interception string `json:"intercept,omitempty"`
}

type clientText struct {
	Name          string  `json:"name"`
	ProductToken  string  `json:"product_token,omitempty"`
	Mode          string  `json:"mode,omitempty"`
	Dialect       string  `json:"dialect,omitempty"`
	MaxCrawlDelay span    `json:"max_crawl_delay,omitzero"`
	Purpose       Purpose `json:"purpose,omitempty"`
}

type accessText struct {
	Allow    []string `json:"allow_hosts,omitempty"`
	Deny     []string `json:"deny_hosts,omitempty"`
	DenyFile fileText `json:"deny_hosts_file,omitzero"`
}

type clientListsText struct {
	Client string `json:"client"`
	accessText
}

// fileText names a list that may have millions of entries.
type fileText struct {
	SHA256  string `json:"sha256"`
	Entries int    `json:"entries"`
}

type exemptionText struct {
	Host   string    `json:"host"`
	Path   string    `json:"path,omitempty"`
	Client string    `json:"client,omitempty"`
	Effect string    `json:"effect"`
	Reason string    `json:"reason"`
	Owner  string    `json:"owner"`
	Until  time.Time `json:"until,omitzero"`
}

// span is a duration as text.
type span time.Duration

func (s span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

func (s *span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*s = span(d)
	return err
}

// Text returns everything on which decisions of p depend, as JSON. Policies that decide the same by the same
// configuration have the same text. The entries of an Access.DenyFile are not in it, but their SHA-256 is.
func (p *Policy) Text() []byte { return bytes.Clone(p.text.body) }

// SHA256 returns the SHA-256 of Text in lower-case hexadecimal.
func (p *Policy) SHA256() string { return p.text.sha256 }

// writtenText is a Text with its hash.
type writtenText struct {
	body   []byte
	sha256 string
}

func newText(body []byte) writtenText {
	sum := sha256.Sum256(body)
	return writtenText{body, hex.EncodeToString(sum[:])}
}

// write returns the Text of o. It fails if a time has a year of five digits.
func (o Options) write() (writtenText, error) {
	d := document{
		Format: textFormat, Mode: o.Mode.String(), Dialect: o.Dialect.String(), Interception: o.Interception.String(),
		TunnelHosts: o.TunnelHosts, MaxCrawlDelay: span(o.MaxCrawlDelay), RefuseOverMax: o.RefuseOverMax,
		RequireContact: o.RequireContact, Usage: o.Usage.String(), UsageHeader: o.Usage == UsageEnforce, Queries: o.Queries, Access: textOfAccess(o.Access),
	}
	for _, h := range o.Hosts {
		d.Hosts = append(d.Hosts, hostText{h.Pattern, nameOf(h.Mode), nameOf(h.Dialect), span(h.Delay), nameOf(h.Interception)})
	}
	for _, c := range o.Clients {
		d.Clients = append(d.Clients, clientText{
			c.Name, c.ProductToken, nameOf(c.Mode), nameOf(c.Dialect), span(c.MaxCrawlDelay), c.Purpose,
		})
	}
	for name, a := range o.ClientAccess {
		d.ClientAccess = append(d.ClientAccess, clientListsText{name, textOfAccess(a)})
	}
	slices.SortFunc(d.ClientAccess, func(a, b clientListsText) int { return strings.Compare(a.Client, b.Client) })
	for _, e := range o.Exemptions {
		d.Exemptions = append(d.Exemptions, exemptionText{
			e.Host, e.Path, e.Client, e.Effect.String(), e.Reason, e.Owner, e.Until.UTC(),
		})
	}
	for _, i := range o.Interventions {
		i.Since, i.Until = i.Since.UTC(), i.Until.UTC()
		d.Interventions = append(d.Interventions, i)
	}
	text, err := d.write()
	return newText(text), err
}

func nameOf[T fmt.Stringer](setting *T) string {
	if setting == nil {
		return ""
	}
	return (*setting).String()
}

func textOfAccess(a Access) accessText {
	t := accessText{Allow: append([]string(nil), a.Allow...), Deny: append([]string(nil), a.Deny...)} // nil if empty
	if a.DenyFile.Len() > 0 {
		t.DenyFile = fileText{a.DenyFile.SHA256(), a.DenyFile.Len()}
	}
	return t
}

// Parse returns the policy of a Text. It has no Access.DenyFile, since the text does not list its entries: see Listing.
func Parse(text []byte) (*Policy, error) {
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("policy: reading a policy: %w", err)
	}
	if d.Format != textFormat {
		return nil, fmt.Errorf("policy: a policy has the format %d, and this program reads %d", d.Format, textFormat)
	}
	o, err := d.options()
	if err != nil {
		return nil, fmt.Errorf("policy: reading a policy: %w", err)
	}
	p, err := New(o)
	if err != nil {
		return nil, err
	}
	p.text = newText(bytes.Clone(text))
	p.ignoresHeaders = !d.UsageHeader
	p.unlisted = make(map[string]bool)
	for _, a := range d.ClientAccess {
		p.unlisted[a.Client] = a.DenyFile.Entries > 0
	}
	p.unlistedToAll = d.Access.DenyFile.Entries > 0
	return p, nil
}

func (d *document) options() (o Options, err error) {
	o = Options{
		TunnelHosts: d.TunnelHosts, MaxCrawlDelay: time.Duration(d.MaxCrawlDelay), RefuseOverMax: d.RefuseOverMax,
		RequireContact: d.RequireContact, Access: d.Access.access(), Interventions: d.Interventions, Queries: d.Queries,
	}
	var r nameReader
	o.Mode, o.Usage = named[Mode](&r, modes[:], d.Mode), named[Usage](&r, usages[:], d.Usage)
	o.Dialect, o.Interception = r.dialect(d.Dialect), named[Interception](&r, interceptions[:], d.Interception)
	for _, h := range d.Hosts {
		o.Hosts = append(o.Hosts, Host{
			Pattern: h.Pattern, Mode: optional(h.Mode, r.mode), Dialect: optional(h.Dialect, r.dialect), Delay: time.Duration(h.Delay),
			Interception: optional(h.Interception, r.interception),
		})
	}
	for _, c := range d.Clients {
		o.Clients = append(o.Clients, Client{
			Name: c.Name, ProductToken: c.ProductToken, Mode: optional(c.Mode, r.mode), Dialect: optional(c.Dialect, r.dialect),
			MaxCrawlDelay: time.Duration(c.MaxCrawlDelay), Purpose: c.Purpose,
		})
	}
	for _, e := range d.Exemptions {
		o.Exemptions = append(o.Exemptions, Exemption{
			e.Host, e.Path, e.Client, named[Effect](&r, effects[:], e.Effect), e.Reason, e.Owner, e.Until,
		})
	}
	o.ClientAccess = make(map[string]Access, len(d.ClientAccess))
	for _, a := range d.ClientAccess {
		o.ClientAccess[a.Client] = a.access()
	}
	return o, r.err
}

func (t accessText) access() Access { return Access{Allow: t.Allow, Deny: t.Deny} }

// nameReader parses names of settings. It keeps the first error.
type nameReader struct{ err error }

func named[T ~uint8](r *nameReader, names []string, name string) T {
	i := slices.Index(names, name)
	if i < 0 && r.err == nil {
		r.err = fmt.Errorf("%q is none of %s", name, strings.Join(names, ", "))
	}
	return T(max(i, 0))
}

func (r *nameReader) mode(name string) Mode { return named[Mode](r, modes[:], name) }

func (r *nameReader) interception(name string) Interception {
	return named[Interception](r, interceptions[:], name)
}

func (r *nameReader) dialect(name string) rules.Dialect {
	dialect, err := rules.ParseDialect(name)
	if err != nil && r.err == nil {
		r.err = err
	}
	return dialect
}

// optional returns nil if name is empty.
func optional[T any](name string, parse func(string) T) *T {
	if name == "" {
		return nil
	}
	value := parse(name)
	return &value
}

// Client returns the settings of the client with this name. That of the proxy's own requests is empty. The result is
// false if Options.Clients does not list it.
func (p *Policy) Client(name string) (Client, bool) {
	i := slices.IndexFunc(p.options.Clients, func(c Client) bool { return c.Name == name })
	if i < 0 {
		return Client{Name: name}, false
	}
	return p.options.Clients[i], true
}

// Usage returns Options.Usage.
func (p *Policy) Usage() Usage { return p.options.Usage }

// Queries returns Options.Queries.
func (p *Policy) Queries() string { return p.options.Queries }

// Listing returns a policy that Parse has made, with one entry in its Access.DenyFile: the one that rule, a
// Decision.HostRule, names. It returns p if rule names no entry of such a file, or if p had no such file.
func (p *Policy) Listing(rule string) *Policy {
	pattern, ok := strings.CutPrefix(rule, denyFileRule)
	if !ok {
		return p
	}
	pattern, of, own := strings.Cut(pattern, " (client ")
	client := strings.TrimSuffix(of, ")")
	if own && !p.unlisted[client] || !own && !p.unlistedToAll {
		return p
	}
	entry, err := hostset.New([]string{pattern})
	if err != nil {
		return p
	}
	with := *p
	if !own {
		with.access.denyFile = entry
		return &with
	}
	a := p.clientAccess[client]
	a.denyFile = entry
	with.clientAccess = map[string]access{client: a}
	return &with
}
