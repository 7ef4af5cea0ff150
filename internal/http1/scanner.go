package http1

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"

	"golang.org/x/net/http/httpguts"
)

// scanner is a state machine that finds where each request of a connection begins and ends, strictly by RFC 9112. It
// also refuses what net/http would answer before it calls a handler: a target that is not a URL, a malformed Host, an
// unknown expectation, a Trailer field that names a framing field.
//
// scan looks at each byte once. Between calls the scanner keeps a short word, and one value: the target, Host or
// Trailer. The zero value is before the first request.
type scanner struct {
	phase phase
	after phase // after the LF that must follow
	size  int   // length of the word; len(word)+1 if it was longer
	word  [24]byte
	value []byte // of the target, Host or Trailer

	bytes      int // of the head, the chunk's line or the trailers so far
	field      field
	seen       [fields]bool // the fields of the head
	originForm bool         // the target begins with a slash
	badTrailer bool         // Trailer names a field that must be in the head
	http10     bool         // in phase blank: of the previous request
	connect    bool         // the method is CONNECT
	post       bool         // the method is POST; in phase blank: of the previous request
	chunked    bool         // in a chunked body
	left       uint64       // bytes of the body or chunk that must follow
	excess     int64        // overhead of the chunks beyond a fair amount
	heads      int64        // complete heads so far

	checkHost func(host string) error // for Host beside a target in absolute-form; nil: none
}

// phase is the element that must follow.
type phase uint8

const (
	blank       phase = iota // a request line; after a POST also an empty line, which old clients send (section 2.2)
	method                   // a request line
	target                   // the rest of it
	version                  // the rest of it
	fieldLine                // a field, or the empty line after the last
	fieldName                // the rest of it
	fieldValue               // the rest of it
	lineFeed                 // the LF of a CRLF
	content                  // a body of known length
	chunkSize                // a chunk's length
	chunkExt                 // extensions after it
	chunkData                // its bytes
	chunkEnd                 // the CRLF after them
	passThrough              // anything: after a CONNECT
)

// field is a field that the scanner reads.
type field uint8

const (
	other field = iota
	host
	contentLength
	transferEncoding
	expect
	trailer
	fields // the number of fields
)

var fieldNames = [fields]string{
	host: "Host", contentLength: "Content-Length", transferEncoding: "Transfer-Encoding", expect: "Expect", trailer: "Trailer",
}

// once reports whether a second field of this name is a fault. Host, Content-Length and Transfer-Encoding decide the
// framing and the target.
func (f field) once() bool { return f == host || f == contentLength || f == transferEncoding }

const (
	maxSection = 3 << 10 // bytes of a chunk's line, and of all trailers; net/http's limit is 4 KiB
	maxExcess  = 8 << 10 // half of net/http's limit, whose error would look like a failure of the origin
	keptValue  = 4 << 10 // bytes of the value's buffer that are kept between requests
)

// MaxHeaderBytes bounds a request line and its fields. Longer ones are answered 431 (RFC 6585 section 5).
const MaxHeaderBytes = 64 << 10

// SyntaxError describes bytes that are not a well-formed request.
type SyntaxError struct {
	Status int   // 400, 417, 431 or 505
	Err    error // of Options.CheckHost; nil for any other fault

	reason string
	body   int64 // number of the request, from 1, whose body has the fault; 0 if it is in a head
}

func (e *SyntaxError) Error() string { return e.reason }

// Unwrap returns e.Err.
func (e *SyntaxError) Unwrap() error { return e.Err }

func malformed(format string, v ...any) *SyntaxError {
	return &SyntaxError{Status: http.StatusBadRequest, reason: fmt.Sprintf(format, v...)}
}

// scan continues with p. It returns how many bytes are well-formed: all of them, unless there is a fault.
func (s *scanner) scan(p []byte) (int, *SyntaxError) {
	for i := 0; i < len(p); {
		line := s.phase != content && s.phase != chunkData && s.phase != passThrough
		n, m := s.take(p[i:])
		if line {
			s.bytes += n
		}
		if m == nil {
			m = s.checkSize()
		}
		if m != nil {
			if s.chunked {
				m.body = s.heads
			}
			return i, m
		}
		i += n
	}
	return len(p), nil
}

// take reads some of p, which is not empty, in one phase.
func (s *scanner) take(p []byte) (int, *SyntaxError) {
	switch s.phase {
	case passThrough:
		return len(p), nil
	case content, chunkData:
		return s.skip(len(p)), nil
	case blank, lineFeed, chunkEnd:
		return s.takeEnd(p[0])
	case method, target, version:
		return s.takeRequestLine(p)
	case fieldLine, fieldName, fieldValue:
		return s.takeField(p)
	default:
		return s.takeChunkLine(p)
	}
}

// skip passes over bytes of a body.
func (s *scanner) skip(n int) int {
	if uint64(n) < s.left {
		s.left -= uint64(n)
		return n
	}
	n = int(s.left)
	if s.phase == chunkData {
		s.phase = chunkEnd
	} else {
		s.end()
	}
	return n
}

// end completes a request.
func (s *scanner) end() {
	value := s.value[:0]
	if cap(value) > keptValue {
		value = nil
	}
	*s = scanner{post: s.post, http10: s.http10, heads: s.heads, checkHost: s.checkHost, value: value}
}

// checkSize bounds the bytes that are not content.
func (s *scanner) checkSize() *SyntaxError {
	switch {
	case s.chunked && s.bytes > maxSection:
		return malformed("a chunk's line or the trailers have more than %d bytes", maxSection)
	case s.excess > maxExcess:
		return malformed("the chunks have more overhead than content")
	case s.bytes > MaxHeaderBytes:
		return &SyntaxError{Status: http.StatusRequestHeaderFieldsTooLarge, reason: fmt.Sprintf("the header has more than %d bytes", MaxHeaderBytes)}
	}
	return nil
}

// takeEnd reads the end of a line or chunk. Each line ends in CR LF: section 2.2 permits to accept a bare LF, but the
// next server may not.
func (s *scanner) takeEnd(c byte) (int, *SyntaxError) {
	switch {
	case s.phase == lineFeed && c == '\n':
		s.begin(s.after)
	case s.phase == lineFeed:
		return 0, malformed("a CR stands alone")
	case s.phase == blank && s.post && c == '\r':
		s.endLine(method)
	case s.phase == blank:
		s.phase = method
		return 0, nil
	case c == '\r':
		s.endLine(chunkSize)
	default:
		return 0, malformed("a chunk is longer than its size says")
	}
	return 1, nil
}

// endLine expects the LF of a line, and then the phase after.
func (s *scanner) endLine(after phase) { s.phase, s.after = lineFeed, after }

// begin enters the phase after a line.
func (s *scanner) begin(p phase) {
	s.phase, s.size = p, 0
	switch p {
	case blank: // the message is complete
		s.end()
	case chunkSize:
		s.chunked, s.bytes, s.left = true, 0, 0
	case chunkData: // as net/http reckons: a stream of single bytes passes
		around := int64(s.bytes + len("\r\n"))
		s.excess = max(0, s.excess+around-16-2*int64(s.left))
	}
}

// takeRequestLine reads method SP request-target SP HTTP-version (section 3).
func (s *scanner) takeRequestLine(p []byte) (int, *SyntaxError) {
	if s.phase == version {
		return s.takeVersion(p[0])
	}
	set := isToken
	if s.phase == target {
		set = isTarget
		s.originForm = s.originForm || s.size == 0 && p[0] == '/'
	}
	n := s.run(p, set)
	if s.phase == target {
		s.value = append(s.value, p[:n]...)
	}
	if n == len(p) {
		return n, nil
	}
	if s.phase == method && s.size == 0 && otherProtocols[p[n]] != "" {
		return 0, malformed("%s", otherProtocols[p[n]])
	}
	if p[n] != ' ' || s.size == 0 {
		return 0, malformed("the first line is not a method, a target and a version with one space between them")
	}
	if s.phase == target {
		if err := s.readTarget(); err != nil {
			return 0, err
		}
	} else {
		s.connect, s.post = string(s.text()) == http.MethodConnect, string(s.text()) == http.MethodPost
	}
	s.phase, s.size = s.phase+1, 0
	return n + 1, nil
}

// readTarget checks that net/http can parse the target. In a path, only a percent sign can be wrong.
func (s *scanner) readTarget() *SyntaxError {
	if s.originForm && !bytes.Contains(s.value, []byte("%")) {
		s.value = s.value[:0]
		return nil
	}
	text := string(s.value)
	if s.connect && !s.originForm {
		text = "http://" + text // authority-form
	}
	if _, err := url.ParseRequestURI(text); err != nil {
		return malformed("the target is not a URL (RFC 3986): two hexadecimal digits follow each %%, and a host has no spaces or brackets")
	}
	s.value = s.value[:0]
	return nil
}

// otherProtocols describes protocols by their first byte, for clients that are configured wrongly.
var otherProtocols = map[byte]string{
	0x04: "it is SOCKS, and this is an HTTP proxy: use http:// in the proxy's URL",
	0x05: "it is SOCKS, and this is an HTTP proxy: use http:// in the proxy's URL",
	0x16: "it is TLS, and this port speaks plain HTTP: use http:// in the proxy's URL, for https sites too",
}

const versions = "HTTP/1."

func (s *scanner) takeVersion(c byte) (int, *SyntaxError) {
	switch {
	case s.size < len(versions) && c == versions[s.size]:
	case s.size == len(versions) && (c == '0' || c == '1'):
		s.http10 = c == '0'
	case s.size > len(versions) && c == '\r':
		s.endLine(fieldLine)
	case s.size >= len("HTTP/") && isVersion(c):
		return 0, &SyntaxError{Status: http.StatusHTTPVersionNotSupported, reason: "the version is neither HTTP/1.0 nor HTTP/1.1"}
	default:
		return 0, malformed("the first line does not end in a version and CR LF")
	}
	s.size++
	return 1, nil
}

func isVersion(c byte) bool { return c == '.' || c >= '0' && c <= '9' }

// takeField reads field-name ":" OWS field-value OWS (section 5) of the head or of the trailers.
func (s *scanner) takeField(p []byte) (int, *SyntaxError) {
	switch s.phase {
	case fieldLine:
		return s.takeFieldStart(p[0])
	case fieldName:
		return s.takeName(p)
	}
	if s.field == other {
		return s.endValue(p, span(p, isText))
	}
	n := s.run(p, isText)
	if s.field == host || s.field == trailer {
		s.value = append(s.value, p[:n]...)
	}
	return s.endValue(p, n)
}

func (s *scanner) takeFieldStart(c byte) (int, *SyntaxError) {
	switch c {
	case '\r':
		return 1, s.endFields()
	case ' ', '\t':
		return 0, malformed("a line is folded, or white space precedes the first field (section 5.2)")
	}
	s.phase = fieldName
	return 0, nil
}

func (s *scanner) takeName(p []byte) (int, *SyntaxError) {
	n := s.run(p, isToken)
	if n == len(p) {
		return n, nil
	}
	if p[n] != ':' || s.size == 0 {
		return 0, malformed("a field's name is not a token that a colon follows (section 5.1)")
	}
	s.field = fieldOf(s.text())
	switch {
	case s.field.once() && s.chunked:
		return 0, malformed("%s is among the trailers (section 6.5.1 of RFC 9110)", fieldNames[s.field])
	case s.field.once() && s.seen[s.field]:
		return 0, malformed("%s is present twice", fieldNames[s.field])
	}
	s.seen[s.field] = true
	s.phase, s.size, s.value = fieldValue, 0, s.value[:0]
	return n + 1, nil
}

func fieldOf(name []byte) field {
	for i := host; i < fields; i++ {
		if len(name) == len(fieldNames[i]) && bytes.EqualFold(name, []byte(fieldNames[i])) {
			return i
		}
	}
	return other
}

// endValue ends a field whose value goes on to p[n].
func (s *scanner) endValue(p []byte, n int) (int, *SyntaxError) {
	if n == len(p) {
		return n, nil
	}
	if p[n] != '\r' {
		return 0, malformed("a field's value has a control character, or a line does not end in CR LF")
	}
	s.endLine(fieldLine)
	value := bytes.Trim(s.text(), " \t")
	switch {
	case s.chunked: // a trailer
	case s.field == host:
		return n + 1, s.readHost()
	case s.field == expect && (s.size > len(s.word) || len(value) > 0 && !bytes.EqualFold(value, []byte("100-continue"))):
		return 0, &SyntaxError{Status: http.StatusExpectationFailed, reason: "Expect is not 100-continue (RFC 9110 section 10.1.1)"}
	case s.field == trailer:
		s.badTrailer = s.badTrailer || namesFraming(s.value)
	case s.field == contentLength:
		return n + 1, s.readLength(value)
	case s.field == transferEncoding && !bytes.EqualFold(value, []byte("chunked")):
		return 0, malformed("Transfer-Encoding is not chunked alone (section 6.1)")
	}
	return n + 1, nil
}

// readHost checks the value of Host as net/http does, and, beside a target in absolute-form, by checkHost: net/http
// drops that Host.
func (s *scanner) readHost() *SyntaxError {
	value := bytes.Trim(s.value, " \t")
	if !httpguts.ValidHostHeader(string(value)) {
		return malformed("Host is not a host with or without a port (section 3.2)")
	}
	if s.originForm || s.checkHost == nil {
		return nil
	}
	if err := s.checkHost(string(value)); err != nil {
		return &SyntaxError{Status: http.StatusBadRequest, Err: err, reason: err.Error()}
	}
	return nil
}

// namesFraming reports whether a Trailer field names a field that net/http refuses among the trailers.
func namesFraming(value []byte) bool {
	for name := range bytes.SplitSeq(value, []byte(",")) {
		name = bytes.Trim(name, " \t")
		for _, f := range []field{contentLength, transferEncoding, trailer} {
			if bytes.EqualFold(name, []byte(fieldNames[f])) {
				return true
			}
		}
	}
	return false
}

// readLength reads 1*DIGIT of at most eighteen digits, which cannot overflow.
func (s *scanner) readLength(digits []byte) *SyntaxError {
	if len(digits) == 0 || len(digits) > 18 {
		return malformed("Content-Length is not a number of bytes")
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return malformed("Content-Length has other characters than digits")
		}
		s.left = s.left*10 + uint64(c-'0')
	}
	return nil
}

// endFields checks the fields of a complete head and determines what follows it (section 6.3), or ends the trailers.
func (s *scanner) endFields() *SyntaxError {
	long, coded := s.seen[contentLength], s.seen[transferEncoding]
	switch {
	case s.chunked:
		s.endLine(blank)
		return nil
	case coded && long:
		return malformed("Content-Length is present beside Transfer-Encoding (section 6.3)")
	case coded && s.http10:
		return malformed("Transfer-Encoding is present in HTTP/1.0 (section 6.1)")
	case !s.http10 && !s.connect && !s.seen[host]:
		return malformed("Host is missing (section 3.2)")
	case coded && s.badTrailer:
		return malformed("Trailer names a field that must be in the header (section 6.5.1 of RFC 9110)")
	case s.connect:
		s.endLine(passThrough)
	case coded:
		s.endLine(chunkSize)
	case s.left > 0:
		s.endLine(content)
	default:
		s.endLine(blank)
	}
	s.heads++
	return nil
}

// takeChunkLine reads chunk-size [ chunk-ext ] CR (section 7.1). A size has fifteen digits at most, so it cannot
// overflow.
func (s *scanner) takeChunkLine(p []byte) (int, *SyntaxError) {
	if s.phase == chunkExt {
		n := span(p, isText)
		if n < len(p) && p[n] != '\r' {
			return 0, malformed("a chunk's extension has a control character, or its line does not end in CR LF")
		}
		if n < len(p) {
			s.endSize()
			n++
		}
		return n, nil
	}
	digit, isHex := hexDigit(p[0])
	switch {
	case isHex && s.size < 15:
		s.left = s.left<<4 | digit
		s.size++
	case s.size > 0 && p[0] == ';':
		s.phase = chunkExt
	case s.size > 0 && p[0] == '\r':
		s.endSize()
	default:
		return 0, malformed("a chunk's size is not a hexadecimal number, or is too large")
	}
	return 1, nil
}

// endSize ends a chunk's line. The content follows, or, after the last chunk, the trailers.
func (s *scanner) endSize() {
	if s.left > 0 {
		s.endLine(chunkData)
		return
	}
	s.endLine(fieldLine)
}

func hexDigit(c byte) (uint64, bool) {
	switch {
	case '0' <= c && c <= '9':
		return uint64(c - '0'), true
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return uint64(c|0x20-'a') + 10, true
	}
	return 0, false
}

// run reads bytes of one set into the word.
func (s *scanner) run(p []byte, set byteSet) int {
	n := span(p, set)
	copy(s.word[min(s.size, len(s.word)):], p[:n])
	s.size = min(s.size+n, len(s.word)+1)
	return n
}

// text returns the word, or nil if it was too long for a known one.
func (s *scanner) text() []byte {
	if s.size > len(s.word) {
		return nil
	}
	return s.word[:s.size]
}

// byteSet is a set of bytes.
type byteSet byte

const (
	isToken  byteSet = 1 << iota // tchar (RFC 9110 section 5.6.2)
	isTarget                     // visible, or not ASCII: net/http percent-encodes what a target may not contain
	isText                       // of a field's value (RFC 9110 section 5.5)
)

var byteSets = func() (t [256]byteSet) {
	for c := range t {
		switch {
		case c == '\t' || c == ' ':
			t[c] = isText
		case c > ' ' && c != 0x7f:
			t[c] = isText | isTarget
		}
	}
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") {
		t[c] |= isToken
	}
	return t
}()

// span returns how many bytes at the beginning of p are in the set.
func span(p []byte, want byteSet) int {
	for i, c := range p {
		if byteSets[c]&want == 0 {
			return i
		}
	}
	return len(p)
}
