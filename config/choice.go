package config

// Treatment is the meaning of a response that is not a robots.txt.
type Treatment string

const (
	Allow  Treatment = "allow"  // as if there were no robots.txt
	Refuse Treatment = "refuse" // as if the whole site were disallowed
)

// OverMax is the handling of a Crawl-delay above the maximum.
type OverMax string

const (
	OverMaxClamp  OverMax = "clamp"  // wait for the maximum, and record the deviation
	OverMaxRefuse OverMax = "refuse" // refuse requests to that host
)

// Spacing is the moment from which a Crawl-delay counts.
type Spacing string

const (
	SpacingEnd   Spacing = "end"   // the end of the previous request
	SpacingStart Spacing = "start" // its start
)

// Subresources is the pace of the requests for the parts of a page.
type Subresources string

const (
	SubresourcesSlot Subresources = "slot" // the Delay of the host, as every request
	SubresourcesPage Subresources = "page" // no Delay
)

// NoSigner is the value of Sign.Agent of a client whose requests are not signed.
const NoSigner = "none"

// SignForm is the form of the field Signature-Agent.
type SignForm string

const (
	SignDictionary SignForm = "dictionary" // a member for the signature
	SignString     SignForm = "string"     // the URL alone, as in older drafts
)

// SignExisting is the treatment of a request that its client has signed.
type SignExisting string

const (
	SignKeep    SignExisting = "keep"    // it is sent as it is
	SignReplace SignExisting = "replace" // with a signature of the proxy instead
)

// PaceKey determines which hosts share one pace.
type PaceKey string

const (
	PaceKeyHost   PaceKey = "host"
	PaceKeyDomain PaceKey = "domain" // all hosts of a registrable domain, such as example.co.uk
	PaceKeyIP     PaceKey = "ip"     // all hosts at the address that is dialled
)

// NoJSONL is the value of Audit.JSONL without JSON lines.
const NoJSONL = "none"

// AuditStore is the database of the records.
type AuditStore string

const (
	AuditSQLite   AuditStore = "sqlite"   // audit.db in the data directory
	AuditPostgres AuditStore = "postgres" // of several instances, which share robots.txt files there too
	AuditNone     AuditStore = "none"     // JSON lines alone
)

// Durability is the moment until which a decision may be in memory only.
type Durability string

const (
	DurabilityGrouped Durability = "grouped" // at most 50 ms
	DurabilityStrict  Durability = "strict"  // until the request is sent or answered
)

// OnFailure is the handling of requests that cannot be recorded.
type OnFailure string

const (
	OnFailureRefuse   OnFailure = "refuse"
	OnFailureContinue OnFailure = "continue"
)

// OnDown is the pace while Redis cannot be reached.
type OnDown string

const (
	OnDownSpread OnDown = "spread" // each instance takes its share of the time
	OnDownRefuse OnDown = "refuse" // refuse requests
	OnDownLocal  OnDown = "local"  // ignore the other instances
)

// Query is the part of a URL's query that is recorded.
type Query string

const (
	QueryMask Query = "mask" // all but the values of parameters that are named like credentials
	QueryKeep Query = "keep"
	QueryHash Query = "hash"
	QueryDrop Query = "drop"
)

// ClientAddr says how clients' addresses are recorded and logged.
type ClientAddr string

const (
	ClientAddrKeep ClientAddr = "keep"
	ClientAddrMask ClientAddr = "mask" // the network: /24 of IPv4, /48 of IPv6
	ClientAddrDrop ClientAddr = "drop"
)

// LogFormat is the format of log lines.
type LogFormat string

const (
	LogAuto LogFormat = "auto" // text on a terminal, otherwise JSON
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// LogRequests says which requests have lines in the log.
type LogRequests string

const (
	LogRefused LogRequests = "refused" // refusals, with a count of repeated ones
	LogOff     LogRequests = "off"
	LogAll     LogRequests = "all" // every request
)
