package auditview

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
	"github.com/robotsproxy/robotsproxy/policy"
)

// text writes e for people: a sentence, the lines of robots.txt that decided, and the details.
func (e *Explanation) text(w io.Writer, o Options) error {
	var b strings.Builder
	b.WriteString(safetext.Text(e.sentence(o.Zone)) + "\n\n")
	if e.excerpt(&b, o) {
		b.WriteString("\n")
	}
	for _, d := range e.details(o) {
		if d.text != "" {
			line := fmt.Sprintf("  %-13s%s", d.name, safetext.Text(d.text))
			if o.Width > 0 {
				line = Cut(line, o.Width)
			}
			b.WriteString(line + "\n")
		}
	}
	if base := SignatureBase(e.Record); base != "" {
		b.WriteString("\n  The signature covers:\n")
		for line := range strings.SplitSeq(base, "\n") {
			b.WriteString("    " + safetext.Text(line) + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// verdicts are the first words about a decision, and the words for a sentence between crawler and request.
var verdicts = map[policy.Outcome]struct{ first, clause string }{
	policy.Allow:         {"Allowed", "was allowed %s"},
	policy.Deny:          {"Refused", "was refused %s"},
	policy.WouldDeny:     {"Sent, although mode enforce would have refused it", "was allowed %s, although mode enforce would have refused it"},
	policy.Throttle:      {"Told to come back later", "was told to come back later for %s"},
	policy.WouldThrottle: {"Sent, although mode enforce would have delayed it", "was allowed %s, although mode enforce would have delayed it"},
	policy.Exempt:        {"Allowed by an exemption", "was allowed %s by an exemption"},
	policy.Error:         {"Not sent", "did not get %s"},
}

// causes complete the sentence about a record with a reason.
var causes = map[policy.Reason]string{
	policy.ReasonRobotsUnreachable: "because its robots.txt could not be fetched",
	policy.ReasonEgress:            "because the proxy may not connect to this address or port",
	policy.ReasonUsage:             "because its robots.txt does not permit the purpose of the client",
	policy.ReasonHost:              "because the client may not visit this host",
	policy.ReasonIntercept:         "because the proxy allows no tunnel to this host",
	policy.ReasonIdentity:          "because the client is not listed",
	policy.ReasonStopped:           "because the operator stopped this host",
	policy.ReasonAuth:              "because credentials were missing or wrong",
	policy.ReasonPace:              "because it would have waited too long",
	policy.ReasonBackoff:           "because the host asked for a pause",
	policy.ReasonOverload:          "because a limit of the proxy was reached",
	policy.ReasonPacingUnavailable: "because the pace of the other instances was unknown",
	policy.ReasonAuditUnavailable:  "because it could not be recorded",
	policy.ReasonBadRequest:        "because the request could not be judged",
	policy.ReasonMisdirected:       "because the request named two different hosts",
	policy.ReasonLoop:              "because it had been through this proxy before",
	policy.ReasonUpstream:          "because the origin failed",
	policy.ReasonInternal:          "because of an error in the proxy",
	policy.ReasonTooComplex:        "because judging it would have taken too long",
	policy.ReasonConnectionAuth:    "because it authenticates a connection that other clients share",
	policy.ReasonClientLeft:        "because the client left",
	policy.ReasonOff:               "without a judgement, as configured",
}

func (e *Explanation) sentence(zone *time.Location) string {
	r := e.Record
	verdict := verdicts[r.Decision].first
	if r.Decision == policy.Error && !r.SentAt.IsZero() {
		verdict = "Sent, without a complete answer"
	}
	if r.ByHeader() && r.Decision == policy.Deny {
		verdict = "Sent, and the response withheld"
	}
	s := fmt.Sprintf("%s: %s, %s, %s", verdict, Crawler(r), URL(r), day(r.Time, e.Now, zone))
	if why := e.cause(); why != "" {
		s += ", " + why
	}
	s += priceClause(r)
	if r.EndedAt.IsZero() {
		s += "; it has not ended, or its end was not recorded"
	}
	return s + "."
}

// priceClause returns what r cost or would cost, for the end of a sentence.
func priceClause(r *audit.Record) string {
	charged, ok := strings.CutPrefix(r.CrawlerPrice, "charged ")
	switch {
	case r.CrawlerPrice == "":
		return ""
	case ok:
		return "; the site charged " + charged + " for it"
	}
	return "; the site asks a price of " + r.CrawlerPrice + " for it"
}

func (e *Explanation) cause() string {
	r := e.Record
	switch {
	case r.Reason == policy.ReasonExemption && r.Decision == policy.Deny:
		return "because of an exemption"
	case r.ByHeader():
		return fmt.Sprintf("because the response has %s, which does not permit the purpose %s", strings.TrimPrefix(r.Rule, policy.HeaderRule), r.Purpose)
	case r.Reason != policy.ReasonRobots && r.Reason != policy.ReasonReport:
		return causes[r.Reason]
	case r.RuleLine > 0:
		return fmt.Sprintf("because of line %d of its robots.txt", r.RuleLine)
	case r.Rule != "":
		return "because of the rule " + r.Rule
	case r.RobotsStatus != 0:
		return fmt.Sprintf("because its robots.txt was answered with status %d", r.RobotsStatus)
	}
	return ""
}

// Sentence says in one sentence what was decided about the request, and why. The sentence has no control characters.
func (e *Explanation) Sentence() string {
	r := e.Record
	clause := verdicts[r.Decision].clause
	if r.Decision == policy.Error && !r.SentAt.IsZero() {
		clause = "did not get a complete answer for %s"
	}
	who := Crawler(r)
	switch {
	case r.Via == audit.Robots:
		who = "The proxy"
	case who == "-":
		who = "A client"
	}
	s := who + " " + fmt.Sprintf(clause, Cut(wanted(r), maxWanted))
	if why := e.fullCause(); why != "" {
		s += ", " + why
	}
	s += priceClause(r)
	if r.EndedAt.IsZero() {
		s += "; the request has not ended, or its end was not recorded"
	}
	return safetext.Text(s + ".")
}

// maxWanted bounds the words about the request in a sentence, in columns.
const maxWanted = 120

// wanted returns what r asked for: a path on a host, or a tunnel.
func wanted(r *audit.Record) string {
	switch {
	case r.Via == audit.Tunnel:
		return "a tunnel to " + authority(r)
	case r.Path == "":
		return authority(r)
	}
	return strings.TrimPrefix(Target(r), authority(r)) + " on " + authority(r)
}

// fullCause is cause with the words of the line, or with the state of a robots.txt that has no such line.
func (e *Explanation) fullCause() string {
	r := e.Record
	if r.Reason != policy.ReasonNone && r.Reason != policy.ReasonRobots && r.Reason != policy.ReasonReport {
		return e.cause()
	}
	field, value, _ := strings.Cut(r.Rule, ":")
	value = Cut(strings.TrimSpace(value), maxWanted)
	switch {
	case r.RuleLine > 0 && strings.EqualFold(field, "disallow"):
		return fmt.Sprintf("because line %d of its robots.txt disallows %s", r.RuleLine, value)
	case r.RuleLine > 0 && strings.EqualFold(field, "allow"):
		return fmt.Sprintf("because line %d of its robots.txt allows %s", r.RuleLine, value)
	case r.Decision == policy.Allow && r.RobotsState == "found":
		return "because no line of its robots.txt disallows it"
	case r.Decision == policy.Allow && (r.RobotsState == "html" || r.RobotsState == "oversize"):
		return "because its robots.txt (" + r.RobotsState + ") has no line that disallows it"
	case r.Decision == policy.Allow && r.RobotsState != "":
		return "because its robots.txt is " + r.RobotsState + ", which disallows nothing"
	}
	return e.cause()
}

// day returns t in a zone, with the word for its day if it is near now.
func day(t, now time.Time, zone *time.Location) string {
	if zone == nil {
		zone = time.UTC
	}
	t, now = t.In(zone), now.In(zone)
	switch t.Format(time.DateOnly) {
	case now.Format(time.DateOnly):
		return "today " + t.Format(time.TimeOnly)
	case now.AddDate(0, 0, -1).Format(time.DateOnly):
		return "yesterday " + t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// around is the number of lines of a robots.txt shown before and after the one that decided.
const around = 2

var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n") // all forms of EOL (RFC 9309 section 2.2)

// excerpt writes the line that decided, with those around it and the beginning of its group. It reports whether there
// is such a line.
func (e *Explanation) excerpt(b *strings.Builder, o Options) bool {
	r := e.Record
	if e.File == nil || r.RuleLine == 0 {
		return false
	}
	lines := strings.Split(lineEnds.Replace(string(e.File.Body)), "\n")
	if r.RuleLine > len(lines) {
		return false
	}
	numbers := []int{}
	if r.GroupLine > 0 && r.GroupLine < r.RuleLine-around {
		numbers = append(numbers, r.GroupLine)
	}
	for n := max(1, r.RuleLine-around); n <= min(len(lines), r.RuleLine+around); n++ {
		if n == len(lines) && lines[n-1] == "" {
			continue // after the last end of line
		}
		numbers = append(numbers, n)
	}
	for i, n := range numbers {
		if i > 0 && n > numbers[i-1]+1 {
			b.WriteString("       …\n")
		}
		mark, style := ' ', plain
		if n == r.RuleLine {
			mark, style = '>', bold
		}
		text := safetext.Text(strings.ReplaceAll(lines[n-1], "\t", " "))
		c := cell{text: fmt.Sprintf("%c %5d  %s", mark, n, text), style: style}
		if o.Width > 0 {
			c.text = Cut(c.text, o.Width)
		}
		b.WriteString(c.styled(o.Colour) + "\n")
	}
	return true
}

// detail is a line about a record. It is omitted if its text is empty.
type detail struct{ name, text string }

func (e *Explanation) details(o Options) []detail {
	r := e.Record
	return []detail{
		{"robots.txt", e.robots(o.Zone)},
		{"group", e.group()},
		{"client", e.client()},
		{"User-Agent", r.UserAgent},
		{"judged as", judgedAs(r)},
		{"tag", r.Tag},
		{"exemption", r.Exemption},
		{"intervention", r.Intervention},
		{"pace", pace(r)},
		{"deviation", r.Deviation},
		{"sent", sent(r, o.Zone)},
		{"answered", answered(r, o.Zone)},
		{"error", r.Error},
		{"usage", r.Usage},
		{"price", r.CrawlerPrice},
		{"policy", e.policy()},
		{"id", r.ID.String()},
	}
}

func (e *Explanation) robots(zone *time.Location) string {
	r := e.Record
	switch {
	case r.RobotsState == "" && r.Via == audit.Robots:
		return "this is the proxy's own request for it"
	case r.RobotsState == "":
		return "was not read"
	}
	parts := []string{r.RobotsState}
	if r.RobotsStatus != 0 {
		parts[0] = strconv.Itoa(r.RobotsStatus)
		if r.RobotsState != "found" {
			parts[0] += " (" + r.RobotsState + ")"
		}
	}
	if !r.RobotsFetchedAt.IsZero() {
		parts = append(parts, "fetched "+day(r.RobotsFetchedAt, e.Now, zone))
	}
	if r.RobotsSHA256 == "" {
		return strings.Join(parts, ", ")
	}
	kept := "kept; --body prints it"
	if e.File == nil {
		kept = "not kept"
	}
	return strings.Join(append(parts, fmt.Sprintf("sha256 %s (%s)", short(r.RobotsSHA256), kept)), ", ")
}

// short returns the two ends of a SHA-256.
func short(sha256 string) string {
	if len(sha256) < 16 {
		return sha256
	}
	return sha256[:8] + "…" + sha256[len(sha256)-4:]
}

func (e *Explanation) group() string {
	r := e.Record
	if r.GroupLine == 0 {
		return ""
	}
	return fmt.Sprintf("line %d  User-agent: %s", r.GroupLine, r.GroupAgents)
}

func (e *Explanation) client() string {
	r := e.Record
	parts := []string{}
	add := func(format, value string) {
		if value != "" {
			parts = append(parts, fmt.Sprintf(format, value))
		}
	}
	add("%s", r.Client)
	add("from %s", r.ClientAddr)
	text := strings.Join(parts, " ")
	parts = slices.DeleteFunc([]string{text}, func(s string) bool { return s == "" })
	add("mode %s", r.Mode)
	add("purpose %s", r.Purpose)
	return strings.Join(parts, ", ")
}

// judgedAs returns the name that was matched against the groups, with the User-Agent that replaced the client's own.
func judgedAs(r *audit.Record) string {
	switch {
	case r.SentUserAgent != "":
		return r.ProductToken + ", sent as " + r.SentUserAgent
	case r.ProductToken == "*": // no group names it
		return ""
	}
	return r.ProductToken
}

func pace(r *audit.Record) string {
	var parts []string
	if r.DelayRequired > 0 {
		parts = append(parts, fmt.Sprintf("%s required (%s)", Duration(time.Duration(r.DelayRequired)), r.DelaySource))
	}
	if r.Waited > 0 {
		parts = append(parts, "waited "+Duration(time.Duration(r.Waited)))
	}
	if r.Gap > 0 {
		parts = append(parts, Duration(time.Duration(r.Gap))+" after the request before")
	}
	return strings.Join(parts, ", ")
}

func sent(r *audit.Record, zone *time.Location) string {
	switch {
	case r.SentAt.IsZero() && r.EndedAt.IsZero():
		return "unknown: the record has no end"
	case r.SentAt.IsZero():
		return "nothing"
	}
	text := r.Method + " " + URL(r)
	if r.Via == audit.Tunnel {
		text = "a tunnel to " + authority(r)
	}
	if r.UpstreamAddr != "" {
		text += " to " + r.UpstreamAddr
	}
	return text + ", " + Moment(r.SentAt, zone)
}

func answered(r *audit.Record, zone *time.Location) string {
	if r.EndedAt.IsZero() {
		return ""
	}
	text := fmt.Sprintf("%d, %s", r.Status, counted(r.Bytes, "byte"))
	if r.Status == 0 {
		text = "nothing"
	}
	if r.RetryAfter > 0 {
		text += fmt.Sprintf(", Retry-After %d s", r.RetryAfter)
	}
	return text + ", ended " + Moment(r.EndedAt, zone)
}

func (e *Explanation) policy() string {
	r := e.Record
	if r.PolicySHA256 == "" {
		return ""
	}
	text := fmt.Sprintf("sha256 %s", short(r.PolicySHA256))
	if e.Policy == nil {
		text += " (not kept)"
	} else {
		text += " (kept; --policy prints it)"
	}
	return text + fmt.Sprintf(", rules version %d, dialect %s", r.RulesVersion, r.Dialect)
}
