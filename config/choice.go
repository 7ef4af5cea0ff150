package config

// Treatment is what an answer that says nothing about crawling is taken for.
type Treatment string

const (
	Allow  Treatment = "allow"  // as if there were no robots.txt
	Refuse Treatment = "refuse" // as if the whole site were disallowed
)

// OverMax is what becomes of a Crawl-delay above the maximum.
type OverMax string

const (
	OverMaxClamp  OverMax = "clamp"  // wait for the maximum only, and record the deviation
	OverMaxRefuse OverMax = "refuse" // do not go there
)

// Spacing is what a Crawl-delay is measured from.
type Spacing string

const (
	SpacingEnd   Spacing = "end"   // the end of the request before
	SpacingStart Spacing = "start" // its start
)

// VisitTime is what becomes of a site's visiting hours, which have no standard.
type VisitTime string

const (
	VisitTimeIgnore VisitTime = "ignore"
	VisitTimeObey   VisitTime = "obey"
)

// Redirects is what the hop to a Location costs.
type Redirects string

const (
	RedirectsSlot Redirects = "slot" // a slot of its own
	RedirectsRide Redirects = "ride" // none, if the client was just given the Location on the same host
)

// Subresources is what the parts of a browser's page cost.
type Subresources string

const (
	SubresourcesSlot Subresources = "slot" // a slot each
	SubresourcesPage Subresources = "page" // none: they share that of their page
)

// PaceKey is what shares one pace.
type PaceKey string

const (
	PaceKeyHost   PaceKey = "host"
	PaceKeyDomain PaceKey = "domain" // all hosts of a registrable domain, such as example.co.uk
)

// OnFailure is what becomes of requests that cannot be recorded.
type OnFailure string

const (
	OnFailureRefuse   OnFailure = "refuse"
	OnFailureContinue OnFailure = "continue"
)

// OnDown is how to pace while the Redis that several instances share cannot be reached.
type OnDown string

const (
	OnDownSpread OnDown = "spread" // each instance in its share of the time
	OnDownRefuse OnDown = "refuse" // not at all
	OnDownLocal  OnDown = "local"  // as if there were no other instance
)

// Query is how much of a URL's query is recorded.
type Query string

const (
	QueryMask Query = "mask" // without the values of parameters that are named like credentials
	QueryKeep Query = "keep"
	QueryHash Query = "hash"
	QueryDrop Query = "drop"
)

// LogFormat is what log lines look like.
type LogFormat string

const (
	LogAuto LogFormat = "auto" // text on a terminal, else JSON
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)
