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

// keyOf recognises a key in any case. The RFC permits crawlers to accept misspellings; these are those of Google's
// parser, and "crawldelay".
func keyOf(name []byte) key {
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
