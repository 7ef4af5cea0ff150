// Package config reads what an operator wrote, in a YAML file, in variables and on the command line, into one checked
// Config.
//
//	cfg, warnings, err := config.Load(config.Options{Path: "robotsproxy.yaml", Env: os.Environ()})
//	if err != nil {
//		fmt.Fprintln(os.Stderr, err) // every fault at once, each with file, line and column
//		os.Exit(2)
//	}
//	fmt.Println(cfg.Listen, cfg.Robots.TTL, len(warnings))
//
// A value is taken from the first that sets it: an Override (a flag), a variable (ROBOTSPROXY_ROBOTS_TTL for robots.ttl),
// the file, Default. Whatever the source, the same parser reads it and the same checks judge the whole. A Config is never
// edited once it is loaded; a reload loads another one, and keeps the old one where that is refused.
//
// The key of a field is its name in snake case, so MaxQueuePerClient of Pacing is pacing.max_queue_per_client. A field's
// tag says how its text is read: "as" names a kind of string (see strings.go), "range" its bounds, "why" who set them.
//
// The package reads the one file, and looks whether the files that are named in it can be read. It makes no folder,
// resolves no name and opens no socket.
package config

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/settings"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/rules"
)

// Config is all that an operator can set. Default says what holds where nothing is set; config.example.yaml says what
// each key is for.
type Config struct {
	Listen         string `as:"address"`
	Admin          Admin
	DataDir        string `as:"path"` // Load fills it in where it is not set: see Options.Env
	Mode           policy.Mode
	Identity       Identity
	Robots         Robots
	Pacing         Pacing
	Limits         Limits
	Intercept      Intercept
	Egress         Egress
	Auth           Auth
	Refusal        Refusal
	ResponseFields bool
	Grace          time.Duration `range:"0s..1h"`
	Audit          Audit
	Redis          Redis
	Log            Log
	Clients        []Client           // the first that matches; none: every user of Auth, and everybody where none is required
	Hosts          []Host             // the first whose pattern matches
	Exemptions     []policy.Exemption // host patterns are canonical

	origins map[string]settings.Origin // where each key that was set was set; read by Values
}

// Admin is the operator's own listener.
type Admin struct {
	Listen               string   `as:"address"`
	Hosts                []string `as:"host"`          // canonical names by which it may be addressed, besides localhost and that of Listen
	TokenFile            string   `as:"path"`          // empty: in the data directory
	Connections          int      `range:"1..1000000"` // open at a time
	ConnectionsPerClient int      `range:"1..1000000"` // of one address, or of one /64 network of IPv6
}

// Identity is who we are when we ask for a robots.txt ourselves.
type Identity struct {
	Name    string `as:"product"`
	Contact string `as:"contact"` // a URL or mailto; never empty where others can reach the listener
}

// Robots says how robots.txt is fetched and for how long it is kept.
type Robots struct {
	TTL            time.Duration `range:"1s..24h" why:"RFC 9309 section 2.4"`
	MinTTL         time.Duration `range:"0s..24h" why:"RFC 9309 section 2.4"`
	ErrorTTL       time.Duration `range:"1s..24h"`
	Timeout        time.Duration `range:"1ms..10m"`
	MaxSize        Size          `range:"500KiB..64MiB" why:"RFC 9309 section 2.5 asks for 500KiB at least"`
	MaxRedirects   int           `range:"5..20" why:"RFC 9309 section 2.3.1.2 asks for five at least"`
	Dialect        rules.Dialect // whose reading of the language counts
	OnUnreachable  Treatment     // after 30 days of it
	OnUnauthorized Treatment
	OnHTML         Treatment
	ServeFromCache bool
	CacheSize      Size `range:"1MiB..1TiB"`
}

// Pacing says how requests to one host are spaced, and how long they may wait for their turn.
type Pacing struct {
	DefaultDelay      time.Duration `range:"0s..24h"`
	DefaultBurst      int           `range:"1..1000000"`
	MaxConcurrent     int           `range:"0..1000000"` // 0: no limit
	MaxCrawlDelay     time.Duration `range:"0s.."`       // 0: every Crawl-delay is obeyed
	OverMax           OverMax
	VisitTime         VisitTime
	Spacing           Spacing
	Redirects         Redirects
	Key               PaceKey
	IPDelay           time.Duration `range:"0s..24h"` // 0: addresses have no pace of their own
	IPExempt          []netip.Prefix
	MaxWait           time.Duration `range:"0s..24h"`
	MaxWaitCap        time.Duration `range:"0s..24h"`
	MaxQueue          int           `range:"1..1000000"`
	MaxQueuePerClient int           `range:"1..1000000"`
	ReleaseAfter      time.Duration `range:"1s..24h"`
}

// Limits bound what clients can hold of the proxy. A count of 0 is no limit.
type Limits struct {
	Connections            int           `range:"0..1000000"` // at most half of the descriptors that the system grants
	ConnectionsPerClient   int           `range:"0..1000000"` // of one address, or of one /64 network of IPv6
	Tunnels                int           `range:"0..1000000"`
	Requests               int           `range:"0..1000000"` // that wait or are being answered
	RequestsPerClient      int           `range:"0..1000000"`
	RequestMemory          Size          `range:"1MiB..1TiB"` // headers and buffered bodies of Requests
	RequestMemoryPerClient Size          `range:"1MiB..1TiB"`
	HeaderTimeout          time.Duration `range:"100ms..10m"`
	IdleTimeout            time.Duration `range:"1s..24h"`
	RequestTimeout         time.Duration `range:"0s.."` // without the wait for its turn; 0: no limit
}

// Intercept says which tunnels are opened, and names an own CA, in PEM. Its files are empty where the CA of the data
// directory serves.
type Intercept struct {
	Mode        policy.Interception
	TunnelHosts []string `as:"pattern"` // hosts whose tunnels are passed on unread
	CACert      string   `as:"path"`
	CAKey       string   `as:"path"`
}

// Egress says which destinations may be dialled.
type Egress struct {
	AllowAddresses []netip.Prefix
	DenyAddresses  []netip.Prefix
	Ports          []PortRange
	Resolve        map[string]netip.Addr `as:"host"` // by canonical host; the guard still applies
	CAFile         string                `as:"path"`
	InsecureHosts  []string              `as:"host"` // canonical hosts whose certificate is not verified

	UpstreamProxy                string `as:"proxy"` // a URL through which everything goes; if empty, nothing does
	UpstreamProxyCredentialsFile string `as:"path"`  // "user:password"; empty: none are sent
}

// Auth says by which passwords clients are known.
type Auth struct {
	HtpasswdFile string `as:"path"` // users and bcrypt hashes; empty: nobody has a password
	Required     bool   // whoever sends no credentials is refused, also where clients would match without
}

// Refusal is what a refused crawler sees.
type Refusal struct {
	Status int `range:"400..499" why:"a refusal is a client error, RFC 9110 section 15.5"`
}

// Audit says where decisions are recorded.
type Audit struct {
	JSONL     string `as:"path"` // empty: audit.jsonl in the data directory; "-": stdout
	Buffer    int    `range:"1..10000000"`
	OnFailure OnFailure
	Query     Query
}

// Redis is where several instances share their pace. Where URL and URLFile are empty, this instance is alone.
type Redis struct {
	URL     string `as:"redis"`
	URLFile string `as:"path"` // holds the URL, so that its password is in no configuration
	Prefix  string `as:"prefix"`
	OnDown  OnDown
}

// Log is about the program's own messages, which are not the audit.
type Log struct {
	Level  slog.Level
	Format LogFormat
}

// Client is somebody who may use the proxy.
type Client struct {
	Name          string
	CIDR          []netip.Prefix // if nil, it comes from anywhere
	User          string         // whose credentials it sends; if empty, none are needed
	ProductToken  string         `as:"product"` // judged in place of the User-Agent header; if empty, the header is
	Mode          *policy.Mode   // if nil, the global one
	Dialect       *rules.Dialect // if nil, that of Robots
	Purpose       string
	MaxWait       *time.Duration `range:"0s..24h"` // if nil, that of Pacing
	MaxCrawlDelay time.Duration  `range:"1ms.."`   // if zero, that of Pacing
	Subresources  Subresources   // if empty, as SubresourcesSlot
}

// Host is what holds for the hosts of one pattern: "a.example", "*.example" (every host below it, not itself) or "*".
type Host struct {
	Host       string         `as:"pattern"`
	Mode       *policy.Mode   // if nil, the client's or the global one
	Dialect    *rules.Dialect // if nil, the client's or that of Robots
	Delay      time.Duration  `range:"0s..24h"` // a floor: a site can only slow us down further
	RobotsFile string         `as:"path"`       // judged in place of the site's own robots.txt; if empty, that one is

	Intercept *policy.Interception // if nil, what Intercept says
}

// Default returns what holds where nothing is set. Its DataDir is empty, since that depends on who runs the program.
func Default() Config {
	return Config{
		Listen:   "127.0.0.1:3128",
		Admin:    Admin{Listen: "127.0.0.1:3129", Connections: 256, ConnectionsPerClient: 64},
		Mode:     policy.Enforce,
		Identity: Identity{Name: "robotsproxy"},
		Robots: Robots{
			TTL:            24 * time.Hour,
			MinTTL:         5 * time.Minute,
			ErrorTTL:       time.Minute,
			Timeout:        10 * time.Second,
			MaxSize:        500 * kibi,
			MaxRedirects:   5,
			OnUnreachable:  Refuse,
			OnUnauthorized: Allow,
			OnHTML:         Allow,
			ServeFromCache: true,
			CacheSize:      256 * mebi,
		},
		Pacing: Pacing{
			DefaultBurst:      1,
			MaxConcurrent:     8,
			OverMax:           OverMaxRefuse,
			VisitTime:         VisitTimeIgnore,
			Spacing:           SpacingEnd,
			Redirects:         RedirectsSlot,
			Key:               PaceKeyHost,
			MaxWait:           150 * time.Second,
			MaxWaitCap:        10 * time.Minute,
			MaxQueue:          1000,
			MaxQueuePerClient: 250,
			ReleaseAfter:      30 * time.Second,
		},
		Limits: Limits{
			Connections:            10_000,
			ConnectionsPerClient:   5000,
			Tunnels:                8000,
			Requests:               10_000,
			RequestsPerClient:      5000,
			RequestMemory:          128 * mebi,
			RequestMemoryPerClient: 32 * mebi,
			HeaderTimeout:          10 * time.Second,
			IdleTimeout:            2 * time.Minute,
			RequestTimeout:         24 * time.Hour,
		},
		Egress:  Egress{Ports: []PortRange{{80, 80}, {443, 443}, {1024, 65535}}},
		Refusal: Refusal{Status: 403},
		Grace:   30 * time.Second,
		Audit:   Audit{Buffer: 100_000, OnFailure: OnFailureRefuse, Query: QueryMask},
		Redis:   Redis{Prefix: "robotsproxy:", OnDown: OnDownSpread},
		Log:     Log{Level: slog.LevelInfo, Format: LogAuto},
	}
}
