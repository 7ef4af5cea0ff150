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

// usageOf returns the preferences in a robots.txt for r, for the record.
func usageOf(agent rules.Agent, r Request, set *rules.Ruleset) string {
	lines, ok := agent.UsesOf(r.usageTarget())
	if !ok {
		return "robots.txt: too-complex"
	}
	var preferences []string
	for _, line := range lines {
		preferences = append(preferences, preferencesOf(line)...)
	}
	licenses := set.Licenses()
	for _, license := range licenses[:min(len(licenses), maxLicenses)] {
		preferences = append(preferences, fields.License(license)...)
	}
	return fields.UsageText("robots.txt", preferences)
}

func preferencesOf(line rules.Stated) []string {
	if line.Signal {
		return fields.ContentSignal(line.Preferences)
	}
	return fields.ContentUsage(line.Preferences)
}

// forbids reports whether robots.txt does not permit the purpose of r, with the line that says so as the Verdict. As for
// a rule, any form of the target counts. It permits robots.txt itself.
func (p *Policy) forbids(agent rules.Agent, r Request) (v rules.Verdict, forbidden bool) {
	against := forbidding[r.Client.Purpose]
	if p.options.Usage != UsageEnforce || len(against) == 0 || r.Target == "/robots.txt" {
		return v, false
	}
	v, forbidden = forbiddenBy(agent, r.usageTarget(), against)
	for i := 0; i < len(r.forms) && !forbidden; i++ {
		v, forbidden = forbiddenBy(agent, r.forms[i], against)
	}
	return v, forbidden
}

// forbiddenBy reports whether a target has one of the preferences.
func forbiddenBy(agent rules.Agent, target string, against []string) (v rules.Verdict, forbidden bool) {
	lines, ok := agent.UsesOf(target)
	if !ok {
		return rules.Verdict{TooComplex: true}, true
	}
	for _, line := range lines {
		if slices.ContainsFunc(preferencesOf(line), func(s string) bool { return slices.Contains(against, s) }) {
			return rules.Verdict{Line: line.Line, Rule: line.Rule, Group: line.Group}, true
		}
	}
	return v, false
}
