package rules

import (
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Agent returns the part of the file for a crawler. The name is a product token or a whole User-Agent header. The
// crawler's groups are those of the longest token in the header, merged (2.2.1), or those for "*" if no group has one
// of its tokens. Most other dialects take the first group that matches the header.
//
// If the search takes too many steps, every verdict of the Agent has TooComplex set.
func (r *Ruleset) Agent(userAgent string) Agent {
	a, _ := r.agent(userAgent)
	return a
}

// agent also returns the steps that the search took.
func (r *Ruleset) agent(userAgent string) (a Agent, steps int) {
	verbatim := false
	if r.dialect != DialectRFC9309 {
		s := r.dialect.switches()
		if !s.agents.merged() {
			return r.firstAgent(userAgent, s)
		}
		verbatim = s.agents == agentsVerbatim
		if verbatim && !strings.Contains(userAgent, "/") {
			return r.agentNamed(userAgent), 0
		}
	}
	best, length := -1, 0
	eachCandidate(userAgent, func(name string, _ place) bool {
		if verbatim {
			name = name[:lettersLength(name)]
		}
		if len(name) > length {
			if t, ok := r.token(name); ok {
				best, length = t, len(name)
			}
		}
		steps += candidateSteps + len(name)/8
		return steps <= maxAgentSteps
	})
	switch {
	case steps > maxAgentSteps:
		return Agent{set: r, tooComplex: true}, steps
	case best >= 0:
		return Agent{set: r, token: best}, steps
	}
	return r.agentNamed("*"), steps
}

// agentNamed returns the agent with exactly this name, else that of "*".
func (r *Ruleset) agentNamed(name string) Agent {
	t, ok := r.token(name)
	if !ok {
		t, ok = r.token("*")
	}
	if !ok {
		return Agent{set: r, token: noToken}
	}
	return Agent{set: r, token: t}
}

// firstAgent returns the first token that matches a crawler.
func (r *Ruleset) firstAgent(userAgent string, s *switches) (a Agent, steps int) {
	if s.agents == agentsName {
		userAgent = strings.TrimLeft(userAgent, " \t")
		if i := strings.IndexAny(userAgent, " \t/"); i >= 0 {
			userAgent = userAgent[:i]
		}
	}
	var buf [256]byte
	lower := string(appendLower(buf[:0], userAgent))
	steps = len(userAgent)
	for t := range max(len(r.tokens)-1, 0) {
		fits, more := s.agents.fits(r.text(r.tokens[t].name), lower)
		if steps += more; steps > maxAgentSteps {
			return Agent{set: r, tooComplex: true}, steps
		}
		if fits {
			return Agent{set: r, token: t}, steps
		}
	}
	return Agent{set: r, token: noToken}, steps
}

// fits reports whether the value of a user-agent line matches a crawler, and the steps that it took. Both are in lower
// case.
func (a agents) fits(value, agent string) (fits bool, steps int) {
	if a != agentsEither {
		if value == "*" {
			return true, segmentSteps
		}
		return contains(agent, value)
	}
	if fits, steps = contains(value, agent); fits {
		return true, steps
	}
	for part := range strings.SplitSeq(value, "*") {
		i, more := 0, 0
		if part != "" {
			i, more = index(agent, part)
		}
		if steps += segmentSteps + more; i < 0 {
			return false, steps
		}
		agent = agent[i+len(part):]
	}
	return true, steps
}

// contains reports whether sub is within s, and the steps that it took.
func contains(s, sub string) (found bool, steps int) {
	if sub == "" {
		return true, segmentSteps
	}
	i, steps := index(s, sub)
	return i >= 0, segmentSteps + steps
}

// token finds a token by name, in any case.
func (r *Ruleset) token(name string) (t int, ok bool) {
	var buf [64]byte
	lower := appendLower(buf[:0], name)
	n := max(len(r.tokens)-1, 0)
	t = sort.Search(n, func(t int) bool { return r.text(r.tokens[t].name) >= string(lower) })
	return t, t < n && r.text(r.tokens[t].name) == string(lower)
}

// ProductToken returns the product token of a crawler, in the case of its User-Agent header:
// "NewsBot" for "NewsBot/2.1 (+https://news.example)" and for "Mozilla/5.0 (compatible; NewsBot/2.1)". It is "" if the
// header has only the names of browsers.
func ProductToken(userAgent string) string {
	best, found := "", inRemark
	eachCandidate(userAgent, func(name string, at place) bool {
		if at < found {
			best, found = name, at
		}
		return true
	})
	return best
}

// place is the position of a candidate in a header, the best first.
type place uint8

const (
	afterCompatible place = iota // "Mozilla/5.0 (compatible; NewsBot)": the form of crawlers that resemble a browser
	asProduct                    // outside of comments
	asVersion                    // in a comment, with a version
	inRemark                     // in a comment; it may be a device or a system
)

// eachCandidate calls f with every word of a User-Agent header that may be a product token, until f returns false. In
// RFC 9110 (section 10.1.5) a "/" follows the token. Crawlers also write it before a ";", at the beginning, or first
// in a comment or a part of one. Names that all browsers share are not candidates, unless the header is that name
// alone. Each byte of the header is read a fixed number of times.
func eachCandidate(header string, f func(name string, at place) bool) {
	if tokenLength(header) == len(header) {
		if header != "" {
			f(header, asProduct)
		}
		return
	}
	depth, first, compatible := 0, true, false
	for i := 0; i < len(header); {
		switch header[i] {
		case '(':
			depth, first = depth+1, true
			i++
		case ')':
			depth, first = max(depth-1, 0), true
			i++
		case ';':
			first = true
			i++
		case ' ', '\t', ',':
			i++
		default:
			word := header[i : i+wordLength(header[i:])]
			i += len(word)
			name := word[:tokenLength(word)]
			versioned := len(name) < len(word) && word[len(name)] == '/'
			atEnd := i == len(header) || header[i] == ';'
			switch {
			case name == "" || isAddress(word):
			case strings.EqualFold(name, "compatible"):
				compatible, first = true, false
				continue
			case (first || versioned || atEnd) && !isGeneric(name):
				if !f(name, placeOf(depth, compatible && first, versioned)) {
					return
				}
			}
			compatible, first = false, false
		}
	}
}

func placeOf(depth int, compatible, versioned bool) place {
	switch {
	case compatible:
		return afterCompatible
	case depth == 0:
		return asProduct
	case versioned:
		return asVersion
	}
	return inRemark
}

// wordLength returns the length of s before the next separator.
func wordLength(s string) int {
	if i := strings.IndexAny(s, " \t,;()"); i >= 0 {
		return i
	}
	return len(s)
}

// isAddress reports whether a word is a URL or an email address, and so not a token.
func isAddress(word string) bool { return strings.Contains(word, "://") || strings.Contains(word, "@") }

// generic are the words that the headers of browsers share.
var generic = map[string]bool{
	"mozilla": true, "gecko": true, "applewebkit": true, "khtml": true, "like": true,
	"chrome": true, "chromium": true, "crios": true, "safari": true, "version": true, "mobile": true, "firefox": true,
	"fxios": true, "edge": true, "edg": true, "opera": true, "opr": true, "presto": true, "trident": true, "msie": true,
	"windows": true, "macintosh": true, "x11": true, "linux": true, "ubuntu": true, "android": true, "iphone": true,
	"ipad": true, "ipod": true, "cros": true, "cpu": true, "intel": true, "u": true, "k": true, "rv": true, "build": true,
	"wow64": true, "win64": true, "x64": true, "x86_64": true, "i686": true,
}

func isGeneric(name string) bool {
	var buf [64]byte
	return generic[string(appendLower(buf[:0], name))]
}

// tokenLength returns the length of the product token at the beginning of s.
//
// Departure: in section 2.2.1 a token has ASCII letters, "_" and "-". Crawlers are called "MJ12bot", "008" and
// "Львів-bot", so digits, dots and the letters of all scripts count here. Google's parser cuts "MJ12bot" to "MJ" in
// the file only, so a file cannot address a crawler of that name.
func tokenLength(s string) int {
	i := 0
	for i < len(s) {
		if c := s[i]; c < utf8.RuneSelf {
			if classes[c]&unreserved == 0 || c == '~' {
				break
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if !unicode.In(r, unicode.L, unicode.M, unicode.N) {
			break
		}
		i += n
	}
	return i
}

// lettersLength returns the length of the product token of section 2.2.1 at the beginning of s.
func lettersLength(s string) int {
	i := 0
	for i < len(s) && (s[i] == '-' || s[i] == '_' || 'a' <= lowerASCII(s[i]) && lowerASCII(s[i]) <= 'z') {
		i++
	}
	return i
}

// appendLower appends s in lower case.
func appendLower(dst []byte, s string) []byte {
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			dst = append(dst, lowerASCII(c))
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		dst = utf8.AppendRune(dst, unicode.ToLower(r))
		i += n
	}
	return dst
}
