package rules

import "slices"

// Check describes one kind of Finding.
type Check struct {
	Code     string
	Severity Severity
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

var checks = []Check{
	{codeHTML, SeverityError, "A web page stands in the place of the file."},
	{codeTooLarge, SeverityError, "The file is larger than what every crawler reads, and its end falls off."},
	{codeUTF16, SeverityError, "The file is in UTF-16 and not in UTF-8."},
	{codeNotUTF8, SeverityError, "A line is not UTF-8."},
	{codeBOM, SeverityWarning, "The file begins with a byte order mark, which hides its first line from some crawlers."},
	{codeNUL, SeverityWarning, "A line has a NUL, where some crawlers stop reading."},
	{codeLineTooLong, SeverityError, "A line is so long that its end is not read."},
	{codeMissingColon, SeverityError, "A field has no colon behind its name."},
	{codeNoField, SeverityWarning, "A line is neither a field nor a comment."},
	{codeMisspelt, SeverityError, "The name of a field is misspelt."},
	{codeUnknownField, SeverityInfo, "A field is one that no crawler is known to read."},
	{codeNoindex, SeverityWarning, "A field asks not to be indexed, which robots.txt cannot do."},
	{codeGlued, SeverityError, "Two fields stand in one line."},
	{codeOutsideGroup, SeverityError, "A rule or a delay stands before the first User-agent line and holds for nobody."},
	{codeAgentEmpty, SeverityError, "A User-agent line names nobody."},
	{codeAgentNotToken, SeverityWarning, "The value of a User-agent line is more than a product token, or none."},
	{codeAgentRepeated, SeverityInfo, "An agent has several groups, which some crawlers merge and others do not."},
	{codeStarAmong, SeverityWarning, "A group is for everyone, and names agents as well."},
	{codeGroupSplit, SeverityWarning, "A blank line stands within a group and ends it for some crawlers."},
	{codeGroupNotSplit, SeverityWarning, "A field that is no rule stands between two User-agent lines and does not part them."},
	{codePathNoSlash, SeverityError, "A path begins with neither a slash nor a wildcard, so that it matches nothing."},
	{codePathSpace, SeverityWarning, "A path has white space in it."},
	{codeBadEscape, SeverityWarning, "A percent sign in a path begins no escape."},
	{codeDollarMiddle, SeverityWarning, "A dollar sign that is not at the end of a path stands for itself."},
	{codeIdleWildcard, SeverityInfo, "A wildcard means nothing: at the end of a path, or behind another."},
	{codeDuplicate, SeverityWarning, "A rule is there twice."},
	{codeContradicting, SeverityWarning, "One path is both allowed and disallowed."},
	{codeUnreachable, SeverityWarning, "A rule never decides: whatever it matches, a longer or equal rule matches too."},
	{codeTooComplex, SeverityWarning, "The rules of a group have so many wildcards that a verdict on a long path may be given up."},
	{codeDelay, SeverityError, "A Crawl-delay is not a number of seconds."},
	{codeSitemap, SeverityError, "A Sitemap is not an absolute URL."},
	{codeReadWildcard, SeverityInfo, "Wildcards are literal in some dialects."},
	{codeReadAllow, SeverityInfo, "Allow lines are unknown in some dialects."},
	{codeReadEmptyAllow, SeverityInfo, "An empty Allow is read in three ways."},
	{codeReadEmptyDisallow, SeverityInfo, "An empty Disallow among other rules allows everything in some dialects."},
	{codeReadFirst, SeverityInfo, "A longer rule stands below a shorter one, which decides in some dialects because it comes first."},
	{codeReadStarFirst, SeverityInfo, "The group for everyone stands above a named one, and decides in some dialects because it comes first."},
	{codeReadComment, SeverityInfo, "A comment begins without white space before it, and is part of the value in some dialects."},
	{codeReadEscape, SeverityInfo, "A path has an escape that dialects decode differently."},
	{codeReadIndex, SeverityInfo, "An Allow of an index page allows its folder in some dialects."},
	{codeReadToken, SeverityInfo, "An agent's name has characters at which some dialects cut it."},
}

var severities = func() map[string]Severity {
	m := make(map[string]Severity, len(checks))
	for _, c := range checks {
		m[c.Code] = c.Severity
	}
	return m
}()
