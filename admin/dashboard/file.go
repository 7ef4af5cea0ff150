package dashboard

import (
	"bytes"
	"strings"

	"github.com/robotsproxy/robotsproxy/internal/safetext"
	"github.com/robotsproxy/robotsproxy/rules"
)

// line is a line of a robots.txt. The zero value stands for lines that are left out.
type line struct {
	N     int
	Text  string
	Class string // comment, hit, or "hit allow"
}

// Hit reports whether l decided.
func (l line) Hit() bool { return strings.HasPrefix(l.Class, "hit") }

const (
	maxLine  = 400    // bounds the text of a line, in bytes
	maxLines = 20_000 // bounds the lines of a file: the limit of its bytes alone allows half a million
)

// fileLines returns the lines of a robots.txt, of which hit decided. If around is not negative, it returns only so many
// lines before and after it, and the line group.
func fileLines(body []byte, hit, group int, allow bool, around int) (lines []line) {
	left := false
	for n, read := range rules.Lines(body, rules.Options{}) {
		if around >= 0 && (n < hit-around || n > hit+around) && n != group {
			if !left && n < hit {
				lines = append(lines, line{})
			}
			left = true
			continue
		}
		left = false
		if len(lines) == maxLines {
			return append(lines, line{})
		}
		text := cutBytes(string(read), maxLine)
		l := line{N: n, Text: safetext.Text(strings.ReplaceAll(text, "\t", "    "))}
		switch {
		case n == hit && allow:
			l.Class = "hit allow"
		case n == hit:
			l.Class = "hit"
		case strings.HasPrefix(strings.TrimSpace(text), "#"):
			l.Class = "comment"
		}
		lines = append(lines, l)
	}
	return lines
}

// A file of more bytes or ends of lines is shown in part: so many lines around the one that decided.
const (
	wholeFile  = 64 << 10
	wholeLines = 1000
	aroundHit  = 100
)

// surroundings returns how many lines around the one that decided are shown of a file, or -1 for all.
func surroundings(body []byte) int {
	if len(body) > wholeFile || bytes.Count(body, []byte("\n"))+bytes.Count(body, []byte("\r")) > wholeLines {
		return aroundHit
	}
	return -1
}

// cutBytes returns the first n bytes of s, and a mark if there are more.
func cutBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// diffLines returns the lines of a difference in the unified format.
func diffLines(text string) (lines []line) {
	for l := range strings.Lines(text) {
		class := ""
		switch l[0] {
		case '+':
			class = "added"
		case '-':
			class = "removed"
		case '@', 'd':
			class = "gap"
		}
		if len(lines) == maxDiff {
			return append(lines, line{Text: "…\n", Class: "gap"})
		}
		lines = append(lines, line{Text: safetext.Text(cutBytes(strings.TrimRight(l, "\r\n"), maxLine)) + "\n", Class: class})
	}
	return lines
}

// maxDiff bounds the lines of a difference.
const maxDiff = 500
