package rules

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// lintField is a record with the offsets of its parts in the line.
type lintField struct {
	key             key
	name, value     []byte
	nameAt, valueAt int
	colon           bool
	commentAt       int // of "#", or the length of the line
}

// split parses the record at a byte offset of a line as parseField does, and returns the offsets. It is not ok for a
// blank line, a comment, or another line that is not a record.
func (l *linter) split(line []byte, at int) (f lintField, ok bool) {
	f.nameAt, f.commentAt = at, len(line)
	if i := bytes.IndexByte(line, '#'); i >= 0 {
		f.commentAt = i
	}
	for f.nameAt < f.commentAt && isSpace(line[f.nameAt]) {
		f.nameAt++
	}
	text := trimSpace(line[min(f.nameAt, f.commentAt):f.commentAt])
	f.name, f.value, ok = splitField(text)
	f.colon = bytes.IndexByte(text, ':') >= 0
	if !ok {
		f.name = text
		return f, false
	}
	f.valueAt = f.nameAt + len(text) - len(f.value)
	f.key = keyOf(f.name)
	return f, true
}

// record checks the current line: its record, and those that follow it as in parser.userAgentLine.
func (l *linter) record() {
	f, ok := l.split(l.line, 0)
	if len(f.name) == 0 && !f.colon {
		l.groups.blank = l.groups.blank || f.commentAt == len(l.line)
		return
	}
	if !l.missingColon(f) {
		l.spelling(f)
	}
	if !ok {
		return
	}
	l.commentReading(f)
	next, more := 0, false
	if f.key == keyUserAgent {
		next, more = l.cut(&f)
	}
	l.check(f)
	for more {
		f, _ = l.split(l.line, next)
		more = false
		if f.key == keyCrawlDelay {
			next, more = l.cut(&f)
		}
		l.check(f)
	}
}

// check checks a record.
func (l *linter) check(f lintField) {
	switch f.key {
	case keyUserAgent:
		l.userAgent(f)
	case keyAllow, keyDisallow:
		l.rule(f)
	case keyCrawlDelay:
		l.crawlDelay(f)
	case keySitemap:
		l.sitemap(f)
	default:
		l.groups.between = clipped(f.name)
	}
}

// cut ends a record before the next one in its value, as field.cut does, and reports it. It returns the offset of the
// next one in the line, and whether there is one.
func (l *linter) cut(f *lintField) (next int, more bool) {
	i := nextRecord(f.value)
	if i < 0 {
		return 0, false
	}
	next = f.valueAt + i
	fix := "Begin a new line before " + quoted(f.value[i:]) + "."
	f.value = trimSpace(f.value[:i])
	l.add(codeGlued, next, fix, "This program reads another record here, and other crawlers do not%s", gluedReading(f))
	return next, true
}

// gluedReading returns how other crawlers read the user-agent line f.
func gluedReading(f *lintField) string {
	switch {
	case f.key != keyUserAgent:
		return ""
	case isStar(f.value):
		return `: Google reads "*" without this record, and most read no agent`
	}
	return fmt.Sprintf(": they read %s without this record", quoted(f.value[:tokenLength(string(f.value))]))
}

// missingColon reports a record without a colon after its name. It returns whether the line is one.
func (l *linter) missingColon(f lintField) bool {
	word := firstWord(f.name)
	if f.colon && (len(word) == len(f.name) || nearest(f.name) != "") {
		return false // its name may have two words, as in "user agent"
	}
	name := nearest(word)
	switch {
	case name != "":
		rest := trimSpace(l.line[f.nameAt+len(word) : f.commentAt])
		l.add(codeMissingColon, f.nameAt+len(word), "Write "+quoted(name+": "+clipped(rest))+".",
			"%s is not followed by a colon, without which most crawlers do not recognise a field", quoted(word))
	case !f.colon:
		l.add(codeNoField, f.nameAt, `Begin the line with "#" to make it a comment, or remove it.`,
			"%s is neither a field nor a comment, and is ignored", quoted(l.line[f.nameAt:f.commentAt]))
	default:
		return false
	}
	return true
}

func firstWord(name []byte) []byte {
	if i := bytes.IndexFunc(name, isSpaceRune); i >= 0 {
		return name[:i]
	}
	return name
}

// fields are the correct names of fields. spelling looks for misspellings of the first spelt. The others are in use,
// but not read by this package.
var fields = []string{
	"User-agent", "Disallow", "Allow", "Sitemap", "Crawl-delay",
	"Host", "Clean-param", "Request-rate", "Visit-time", "Content-Signal", "Content-Usage", "License", "Robot-version",
	"Comment",
}

const spelt = 5 // of fields

// noindexFields have an effect only in a page, as a "robots" meta element or an X-Robots-Tag field.
var noindexFields = []string{"Noindex", "Nofollow", "Noarchive", "Nosnippet"}

// spelling checks the name of a field.
func (l *linter) spelling(f lintField) {
	is := func(name string) bool { return strings.EqualFold(name, string(f.name)) }
	if slices.ContainsFunc(fields, is) {
		return
	}
	if slices.ContainsFunc(noindexFields, is) {
		l.add(codeNoindex, f.nameAt,
			"Send an X-Robots-Tag field with the page, or add a robots meta element to it, and do not disallow the page.",
			"%s was never part of robots.txt, and no large crawler reads it any more", f.name)
		return
	}
	if name := meant(f); name != "" {
		read := "the line is ignored"
		if f.key != keyOther {
			read = "only lenient crawlers read it as that"
		}
		l.add(codeMisspelt, f.nameAt, "Write "+quoted(name)+".", "%s is not %s, and %s", quoted(f.name), quoted(name), read)
		return
	}
	l.add(codeUnknownField, f.nameAt, `Remove the line, or begin it with "#" to make it a comment.`,
		"No crawler is known to read %s", quoted(f.name))
}

// meant returns the name of the field that a misspelt one is, or is similar to, or "".
func meant(f lintField) string {
	switch f.key {
	case keyUserAgent:
		return "User-agent"
	case keyDisallow:
		return "Disallow"
	case keyAllow:
		return "Allow"
	case keySitemap:
		return "Sitemap"
	}
	return nearest(f.name)
}

// nearest returns the field with the most similar name, or "" if no name is similar. It ignores names that are longer
// than any misspelling, which bounds the cost.
func nearest(name []byte) string {
	const longest = 16
	if len(name) < 4 || len(name) > longest {
		return ""
	}
	best, least := "", 3
	for _, f := range fields[:spelt] {
		if d := distance(lowerText(name), lowerText(f)); d < least && d*4 <= len(f) {
			best, least = f, d
		}
	}
	return best
}

// distance returns how many letters must be added, omitted, replaced, or swapped with their neighbour to turn a into b.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			differs := 1
			if a[i] == b[j] {
				differs = 0
			}
			row[j+1] = min(last[j]+differs, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// glued reports a second field within a value: a line end is missing. It returns whether there is one.
func (l *linter) glued(f lintField) bool {
	if bytes.IndexByte(f.value, ':') < 0 {
		return false
	}
	lower := lowerText(f.value)
	for _, name := range fields[:spelt] {
		i := strings.Index(lower, lowerText(name)+":")
		if i < 0 || i > 0 && strings.IndexByte("/?&=", lower[i-1]) >= 0 || strings.HasSuffix(lower[:i], "dis") {
			continue // absent, part of a path, or part of "disallow"
		}
		l.add(codeGlued, f.valueAt+i, "Begin a new line before "+quoted(f.value[i:])+".",
			"Another field follows in the same line, and is read as part of this value")
		return true
	}
	return false
}

// lowerText returns text with ASCII letters in lower case. The length does not change.
func lowerText[T byteseq](text T) string {
	lower := append([]byte(nil), text...)
	for i, c := range lower {
		lower[i] = lowerASCII(c)
	}
	return string(lower)
}

// crawlDelay checks a Crawl-delay line.
func (l *linter) crawlDelay(f lintField) {
	l.groups.between = "Crawl-delay"
	l.inGroup(f)
	if l.glued(f) {
		return
	}
	if _, ok := parseDelay(f.value); ok {
		return
	}
	fix := `Write seconds, as in "Crawl-delay: 5".`
	if n := numberLength(f.value); n > 0 {
		l.add(codeDelay, f.valueAt+n, "Write "+quoted("Crawl-delay: "+string(f.value[:n]))+".",
			"%s is glued to the number, and the delay is passed over", quoted(f.value[n:]))
		return
	}
	l.add(codeDelay, f.valueAt, fix, "%s is not a number of seconds, and the delay is passed over", quoted(f.value))
}

// numberLength returns the length of the delay at the beginning of a value.
func numberLength(value []byte) int {
	n := 0
	for n < len(value) && (value[n] == '.' || '0' <= value[n] && value[n] <= '9') {
		n++
	}
	for n > 0 {
		if _, ok := parseDelay(value[:n]); ok {
			break
		}
		n--
	}
	return n
}

// sitemap checks a Sitemap line. sitemaps.org requires a full URL; the RFC does not define the field.
func (l *linter) sitemap(f lintField) {
	l.groups.between = "Sitemap"
	if l.glued(f) {
		return
	}
	scheme, rest, ok := strings.Cut(string(f.value), "://")
	if ok && isScheme(scheme) && rest != "" && rest[0] != '/' {
		return
	}
	l.add(codeSitemap, f.valueAt, `Write the whole URL, as in "Sitemap: https://site.example/sitemap.xml".`,
		"%s is not an absolute URL, and crawlers ignore it", quoted(f.value))
}
