package rules

import "bytes"

// key is the kind of a record.
type key uint8

const (
	keyOther key = iota // another record, which must not interfere with these (2.2.4)
	keyUserAgent
	keyAllow
	keyDisallow
	keyCrawlDelay
	keySitemap
	keyRequestRate
	keyVisitTime
	keyHost
	keyCleanParam
	keyContentUsage
	keyContentSignal
	keyLicense
)

// ofAgents reports whether records of this kind apply to certain agents, and are nothing without them.
func (k key) ofAgents() bool {
	return k == keyCrawlDelay || k == keyRequestRate || k == keyVisitTime || k == keyContentUsage
}

// ofUse reports whether records of this kind state the permitted uses of resources.
func (k key) ofUse() bool { return k == keyContentUsage || k == keyContentSignal }

// field is a line that is a record: "key: value".
type field struct {
	text        []byte // the record as written, without surrounding white space and comment
	nameLength  int    // at the beginning
	valueLength int    // at the end
	key         key
}

func (f *field) name() []byte  { return f.text[:f.nameLength] }
func (f *field) value() []byte { return f.text[len(f.text)-f.valueLength:] }

// parse parses a line. Its key is keyOther if this package does not read the record. The parser keeps one field for
// all lines: copying it would take longer than to parse most lines.
func (f *field) parse(line []byte) {
	if i := bytes.IndexByte(line, '#'); i >= 0 {
		line = line[:i]
	}
	text := trimSpace(line)
	name, value, ok := splitField(text)
	if !ok {
		*f = field{}
		return
	}
	f.key, f.text, f.nameLength, f.valueLength = keyOf(name), text, len(name), len(value)
}

// cut ends a record before the next one in its value, and returns that one, or nil. Departure: in the RFC a line has one
// record. But files write "User-agent: a Disallow: /" in one line. A product token has no white space, and a delay has
// none either, so nothing else can be meant; without the rule, the agent would have those of the next group. A path may
// contain white space, so the value of a rule is never cut.
func (f *field) cut() (next []byte) {
	i := nextRecord(f.value())
	if i < 0 {
		return nil
	}
	at := len(f.text) - f.valueLength + i
	next = f.text[at:]
	f.text, f.valueLength = trimSpace(f.text[:at]), len(trimSpace(f.value()[:i]))
	return next
}

// nextRecord returns the offset of the first rule or delay after white space in a value, or -1.
func nextRecord(value []byte) int {
	end := 0 // of the colon before
	for {
		length := bytes.IndexByte(value[end:], ':')
		if length < 0 {
			return -1
		}
		name := bytes.TrimRightFunc(value[end:end+length], isSpaceRune)
		start := bytes.LastIndexFunc(name, isSpaceRune) + 1
		if at := end + start; at > 0 && isSpace(value[at-1]) {
			switch keyNamed(name[start:]) {
			case keyAllow, keyDisallow, keyCrawlDelay:
				return at
			}
		}
		end += length + 1
	}
}

func parseField(line []byte) (f field) {
	f.parse(line)
	return f
}

// splitField splits a record at its first colon. Like Google's parser, it accepts a record of exactly two words
// without a colon.
func splitField(text []byte) (name, value []byte, ok bool) {
	if i := bytes.IndexByte(text, ':'); i >= 0 {
		return trimSpace(text[:i]), trimSpace(text[i+1:]), true
	}
	i := bytes.IndexFunc(text, isSpaceRune)
	if i < 0 {
		return nil, nil, false
	}
	value = trimSpace(text[i:])
	if bytes.ContainsFunc(value, isSpaceRune) {
		return nil, nil, false
	}
	return text[:i], value, true
}

// keyOf recognises a key by its name, or by what its name begins with, as in "Disallows" and "Disallow;". Departure: in
// the RFC such a record is another one. Google's parser reads it as this one, and its author meant no less.
func keyOf(name []byte) key {
	if k := keyNamed(name); k != keyOther || len(name) == 0 {
		return k
	}
	return keyOfBeginning(name)
}

// keyNamed recognises a key in any case. The RFC permits crawlers to accept misspellings (2.2.4); these are those of
// Google's parser, and "crawldelay".
func keyNamed(name []byte) key {
	switch string(name) { // as in nearly all files
	case "Disallow":
		return keyDisallow
	case "Allow":
		return keyAllow
	case "User-agent":
		return keyUserAgent
	}
	var buf [14]byte
	if len(name) > len(buf) {
		return keyOther
	}
	for i, c := range name {
		buf[i] = lowerASCII(c)
	}
	switch string(buf[:len(name)]) {
	case "user-agent", "useragent", "user agent":
		return keyUserAgent
	case "allow":
		return keyAllow
	case "disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw":
		return keyDisallow
	case "crawl-delay", "crawldelay":
		return keyCrawlDelay
	case "sitemap", "site-map":
		return keySitemap
	case "request-rate":
		return keyRequestRate
	case "visit-time":
		return keyVisitTime
	case "host":
		return keyHost
	case "clean-param":
		return keyCleanParam
	case "content-usage":
		return keyContentUsage
	case "content-signal":
		return keyContentSignal
	case "license":
		return keyLicense
	}
	return keyOther
}

// keyOfBeginning recognises a key by the beginning of a name, as Google's parser does.
func keyOfBeginning(name []byte) key {
	switch lowerASCII(name[0]) { // as in few other records
	case 'a', 'd', 's', 'u':
	default:
		return keyOther
	}
	for _, k := range [...]struct {
		name string
		key  key
	}{
		{"user-agent", keyUserAgent},
		{"useragent", keyUserAgent},
		{"user agent", keyUserAgent},
		{"allow", keyAllow},
		{"disallow", keyDisallow},
		{"dissallow", keyDisallow},
		{"dissalow", keyDisallow},
		{"disalow", keyDisallow},
		{"diasllow", keyDisallow},
		{"disallaw", keyDisallow},
		{"sitemap", keySitemap},
		{"site-map", keySitemap},
	} {
		if n := len(k.name); len(name) > n && isName(name[:n], k.name) {
			return k.key
		}
	}
	return keyOther
}

func trimSpace(b []byte) []byte {
	for len(b) > 0 && isSpace(b[0]) {
		b = b[1:]
	}
	for len(b) > 0 && isSpace(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}

// isSpace reports whether c is white space. To the RFC's SP and HTAB it adds bytes that occur at the ends of real
// lines and in no URL: VT, FF, and NUL, with which some files are padded.
func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == 0 || c == '\v' || c == '\f' }

func isSpaceRune(r rune) bool { return r < 0x80 && isSpace(byte(r)) }

func lowerASCII(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + ('a' - 'A')
	}
	return c
}
