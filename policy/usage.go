package policy

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/fields"
	"github.com/robotsproxy/robotsproxy/rules"
)

// Usage says how the preferences of a site about the use of its content are applied. The zero value records them.
type Usage uint8

const (
	UsageRecord  Usage = iota // record them
	UsageEnforce              // refuse what robots.txt, or the header of the response, does not permit for the client's purpose
)

var usages = [...]string{UsageRecord: "record", UsageEnforce: "enforce"}

// String returns "record" or "enforce".
func (u Usage) String() string { return usages[u] }

// Purpose is the purpose for which a client fetches content, as its operator declares it. The list is closed.
type Purpose string

const (
	PurposeSearch   Purpose = "search"
	PurposeTrainAI  Purpose = "train-ai"
	PurposeAIInput  Purpose = "ai-input"
	PurposeArchive  Purpose = "archive"
	PurposeResearch Purpose = "research"
	PurposeMonitor  Purpose = "monitor"
)

// Purposes are all purposes.
var Purposes = []Purpose{PurposeSearch, PurposeTrainAI, PurposeAIInput, PurposeArchive, PurposeResearch, PurposeMonitor}

// forbidding are the preferences that do not permit a purpose: of Content-Usage, with the categories of
// draft-ietf-aipref-vocab-08 section 4, and of Content-Signal (contentsignals.org). The vocabularies have no categories
// for the other purposes.
var forbidding = map[Purpose][]string{
	PurposeSearch:  {"search=n", "search=no"},
	PurposeTrainAI: {"train-ai=n", "ai-train=no"},
	PurposeAIInput: {"ai-use=n", "ai-input=no"},
}

// In a response, tags and a reservation for text and data mining (TDMRep) forbid too. nosnippet also keeps content from
// AI answers, as Google describes it, and none contains noindex.
var (
	forbiddingTags = map[Purpose][]string{
		PurposeSearch:  {"noindex", "none"},
		PurposeTrainAI: {"noai", "noimageai"},
		PurposeAIInput: {"noai", "nosnippet"},
		PurposeArchive: {"noarchive"},
	}
	minesData = []Purpose{PurposeTrainAI, PurposeAIInput}
)

// HeaderRule is the beginning of the Rule of a Verdict by the header of a response: "header X-Robots-Tag: noai".
const HeaderRule = "header "

// maxLicenses is how many licenses of a file are in a record.
const maxLicenses = 3

// usageTarget returns the target by which preferences are looked up. That of a tunnel is not known.
func (r *Request) usageTarget() string {
	if r.Tunnel {
		return "/"
	}
	return r.Target
}

// preferences are what a robots.txt says about the use of one resource.
type preferences struct {
	lines      []rules.Stated
	of         [][]string // each line
	tooComplex bool       // to find out
}

func preferencesFor(agent rules.Agent, target string) (p preferences) {
	lines, ok := agent.UsesOf(target)
	if !ok {
		return preferences{tooComplex: true}
	}
	for _, line := range lines {
		parse := fields.ContentUsage
		if line.Signal {
			parse = fields.ContentSignal
		}
		p.lines, p.of = append(p.lines, line), append(p.of, parse(line.Preferences))
	}
	return p
}

// text returns p and the licenses of set for the record.
func (p preferences) text(set *rules.Ruleset) string {
	if p.tooComplex {
		return "robots.txt: too-complex"
	}
	all := slices.Concat(p.of...)
	licenses := set.Licenses()
	for _, license := range licenses[:min(len(licenses), maxLicenses)] {
		all = append(all, fields.License(license)...)
	}
	return fields.UsageText("robots.txt", all)
}

// forbid reports whether p has one of some preferences, with its line as the Verdict.
func (p preferences) forbid(against []string) (v rules.Verdict, forbidden bool) {
	if p.tooComplex {
		return rules.Verdict{TooComplex: true}, true
	}
	for i, line := range p.lines {
		if slices.ContainsFunc(p.of[i], func(s string) bool { return slices.Contains(against, s) }) {
			return rules.Verdict{Line: line.Line, Rule: line.Rule, Group: line.Group}, true
		}
	}
	return v, false
}

// judgeUsage returns the preferences in a robots.txt for r, and whether they do not permit its purpose, with the line
// that says so as the Verdict. As for a rule, any form of the target counts. robots.txt itself is permitted.
func (p *Policy) judgeUsage(agent rules.Agent, r Request, set *rules.Ruleset) (text string, v rules.Verdict, forbidden bool) {
	found := preferencesFor(agent, r.usageTarget())
	text = found.text(set)
	against := forbidding[r.Client.Purpose]
	if p.options.Usage != UsageEnforce || len(against) == 0 || r.Target == "/robots.txt" {
		return text, v, false
	}
	v, forbidden = found.forbid(against)
	for i := 0; i < len(r.forms) && !forbidden; i++ {
		v, forbidden = preferencesFor(agent, r.forms[i]).forbid(against)
	}
	return text, v, forbidden
}

// applyUsage sets d.Usage, and refuses a request that the rules allow if its purpose is not permitted.
func (p *Policy) applyUsage(d *Decision, r Request, agent rules.Agent, set *rules.Ruleset) {
	text, v, forbidden := p.judgeUsage(agent, r, set)
	d.Usage = text
	if d.Action == Refuse || !forbidden {
		return
	}
	d.Verdict, d.Action, d.Outcome, d.Reason = v, Refuse, Deny, ReasonUsage
	if v.TooComplex {
		d.Reason = ReasonTooComplex
	}
}

// CarriesContent reports whether the response to a request of some method is content that DecideResponse is about. A
// redirect and an error are not what the client came for, and a 304 says that the client has the content.
func CarriesContent(method string, status int) bool {
	switch status {
	case http.StatusNoContent, http.StatusResetContent:
		return false
	}
	return method != http.MethodHead && status >= 200 && status <= 299
}

// DecideResponse decides about the content that came for r, which d forwarded, by the preferences in the header of the
// response: see fields.ResponseUsage. With UsageEnforce, content whose use the header does not permit for the purpose of
// the client is refused, as Decide refuses a request. It returns d and false if the header changes nothing, as for a
// request that only mode Report or an exemption has let pass.
func (p *Policy) DecideResponse(d Decision, r Request, preferences []string, now time.Time) (_ Decision, changed bool) {
	if p.ignoresHeaders || p.options.Usage != UsageEnforce || d.Outcome != Allow || d.Reason != ReasonNone || r.Target == "/robots.txt" {
		return d, false
	}
	rule := forbiddenBy(r.Client.Purpose, rules.ProductToken(r.agent()), preferences)
	if rule == "" {
		return d, false
	}
	d.Action, d.Outcome, d.Reason, d.Verdict = Refuse, Deny, ReasonUsage, rules.Verdict{Rule: HeaderRule + rule}
	r.forms = otherForms(r.Target)
	if e := p.exempt(EffectAllow, r, now); e != nil {
		d.Action, d.Outcome, d.Reason, d.Exemption = Forward, Exempt, ReasonExemption, e.name
	}
	if d.Mode == Report {
		d = d.reported()
	}
	return d, true
}

// ForbiddenBy reports whether preferences of any source, as a record has them (see audit.Record), do not permit p. Tags for
// named crawlers do not count.
func (p Purpose) ForbiddenBy(usage string) bool {
	for source := range strings.SplitSeq(usage, "; ") {
		if _, preferences, _ := strings.Cut(source, ": "); forbiddenBy(p, "", strings.Fields(preferences)) != "" {
			return true
		}
	}
	return false
}

// forbiddenBy returns the field with the first of some preferences that does not permit a purpose, or "". Tags for other
// crawlers than agent do not count.
func forbiddenBy(purpose Purpose, agent string, preferences []string) string {
	for _, preference := range preferences {
		name, value, _ := strings.Cut(preference, "=")
		switch {
		case name == "x-robots-tag", name == "robots": // the latter of an HTML page
			if tag := forbiddingTag(purpose, agent, value); tag != "" {
				return "X-Robots-Tag: " + tag
			}
		case preference == "tdm-reservation=1" && slices.Contains(minesData, purpose):
			return "TDM-Reservation: 1"
		case !slices.Contains(forbidding[purpose], preference):
		case len(value) == 1:
			return "Content-Usage: " + preference
		default:
			return "Content-Signal: " + preference
		}
	}
	return ""
}

// forbiddingTag returns the first of some tags, such as "noai,otherbot:noindex", that does not permit a purpose to agent,
// or "".
func forbiddingTag(purpose Purpose, agent, tags string) string {
	for tag := range strings.SplitSeq(tags, ",") {
		rule := tag
		if name, named, ok := strings.Cut(tag, ":"); ok && strings.EqualFold(name, agent) {
			rule = named
		}
		if slices.Contains(forbiddingTags[purpose], rule) {
			return tag
		}
	}
	return ""
}
