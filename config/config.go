// Package config loads the configuration of the proxy from a YAML file, variables and flags, and checks it.
//
//	cfg, warnings, err := config.Load(config.Options{Path: "robotsproxy.yaml", Env: os.Environ()})
//	if err != nil {
//		fmt.Fprintln(os.Stderr, err) // all problems, each with file, line and column
//		os.Exit(2)
//	}
//	fmt.Println(cfg.Listen, cfg.Robots.TTL, len(warnings))
//
// The order of precedence is: an Override (a flag), a variable (ROBOTSPROXY_ROBOTS_TTL for robots.ttl), the file,
// Default. The same parsers and checks apply to every source. A Config is immutable after Load; to change it, load
// another one.
//
// While the proxy runs, Merge says what of a newly loaded Config can be put in force, and what needs a restart.
//
// Package settings decodes the sources, and says how a key follows from the name of a field and what the tags mean.
// This package has the schema: the struct Config, the kinds of values (scalar.go, strings.go, units.go) and the checks.
//
// Load reads the file, and checks that the files it names can be read. It creates no folder, resolves no name and opens
// no socket.
package config

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/settings"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/rules"
)

// Config is the configuration. Default has the defaults, and config.example.yaml describes each key.
type Config struct {
	Listen         string `as:"address" reload:"restart"`
	TLS            TLS
	ProxyProtocol  []netip.Prefix `reload:"restart"` // load balancers, whose connections begin with a PROXY header
	Admin          Admin
	DataDir        string `as:"path" reload:"restart"` // if not set, Load chooses it: see Options.Env
	Mode           policy.Mode
	Identity       Identity
	UserAgent      string `as:"agent"` // sent in place of those of clients; if empty, theirs are sent
	Sign           Sign
	Robots         Robots
	Pacing         Pacing
	Limits         Limits
	Intercept      Intercept
	Egress         Egress
	Auth           Auth
	Refusal        Refusal
	Usage          policy.Usage
	UsageHTML      bool // record the preferences in HTML pages
	ResponseFields bool
	Grace          time.Duration `range:"0s..1h"`
	DrainDelay     time.Duration `range:"0s..1h"`
	Audit          Audit
	Store          Store `reload:"restart"`
	Redis          Redis `reload:"restart"`
	Log            Log
	Watch          Watch
	AllowHosts     []string           `as:"pattern"`                 // that clients may visit; if empty, every host
	DenyHosts      []string           `as:"pattern"`                 // that no client may visit
	DenyHostsFile  string             `as:"path"`                    // lists more of them, one pattern on a line
	Clients        []Client           `id:"name"`                    // the first match applies; if empty, every user of Auth, and without Required everyone
	Hosts          []Host             `id:"host"`                    // the first match applies
	Exemptions     []policy.Exemption `id:"effect,host,path,client"` // host patterns are canonical

	origins map[string]settings.Origin // the place of each key that was set, for Values
}

// TLS configures TLS between clients and the proxy. If all are empty, clients speak without TLS.
type TLS struct {
	CertFile     string `as:"path" reload:"restart"`
	KeyFile      string `as:"path" reload:"restart"`
	ClientCAFile string `as:"path" reload:"restart"` // signs the certificates of clients; if empty, clients are not asked for one
}

// Admin is the operator's own listener.
type Admin struct {
	Listen               string   `as:"address" reload:"restart"`
	Hosts                []string `as:"host"`                           // canonical names of the listener, besides localhost and that of Listen
	TokenFile            string   `as:"path" reload:"restart"`          // if empty, in the data directory
	Connections          int      `range:"1..1000000" reload:"restart"` // open at a time
	ConnectionsPerClient int      `range:"1..1000000" reload:"restart"` // of one address, or of one /64 network of IPv6
	Pprof                bool     `reload:"restart"`                    // serve profiles of the process under /debug/pprof/
}

// Identity is the User-Agent of the proxy's own fetches of robots.txt.
type Identity struct {
	Name    string `as:"product"`
	Contact string `as:"contact"` // a URL or mailto; required if others can reach the listener

	RequireContact bool // refuse requests of clients whose User-Agent has no contact: see policy.HasContact
}

// Sign configures the signatures of requests (Web Bot Auth). A client takes what it lacks from Config, but not the
// keys if it has an agent of its own.
type Sign struct {
	Agent    string   `as:"signer"`  // the https URL that identifies the agent; if empty or NoSigner, nothing is signed
	KeyFile  string   `as:"path"`    // contains the keys, as robotsproxy key new writes them
	Hosts    []string `as:"pattern"` // whose requests are signed; if empty, all
	Form     SignForm
	Existing SignExisting
}

// Robots configures fetching, reading and keeping robots.txt.
type Robots struct {
	TTL            time.Duration `range:"1s..24h" why:"RFC 9309 section 2.4"`
	MinTTL         time.Duration `range:"0s..24h" why:"RFC 9309 section 2.4"`
	ErrorTTL       time.Duration `range:"1s..24h"`
	Timeout        time.Duration `range:"1ms..10m"`
	MaxSize        Size          `range:"500KiB..64MiB" why:"RFC 9309 section 2.5 asks for 500KiB at least"`
	MaxRedirects   int           `range:"5..20" why:"RFC 9309 section 2.3.1.2 asks for five at least"`
	Dialect        rules.Dialect // the default dialect
	OnUnreachable  Treatment     // after 30 days
	OnUnauthorized Treatment
	OnHTML         Treatment
	ServeFromCache bool
	MaxFetches     int  `range:"1..65536" reload:"restart"`   // at once; at most a sixteenth of the file descriptors
	MaxQueue       int  `range:"1..1000000" reload:"restart"` // fetches that wait
	CacheSize      Size `range:"1MiB..1TiB" reload:"restart"`
}

// Pacing configures the Delay between requests to one host, and the wait for it.
type Pacing struct {
	DefaultDelay      time.Duration `range:"0s..24h"`
	DefaultBurst      int           `range:"1..1000000"`
	MaxConcurrent     int           `range:"0..1000000"` // 0: unlimited
	MaxCrawlDelay     time.Duration `range:"0s.."`       // 0: unlimited
	OverMax           OverMax
	Spacing           Spacing
	Key               PaceKey       `reload:"restart"`
	MaxWait           time.Duration `range:"0s..24h"`
	MaxWaitCap        time.Duration `range:"0s..24h"`
	MaxQueue          int           `range:"1..1000000"`
	MaxQueuePerClient int           `range:"1..1000000"`
	ReleaseAfter      time.Duration `range:"1s..24h"`
}

// Limits bound the resources that clients can hold. A count of 0 means unlimited.
type Limits struct {
	Connections            int           `range:"0..1000000"` // at most half of the file descriptors
	ConnectionsPerClient   int           `range:"0..1000000"` // of one address, or of one /64 network of IPv6
	Tunnels                int           `range:"0..1000000"`
	Requests               int           `range:"0..1000000"` // waiting or being answered
	RequestsPerClient      int           `range:"0..1000000"`
	RequestMemory          Size          `range:"1MiB..1TiB"` // for headers and buffered bodies of Requests
	RequestMemoryPerClient Size          `range:"1MiB..1TiB"`
	HeaderTimeout          time.Duration `range:"100ms..10m" reload:"restart"`
	IdleTimeout            time.Duration `range:"1s..24h" reload:"restart"`
	RequestTimeout         time.Duration `range:"0s.."` // not counting the wait for the host's pace; 0: unlimited
}

// Intercept configures the interception of tunnels. If CACert and CAKey (PEM) are empty, the CA of the data directory
// signs.
type Intercept struct {
	Mode        policy.Interception
	TunnelHosts []string `as:"pattern"` // their tunnels are forwarded without interception
	CACert      string   `as:"path" reload:"restart"`
	CAKey       string   `as:"path" reload:"restart"`
}

// Egress configures the connections to origins.
type Egress struct {
	AllowAddresses []netip.Prefix
	DenyAddresses  []netip.Prefix
	Ports          []PortRange
	Resolve        map[string]netip.Addr `as:"pattern"` // the most specific pattern counts; the guard still applies
	CAFile         string                `as:"path"`
	InsecureHosts  []string              `as:"pattern"` // whose certificate is not verified

	UpstreamProxy                string `as:"proxy" reload:"restart"` // a URL; if empty, connections are direct
	UpstreamProxyCredentialsFile string `as:"path" reload:"restart"`  // contains user:password; if empty, none are sent
}

// Auth configures the passwords of clients.
type Auth struct {
	HtpasswdFile string `as:"path"` // users and bcrypt hashes; if empty, passwords are ignored
	Required     bool   // refuse requests without credentials, even of a client that is known by its address
}

// Refusal configures the response to a request that robots.txt disallows.
type Refusal struct {
	Status int `range:"400..499" why:"a refusal is a client error, RFC 9110 section 15.5"`
}

// Audit configures the records of requests.
type Audit struct {
	Store      AuditStore `reload:"restart"`
	DSNFile    string     `as:"path" reload:"restart"` // contains the URL or the keywords of PostgreSQL
	Durability Durability `reload:"restart"`
	JSONL      string     `as:"path" reload:"restart"` // if empty, audit.jsonl in the data directory; "-" is standard output
	// JSONLMaxSize is the size beyond which the file of the JSON lines is renamed; if 0, it is not.
	JSONLMaxSize Size          `range:"0B..1TiB" reload:"restart"`
	JSONLKeep    int           `range:"1..10000" reload:"restart"` // number of renamed files
	Retention    time.Duration // the maximum age of records in the database; if 0, no limit
	MaxSize      Size          `range:"1MiB..100TiB"` // of the database; the oldest records go first
	SealEvery    time.Duration // the time between two seals of the records; if 0, only robotsproxy audit seal makes them
	Buffer       int           `range:"1..10000000" reload:"restart"`
	OnFailure    OnFailure
	Query        Query
	ClientAddr   ClientAddr
	Instance     int `range:"-1..1023" reload:"restart"` // the number in the records' ids; -1: chosen at the start
}

// Store configures state.db, which keeps robots.txt files over a restart.
type Store struct {
	MaxSize Size `range:"1MiB..1TiB"` // on disk, with its write-ahead log
}

// Redis configures the pace that several instances share. If URL and URLFile are empty, this instance is alone.
type Redis struct {
	URL     string `as:"redis"`
	URLFile string `as:"path"` // contains the URL, to keep its password out of the configuration
	Prefix  string `as:"prefix"`
	OnDown  OnDown
}

// Log configures the program's messages, which are not the records of Audit.
type Log struct {
	Level  slog.Level
	Format LogFormat `reload:"restart"`

	Requests LogRequests
}

// Watch configures the reports of changes of robots.txt files. If both fields are empty, they are only logged.
type Watch struct {
	Webhook     string `as:"webhook"` // the URL to which they are posted
	WebhookFile string `as:"path"`    // contains the URL, which may be a secret
}

// Client is a client that may use the proxy.
type Client struct {
	Name          string
	CIDR          []netip.Prefix // if nil, any address
	User          string         // a user of Auth; if empty, no credentials are needed
	TLSSubject    string         `as:"subject"` // of its certificate; if empty, no certificate is needed
	UserAgent     string         `as:"agent"`   // sent in place of its own; if empty, the global one
	ProductToken  string         `as:"product"` // replaces the User-Agent header in verdicts; if empty, the header counts
	Mode          *policy.Mode   // if nil, the global mode
	Dialect       *rules.Dialect // if nil, that of Robots
	Purpose       policy.Purpose // if empty, not declared
	Sign          Sign           // in place of the fields of that of Config
	MaxWait       *time.Duration `range:"0s..24h"` // if nil, that of Pacing
	MaxCrawlDelay time.Duration  `range:"1ms.."`   // if zero, that of Pacing
	Subresources  Subresources   // if empty, as SubresourcesSlot
	AllowHosts    []string       `as:"pattern"` // if empty, those of Config
	DenyHosts     []string       `as:"pattern"` // besides those of Config
	DenyHostsFile string         `as:"path"`
}

// Host configures the hosts of one pattern: "a.example", "*.example" (the hosts below example) or "*".
type Host struct {
	Host       string         `as:"pattern"`
	Mode       *policy.Mode   // if nil, the client's or the global one
	Dialect    *rules.Dialect // if nil, the client's or that of Robots
	Delay      time.Duration  `range:"0s..24h"` // a minimum: robots.txt can only make it longer
	RobotsFile string         `as:"path"`       // replaces the site's robots.txt; if empty, the site's counts

	Intercept *policy.Interception // if nil, that of Intercept
}

// Default returns the defaults. Its DataDir is empty, because that depends on the user who runs the program.
func Default() Config {
	return Config{
		Listen:   "127.0.0.1:3128",
		Admin:    Admin{Listen: "127.0.0.1:3129", Connections: 256, ConnectionsPerClient: 64},
		Mode:     policy.Enforce,
		Identity: Identity{Name: "robotsproxy"},
		Sign:     Sign{Form: SignDictionary, Existing: SignKeep},
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
			MaxFetches:     1024,
			MaxQueue:       20_000,
			CacheSize:      256 * mebi,
		},
		Pacing: Pacing{
			DefaultBurst:      1,
			MaxConcurrent:     8,
			OverMax:           OverMaxRefuse,
			Spacing:           SpacingEnd,
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
		Audit: Audit{
			Store: AuditSQLite, Durability: DurabilityGrouped, JSONLMaxSize: 100 * mebi, JSONLKeep: 5,
			Retention: 90 * 24 * time.Hour, MaxSize: 10 * gibi, Buffer: 100_000,
			OnFailure: OnFailureRefuse, Query: QueryMask, ClientAddr: ClientAddrKeep, Instance: -1,
		},
		Store: Store{MaxSize: gibi},
		Redis: Redis{Prefix: "robotsproxy:", OnDown: OnDownSpread},
		Log:   Log{Level: slog.LevelInfo, Format: LogAuto, Requests: LogRefused},
	}
}
