package policy

// Reason is one word of the closed list of causes for not forwarding a request, or for forwarding it in spite of its
// verdict. The header Robotsproxy-Reason, the metrics' label and the audit's field use the same word.
type Reason string

const (
	ReasonNone              Reason = ""                   // forwarded, nothing to explain
	ReasonRobots            Reason = "robots"             // a rule disallows
	ReasonRobotsUnreachable Reason = "robots-unreachable" // robots.txt could not be known
	ReasonEgress            Reason = "egress"             // the guard refuses the address or the port
	ReasonExemption         Reason = "exemption"          // an operator's own entry decided
	ReasonIntercept         Reason = "intercept"          // no tunnel here: none is passed on, or every path is disallowed
	ReasonIdentity          Reason = "identity"           // the client is not listed
	ReasonStopped           Reason = "stopped"            // the operator stopped this host
	ReasonAuth              Reason = "auth"               // credentials are missing or wrong
	ReasonPace              Reason = "pace"               // the wait would exceed max_wait, or a queue is full
	ReasonBackoff           Reason = "backoff"            // the host is paused by its own 429 or 503
	ReasonOverload          Reason = "overload"           // our own limits
	ReasonPacingUnavailable Reason = "pacing-unavailable" // the pace shared with other instances cannot be known
	ReasonAuditUnavailable  Reason = "audit-unavailable"  // the decision could not be recorded
	ReasonBadRequest        Reason = "bad-request"        // what cannot be judged
	ReasonMisdirected       Reason = "misdirected"        // two names for one request
	ReasonLoop              Reason = "loop"               // our own Via came back
	ReasonUpstream          Reason = "upstream"           // allowed, and the origin failed
	ReasonInternal          Reason = "internal"           // a fault of ours
	ReasonTooComplex        Reason = "too-complex"        // a verdict would take more steps than its budget
	ReasonConnectionAuth    Reason = "connection-auth"    // authentication of a connection, which other clients share
	ReasonClientLeft        Reason = "client-left"        // the client left before its answer began
	ReasonReport            Reason = "report"             // forwarded, and enforcing would not have
	ReasonOff               Reason = "off"                // forwarded unjudged, as configured
)

// Outcome is the recorded decision.
type Outcome string

const (
	Allow         Outcome = "allow"
	Deny          Outcome = "deny"
	WouldDeny     Outcome = "would_deny"
	Throttle      Outcome = "throttle"
	WouldThrottle Outcome = "would_throttle"
	Exempt        Outcome = "exempt"
	Error         Outcome = "error" // nobody refused, and nothing could be sent
)
