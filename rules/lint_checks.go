package rules

import "slices"

// Check describes one kind of Finding.
type Check struct {
	Code     string
	Severity Severity
	Decides  bool   // the mistake may change what is allowed
	Summary  string // the mistake, in one sentence
}

// Checks returns all checks of Lint.
func Checks() []Check { return slices.Clone(checks) }

// The codes of the checks.
const (
	codeHTML              = "html-page"
	codeTooLarge          = "too-large"
	codeUTF16             = "utf-16"
	codeNotUTF8           = "not-utf-8"
	codeBOM               = "byte-order-mark"
	codeNUL               = "nul"
	codeLineTooLong       = "line-too-long"
	codeMissingColon      = "missing-colon"
	codeNoField           = "no-field"
	codeMisspelt          = "misspelt-field"
	codeUnknownField      = "unknown-field"
	codeNoindex           = "noindex"
	codeGlued             = "fields-glued"
	codeOutsideGroup      = "outside-group"
	codeAgentEmpty        = "agent-empty"
	codeAgentNotToken     = "agent-not-token"
	codeAgentRepeated     = "agent-repeated"
	codeStarAmong         = "star-among-names"
	codeGroupSplit        = "group-split-by-blank-line"
	codeGroupNotSplit     = "group-not-split"
	codePathNoSlash       = "path-without-slash"
	codePathSpace         = "space-in-path"
	codeBadEscape         = "bad-escape"
	codeDollarMiddle      = "dollar-in-middle"
	codeIdleWildcard      = "idle-wildcard"
	codeDuplicate         = "duplicate-rule"
	codeContradicting     = "contradicting-rules"
	codeUnreachable       = "unreachable-rule"
	codeTooComplex        = "too-complex"
	codeDelay             = "crawl-delay-not-number"
	codeSitemap           = "sitemap-not-absolute"
	codeReadWildcard      = "reading-wildcard"
	codeReadAllow         = "reading-allow"
	codeReadEmptyAllow    = "reading-empty-allow"
	codeReadEmptyDisallow = "reading-empty-disallow"
	codeReadFirst         = "reading-first-match"
	codeReadStarFirst     = "reading-star-first"
	codeReadComment       = "reading-comment"
	codeReadEscape        = "reading-escape"
	codeReadIndex         = "reading-index"
	codeReadToken         = "reading-token"
)

const (
	decides = true
	stays   = false // what is allowed does not change
)

var checks = []Check{
	{codeHTML, SeverityError, decides, "The file is a web page."},
	{codeTooLarge, SeverityError, decides, "The file is larger than crawlers must read, so they ignore its end."},
	{codeUTF16, SeverityError, decides, "The file is in UTF-16, not in UTF-8."},
	{codeNotUTF8, SeverityError, decides, "A line is not UTF-8."},
	{codeBOM, SeverityWarning, decides, "The file begins with a byte order mark, which hides its first line from some crawlers."},
	{codeNUL, SeverityWarning, decides, "A line has a NUL, at which some crawlers stop reading it."},
	{codeLineTooLong, SeverityError, decides, "A line is so long that its end is not read."},
	{codeMissingColon, SeverityError, decides, "The name of a field is not followed by a colon."},
	{codeNoField, SeverityWarning, stays, "A line is neither a field nor a comment."},
	{codeMisspelt, SeverityError, decides, "The name of a field is misspelt."},
	{codeUnknownField, SeverityInfo, stays, "No crawler is known to read a field."},
	{codeNoindex, SeverityWarning, stays, "A field asks not to be indexed, which robots.txt cannot do."},
	{codeGlued, SeverityError, decides, "Two fields are in one line."},
	{codeOutsideGroup, SeverityError, decides, "A rule or a delay before the first User-agent line applies to no agent."},
	{codeAgentEmpty, SeverityError, decides, "A User-agent line is empty."},
	{codeAgentNotToken, SeverityWarning, decides, "The value of a User-agent line is not exactly a product token."},
	{codeAgentRepeated, SeverityInfo, decides, "An agent has several groups, which some crawlers do not merge."},
	{codeStarAmong, SeverityWarning, decides, "A group applies to all agents and also names some."},
	{codeGroupSplit, SeverityInfo, decides, "A blank line within a group ends the group for some crawlers."},
	{codeGroupNotSplit, SeverityWarning, decides, "A field that is not a rule does not separate the groups of two User-agent lines."},
	{codePathNoSlash, SeverityError, decides, "A path does not begin with a slash or a wildcard, so it matches nothing."},
	{codePathSpace, SeverityWarning, decides, "A path contains white space."},
	{codeBadEscape, SeverityWarning, stays, "A percent sign in a path does not begin an escape."},
	{codeDollarMiddle, SeverityWarning, decides, "A dollar sign that is not at the end of a path is an ordinary character."},
	{codeIdleWildcard, SeverityInfo, stays, "A wildcard at the end of a path or after another wildcard has no effect."},
	{codeDuplicate, SeverityWarning, stays, "A rule is a duplicate of an earlier one."},
	{codeContradicting, SeverityWarning, decides, "One path is both allowed and disallowed."},
	{codeUnreachable, SeverityWarning, decides, "A rule never decides, because a longer or equal rule matches all of its paths."},
	{codeTooComplex, SeverityWarning, decides, "A group has so many wildcards that a verdict on a long path may be given up."},
	{codeDelay, SeverityError, stays, "A Crawl-delay is not a number of seconds."},
	{codeSitemap, SeverityError, stays, "A Sitemap is not an absolute URL."},
	{codeReadWildcard, SeverityInfo, decides, "Wildcards are literal in some dialects."},
	{codeReadAllow, SeverityInfo, decides, "Some dialects do not know Allow lines."},
	{codeReadEmptyAllow, SeverityInfo, decides, "Dialects read an empty Allow in three ways."},
	{codeReadEmptyDisallow, SeverityInfo, decides, "An empty Disallow among other rules allows everything in some dialects."},
	{codeReadFirst, SeverityInfo, decides, "A longer rule comes after a shorter one, which decides in some dialects."},
	{codeReadStarFirst, SeverityInfo, decides, "The group for all agents comes before a named one, and decides in some dialects."},
	{codeReadComment, SeverityInfo, decides, "A comment without white space before it is part of the value in some dialects."},
	{codeReadEscape, SeverityInfo, decides, "Dialects decode an escape in a path differently."},
	{codeReadIndex, SeverityInfo, decides, "An Allow of an index page also allows its folder in some dialects."},
	{codeReadToken, SeverityInfo, decides, "Some dialects cut an agent's name at characters that RFC 9309 does not allow."},
}

var severities = func() map[string]Severity {
	m := make(map[string]Severity, len(checks))
	for _, c := range checks {
		m[c.Code] = c.Severity
	}
	return m
}()
