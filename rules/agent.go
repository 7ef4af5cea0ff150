package rules

import (
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Agent finds what the file holds for a crawler, which is named by its product token or by its whole User-Agent
// header. The groups of the longest token that the header has are the crawler's, merged (2.2.1); if no group
// has one of its tokens, the groups for "*" are. Most other dialects take the first group that fits the header.
func (r *Ruleset) Agent(userAgent string) Agent {
	verbatim := false
	if r.dialect != RFC9309 {
		s := r.dialect.switches()
		if !s.agents.merged() {
			return r.firstAgent(userAgent, s)
		}
		verbatim = s.agents == agentsVerbatim
		if verbatim && !strings.Contains(userAgent, "/") {
			return r.agentNamed(userAgent)
		}
	}
	best, length := -1, 0
	eachCandidate(userAgent, func(name string, _ place) {
		if verbatim {
			name = name[:lettersLength(name)]
		}
		if len(name) <= length {
			return
		}
		if t, ok := r.token(name); ok {
			best, length = t, len(name)
		}
	})
	if best >= 0 {
		return Agent{set: r, token: best}
	}
	return r.agentNamed("*")
}

// agentNamed finds the agent of a name as it is, else that of "*".
func (r *Ruleset) agentNamed(name string) Agent {
	t, ok := r.token(name)
	if !ok {
		t, ok = r.token("*")
	}
	if !ok {
		return Agent{}
	}
	return Agent{set: r, token: t}
}

// firstAgent finds the first token that fits a crawler.
func (r *Ruleset) firstAgent(userAgent string, s *switches) Agent {
	if s.agents == agentsName {
		userAgent = strings.TrimLeft(userAgent, " \t")
		if i := strings.IndexAny(userAgent, " \t/"); i >= 0 {
			userAgent = userAgent[:i]
		}
	}
	var buf [256]byte
	lower := string(appendLower(buf[:0], userAgent))
	for t := range max(len(r.tokens)-1, 0) {
		if s.agents.fits(r.text(r.tokens[t].name), lower) {
			return Agent{set: r, token: t}
		}
	}
	return Agent{}
}

// fits reports whether a user-agent line's value is that of a crawler, both in lower case.
func (a agents) fits(value, agent string) bool {
	if a != agentsEither {
		return value == "*" || strings.Contains(agent, value)
	}
	if strings.Contains(value, agent) {
		return true
	}
	for part := range strings.SplitSeq(value, "*") {
		i := strings.Index(agent, part)
		if i < 0 {
			return false
		}
		agent = agent[i+len(part):]
	}
	return true
}

// token finds a token by name, in any case.
func (r *Ruleset) token(name string) (t int, ok bool) {
	var buf [64]byte
	lower := appendLower(buf[:0], name)
	n := max(len(r.tokens)-1, 0)
	t = sort.Search(n, func(t int) bool { return r.text(r.tokens[t].name) >= string(lower) })
	return t, t < n && r.text(r.tokens[t].name) == string(lower)
}

// ProductToken returns the token that a crawler is known by, in the case in which its User-Agent header has it:
// "NewsBot" for "NewsBot/2.1 (+https://news.example)" and for "Mozilla/5.0 (compatible; NewsBot/2.1)". It is "" where
// the header names nothing but a browser.
func ProductToken(userAgent string) string {
	best, found := "", inRemark
	eachCandidate(userAgent, func(name string, where place) {
		if where < found {
			best, found = name, where
		}
	})
	return best
}

// place says where in a header a candidate stands, the best places first.
type place uint8

const (
	afterCompatible place = iota // "Mozilla/5.0 (compatible; NewsBot)": how crawlers that pose as a browser sign
	asProduct                    // outside of comments
	asVersion                    // in a comment, with a version
	inRemark                     // in a comment, where it may as well be a device or a system
)

// eachCandidate calls f with every word of a User-Agent header that may be a product token. RFC 9110 (10.1.5) has the
// token stand before a "/"; crawlers have it there or before a ";", in front of all, or first in a comment or in a part
// of one. Names that all browsers share are no candidates, unless the header is that name alone. Each octet of the
// header is looked at a fixed number of times.
func eachCandidate(header string, f func(name string, where place)) {
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
				f(name, placeOf(depth, compatible && first, versioned))
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

// wordLength returns how many octets of s come before the next separator.
func wordLength(s string) int {
	if i := strings.IndexAny(s, " \t,;()"); i >= 0 {
		return i
	}
	return len(s)
}

// isAddress reports whether a word tells where to write or read, and so names nobody.
func isAddress(word string) bool { return strings.Contains(word, "://") || strings.Contains(word, "@") }

// generic are the words that the headers of browsers share, and those of crawlers that pose as one.
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

// tokenLength returns how many octets of s are a product token.
//
// Departure: section 2.2.1 has tokens of letters, "_" and "-" in ASCII. Crawlers are called "MJ12bot", "008" and
// "Львів-bot" all the same, so digits, dots and the letters of all scripts count. Google's parser cuts "MJ12bot" to
// "MJ", in the file only, so that no crawler of that name can ever be addressed.
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

// lettersLength returns how many octets of s are a product token as section 2.2.1 has it.
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
