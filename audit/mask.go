package audit

import "strings"

// mask defines the places in which to search for credentials.
type mask struct {
	divides string // characters that may begin a name
	ends    string // those of them that always end a value; ";" ends it only before a name and "="
}

var (
	queryMask = mask{divides: "&;?#/", ends: "&#"}
	pathMask  = mask{divides: "&;?#/", ends: "&#/"}
	textMask  = mask{divides: "&;?#/ ()<>,", ends: "&#/ ()<>,"}
)

// cutValue replaces a value.
const cutValue = "***"

// deepest is the maximum number of times that a character counts as encoded.
const deepest = 8

// char is a character that is percent-encoded depth times.
type char struct {
	c      byte
	depth  uint8
	hidden bool
	at     int32 // index in the text
}

// apply returns s without the values of credentials. It searches each level of encoding separately, since values are
// often URLs with their own queries.
func (m mask) apply(s string) string {
	if !strings.ContainsAny(s, "=@%\"'") && !strings.Contains(s, tokenBegin) {
		return s // it has no values, no userinfo, no JSON and no token
	}
	chars, deep := decode(s)
	for depth := range deep + 1 {
		m.hideValues(chars, depth)
		hideJSON(chars, depth)
		hideTokens(chars, depth)
		hideUserinfo(chars, m.ends+"?/", depth)
	}
	return shown(s, chars)
}

// decode returns the characters of s and the maximum depth of encoding.
func decode(s string) (chars []char, deep uint8) {
	chars = make([]char, 0, len(s))
	for i := 0; i < len(s); {
		c, n, depth := decodeOne(s[i:])
		chars = append(chars, char{c: c, depth: depth, at: int32(i)})
		deep = max(deep, depth)
		i += n
	}
	return chars, deep
}

// decodeOne returns the first character of s, its encoded length, and its depth of encoding: "%2526" is "&" at depth 2.
func decodeOne(s string) (c byte, n int, depth uint8) {
	if s[0] != '%' || !isHex(s, 1) {
		return s[0], 1, 0
	}
	n, depth = 1, 1
	for s[n:n+2] == "25" && isHex(s, n+2) {
		n += 2
		depth = min(depth+1, deepest)
	}
	return fromHex(s[n])<<4 | fromHex(s[n+1]), n + 2, depth
}

func isHex(s string, i int) bool {
	return i+2 <= len(s) && strings.Trim(s[i:i+2], "0123456789abcdefABCDEF") == ""
}

func fromHex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&0xDF - 'A' + 10
}

// hideValues hides the values of credentials at one depth of encoding.
func (m mask) hideValues(chars []char, depth uint8) {
	hiding := false
	for begin := 0; begin <= len(chars); {
		end := begin + index(chars[begin:], m.divides, depth)
		piece := chars[begin:end]
		if hiding && !m.endsValue(chars[begin-1].c, piece, depth) {
			hide(chars[begin-1 : end])
		} else {
			hiding = hideValue(piece, depth)
		}
		begin = end + 1
	}
}

// endsValue reports whether the separator c, before piece, ends a value.
func (m mask) endsValue(c byte, piece []char, depth uint8) bool {
	return strings.IndexByte(m.ends, c) >= 0 || c == ';' && index(piece, "=", depth) < len(piece)
}

// hideValue hides the value of piece if one of its names, each of which ends with "=", names a credential.
func hideValue(piece []char, depth uint8) bool {
	for {
		i := index(piece, "=", depth)
		if i == len(piece) {
			return false
		}
		if isCredential(text(piece[:i])) {
			hide(piece[i+1:])
			return true
		}
		piece = piece[i+1:]
	}
}

// hideUserinfo hides the text between "://" and "@" in the authority of a URL.
func hideUserinfo(chars []char, ends string, depth uint8) {
	for i := 0; i+3 <= len(chars); i++ {
		if chars[i].c != ':' || chars[i+2].depth > depth || text(chars[i:i+3]) != "://" {
			continue
		}
		i += 3
		authority := chars[i : i+index(chars[i:], ends, depth)]
		last := -1
		for j := range authority {
			if authority[j].c == '@' && authority[j].depth <= depth {
				last = j
			}
		}
		hide(authority[:max(last, 0)])
		i += len(authority) - 1
	}
}

// index returns the index of the first character that is in any and encoded at most depth times, or len(chars).
func index(chars []char, any string, depth uint8) int {
	for i := range chars {
		if chars[i].depth <= depth && strings.IndexByte(any, chars[i].c) >= 0 {
			return i
		}
	}
	return len(chars)
}

func text(chars []char) string {
	b := make([]byte, len(chars))
	for i := range chars {
		b[i] = chars[i].c
	}
	return string(b)
}

func hide(chars []char) {
	for i := range chars {
		chars[i].hidden = true
	}
}

// shown returns s with each run of hidden characters replaced by cutValue.
func shown(s string, chars []char) string {
	var b strings.Builder
	for i, c := range chars {
		end := int32(len(s))
		if i+1 < len(chars) {
			end = chars[i+1].at
		}
		switch {
		case !c.hidden:
			b.WriteString(s[c.at:end])
		case i == 0 || !chars[i-1].hidden:
			b.WriteString(cutValue)
		}
	}
	return b.String()
}
