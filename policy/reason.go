package policy

// Reason is the cause for not forwarding a request, or for forwarding it despite its verdict. The list is closed. The
// header Robotsproxy-Reason, the metrics' label and the audit's field use these words.
type Reason string

const (
	ReasonNone              Reason = ""                   // forwarded normally
	ReasonRobots            Reason = "robots"             // a rule disallows it
	ReasonRobotsUnreachable Reason = "robots-unreachable" // robots.txt could not be fetched
	ReasonEgress            Reason = "egress"             // the guard refuses the address or the port
	ReasonExemption         Reason = "exemption"          // the operator's exemption decided
	ReasonUsage             Reason = "usage-preference"   // robots.txt or the response does not permit the client's purpose
	ReasonHost              Reason = "host"               // the client may not visit this host
	ReasonIntercept         Reason = "intercept"          // tunnels are not allowed, or every path is disallowed
	ReasonIdentity          Reason = "identity"           // the client is not listed
	ReasonStopped           Reason = "stopped"            // the operator stopped this host
	ReasonAuth              Reason = "auth"               // credentials are missing or wrong
	ReasonPace              Reason = "pace"               // the wait would exceed max_wait, or a queue is full
	ReasonBackoff           Reason = "backoff"            // the host is paused by its own 429 or 503 response
	ReasonOverload          Reason = "overload"           // a limit of the proxy was reached
	ReasonPacingUnavailable Reason = "pacing-unavailable" // the pace shared with other instances is unknown
	ReasonAuditUnavailable  Reason = "audit-unavailable"  // the decision could not be recorded
	ReasonBadRequest        Reason = "bad-request"        // the request cannot be judged
	ReasonMisdirected       Reason = "misdirected"        // the request names two different hosts
	ReasonLoop              Reason = "loop"               // the request has this proxy's Via
	ReasonUpstream          Reason = "upstream"           // allowed, but the origin failed
	ReasonInternal          Reason = "internal"           // an error in the proxy
	ReasonTooComplex        Reason = "too-complex"        // judging would exceed the budget of steps
	ReasonConnectionAuth    Reason = "connection-auth"    // authentication of a connection that other clients share
	ReasonClientLeft        Reason = "client-left"        // the client disconnected before its response began
	ReasonReport            Reason = "report"             // forwarded; mode enforce would have refused it
	ReasonOff               Reason = "off"                // forwarded without judging, as configured
)

// Reasons are all reasons except ReasonNone.
var Reasons = []Reason{
	ReasonRobots, ReasonRobotsUnreachable, ReasonEgress, ReasonExemption, ReasonUsage, ReasonHost, ReasonIntercept,
	ReasonIdentity, ReasonStopped, ReasonAuth, ReasonPace, ReasonBackoff, ReasonOverload, ReasonPacingUnavailable, ReasonAuditUnavailable,
	ReasonBadRequest, ReasonMisdirected, ReasonLoop, ReasonUpstream, ReasonInternal, ReasonTooComplex,
	ReasonConnectionAuth, ReasonClientLeft, ReasonReport, ReasonOff,
}

// Outcome is the recorded decision.
type Outcome string

const (
	Allow         Outcome = "allow"
	Deny          Outcome = "deny"
	WouldDeny     Outcome = "would_deny"
	Throttle      Outcome = "throttle"
	WouldThrottle Outcome = "would_throttle"
	Exempt        Outcome = "exempt"
	Error         Outcome = "error" // not refused, but could not be sent
)

// Outcomes are all decisions.
var Outcomes = []Outcome{Allow, Deny, WouldDeny, Throttle, WouldThrottle, Exempt, Error}
