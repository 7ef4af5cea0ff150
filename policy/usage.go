package policy

import (
	"slices"

	"github.com/robotsproxy/robotsproxy/internal/fields"
	"github.com/robotsproxy/robotsproxy/rules"
)

// Usage says how the preferences of a site about the use of its content are applied. The zero value records them.
type Usage uint8

const (
	UsageRecord  Usage = iota // record them
	UsageEnforce              // refuse requests for a purpose that robots.txt does not permit
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
