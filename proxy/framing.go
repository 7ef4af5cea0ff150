package proxy

import (
	"bytes"
	"fmt"
	"net/http"
)

// framing follows the requests on one connection by the letter of RFC 9112, so that it is certain where each begins and
// ends. net/http is kinder: it takes bare LF for a line's end, unfolds lines, and drops a Content-Length that stands
// beside Transfer-Encoding. What it mends, the next server may read otherwise, and then one of the two sees a request that
// the other never judged (section 11.2). So this is stricter, and looks at the octets before net/http does.
//
// It keeps no message, only a word of it: scan looks at each octet once and makes no garbage. The zero value stands before
// the first request.
type framing struct {
	phase phase
	after phase // behind the LF that is awaited
	size  int   // octets of the word, one more than there is room for where it was too long
	word  [24]byte

	octets int // of the head, the chunk's line or the trailers so far
	field  field
	known  [fields]bool // which fields the head has
	whole  bool         // the target is a whole URL, or none of a path
	named  []byte       // what Host says beside a whole URL
	old    bool         // HTTP/1.0; before a request line, that of the request before
	tunnel bool         // the method is CONNECT
	post   bool         // the method is POST; before a request line, that of the request before
	chunks bool         // inside a body in chunks
	left   uint64       // octets of the body, or of the chunk, to come
	excess int64        // octets around chunks beyond what their content is worth
	heads  int64        // complete heads so far

	checkHost func(host string) error // what Host may say beside a whole URL, which makes net/http forget it; nil: anything
}

// phase is what is awaited next.
type phase uint8

const (
	blank       phase = iota // a request line; behind a POST an empty line too, which old clients send (section 2.2)
	method                   // a request line
	target                   // the rest of it
	version                  // the rest of it
	fieldLine                // a field, or the empty line behind the last
	fieldName                // the rest of it
	fieldValue               // the rest of it
	lineFeed                 // the LF of a CRLF
	content                  // a body of known length
	chunkSize                // a chunk's length
	chunkExt                 // extensions behind it
	chunkData                // its octets
	chunkEnd                 // the CRLF behind them
	passThrough              // anything: it is no request any more
)

// field is one that takes part in framing.
type field uint8

const (
	other field = iota
	host
	contentLength
	transferEncoding
	fields // how many there are
)

var fieldNames = [fields]string{host: "host", contentLength: "content-length", transferEncoding: "transfer-encoding"}

const (
	maxHead    = maxHeaderBytes // octets of a request's head
	maxSection = 3 << 10        // octets of a chunk's line, and of all trailers, for which net/http has room for 4 KiB
	maxExcess  = 8 << 10        // half of what net/http takes; its error would look as if the origin had failed
)

// malformed is why octets are no request.
type malformed struct {
	status int
	why    string
	target error // why the request is for somebody else, or for nobody; nil: that is not what is wrong
	body   int64 // whose body it is in, counted from the first request of the connection; 0 where it is in a head
}

func (m *malformed) Error() string { return m.why }

func bad(format string, v ...any) *malformed {
	return &malformed{status: http.StatusBadRequest, why: fmt.Sprintf(format, v...)}
}

// scan reads on in p. It returns how many octets are sound, which is all of them unless there is a fault.
func (f *framing) scan(p []byte) (int, *malformed) {
	for i := 0; i < len(p); {
		line := f.phase != content && f.phase != chunkData && f.phase != passThrough
		n, m := f.take(p[i:])
		if line {
			f.octets += n
		}
		if m == nil {
			m = f.checkSize()
		}
		if m != nil {
			if f.chunks {
				m.body = f.heads
			}
			return i, m
		}
		i += n
	}
	return len(p), nil
}

// take reads some of p, which is not empty, in one phase.
func (f *framing) take(p []byte) (int, *malformed) {
	switch f.phase {
	case passThrough:
		return len(p), nil
	case content, chunkData:
		return f.skip(len(p)), nil
	case blank, lineFeed, chunkEnd:
		return f.takeEnd(p[0])
	case method, target, version:
		return f.takeRequestLine(p)
	case fieldLine, fieldName, fieldValue:
		return f.takeField(p)
	default:
		return f.takeChunkLine(p)
	}
}

// skip passes over octets of a body.
func (f *framing) skip(n int) int {
	if uint64(n) < f.left {
		f.left -= uint64(n)
		return n
	}
	n = int(f.left)
	if f.phase == chunkData {
		f.phase = chunkEnd
	} else {
		f.end()
	}
	return n
}

// end stands behind a complete request.
func (f *framing) end() {
	*f = framing{post: f.post, old: f.old, heads: f.heads, checkHost: f.checkHost}
}

// checkSize bounds what is not a body.
func (f *framing) checkSize() *malformed {
	switch {
	case f.chunks && f.octets > maxSection:
		return bad("a chunk's line or the trailers have more than %d octets", maxSection)
	case f.excess > maxExcess:
		return bad("the chunks have more octets around them than in them")
	case f.octets > maxHead:
		return &malformed{status: http.StatusRequestHeaderFieldsTooLarge, why: fmt.Sprintf("the header has more than %d octets", maxHead)}
	}
	return nil
}

// takeEnd reads what ends lines and chunks. Every line ends in CR LF: the leave of section 2.2 to take a bare LF is not used.
func (f *framing) takeEnd(c byte) (int, *malformed) {
	switch {
	case f.phase == lineFeed && c == '\n':
		f.begin(f.after)
	case f.phase == lineFeed:
		return 0, bad("a CR stands alone")
	case f.phase == blank && f.post && c == '\r':
		f.endLine(method)
	case f.phase == blank:
		f.phase = method
		return 0, nil
	case c == '\r':
		f.endLine(chunkSize)
	default:
		return 0, bad("a chunk is longer than its size says")
	}
	return 1, nil
}

// endLine awaits the LF of a line, and what follows it.
func (f *framing) endLine(after phase) { f.phase, f.after = lineFeed, after }

// begin enters the phase behind a line.
func (f *framing) begin(p phase) {
	f.phase, f.size = p, 0
	switch p {
	case blank: // the message is complete
		f.end()
	case chunkSize:
		f.chunks, f.octets, f.left = true, 0, 0
	case chunkData: // weighed as net/http does: a stream of single octets is fine
		around := int64(f.octets + len("\r\n"))
		f.excess = max(0, f.excess+around-16-2*int64(f.left))
	}
}

// takeRequestLine reads method SP request-target SP HTTP-version (section 3).
func (f *framing) takeRequestLine(p []byte) (int, *malformed) {
	if f.phase == version {
		return f.takeVersion(p[0])
	}
	set := isToken
	if f.phase == target {
		set = isTarget
		f.whole = f.whole || f.size == 0 && p[0] != '/'
	}
	n := f.run(p, set)
	if n == len(p) {
		return n, nil
	}
	if f.phase == method && f.size == 0 && otherProtocols[p[n]] != "" {
		return 0, bad("%s", otherProtocols[p[n]])
	}
	if p[n] != ' ' || f.size == 0 {
		return 0, bad("the first line is not a method, a target and a version with one space between them")
	}
	if f.phase == method {
		f.tunnel, f.post = string(f.text()) == http.MethodConnect, string(f.text()) == http.MethodPost
	}
	f.phase, f.size = f.phase+1, 0
	return n + 1, nil
}

// otherProtocols are told by their first octet, for who has mistaken what this is.
var otherProtocols = map[byte]string{
	0x04: "it is SOCKS, and this is an HTTP proxy",
	0x05: "it is SOCKS, and this is an HTTP proxy",
	0x16: "it is TLS, and HTTP in clear is spoken here: a proxy for https, too, is named by http://",
}

const versions = "HTTP/1."

func (f *framing) takeVersion(c byte) (int, *malformed) {
	switch {
	case f.size < len(versions) && c == versions[f.size]:
	case f.size == len(versions) && (c == '0' || c == '1'):
		f.old = c == '0'
	case f.size > len(versions) && c == '\r':
		f.endLine(fieldLine)
	case f.size >= len("HTTP/") && isVersion(c):
		return 0, &malformed{status: http.StatusHTTPVersionNotSupported, why: "the version is neither HTTP/1.0 nor HTTP/1.1"}
	default:
		return 0, bad("the first line does not end in a version and CR LF")
	}
	f.size++
	return 1, nil
}

func isVersion(c byte) bool { return c == '.' || c >= '0' && c <= '9' }

// takeField reads field-name ":" OWS field-value OWS (section 5) of the head or of the trailers.
func (f *framing) takeField(p []byte) (int, *malformed) {
	switch f.phase {
	case fieldLine:
		return f.takeFieldStart(p[0])
	case fieldName:
		return f.takeName(p)
	}
	if f.field > host {
		return f.endValue(p, f.run(p, isText))
	}
	n := span(p, isText) // the value is not ours to read
	if f.field == host && f.whole && f.checkHost != nil {
		f.named = append(f.named, p[:n]...)
	}
	return f.endValue(p, n)
}

func (f *framing) takeFieldStart(c byte) (int, *malformed) {
	switch c {
	case '\r':
		return 1, f.endFields()
	case ' ', '\t':
		return 0, bad("a line is folded, or white space stands before the first field (section 5.2)")
	}
	f.phase = fieldName
	return 0, nil
}

func (f *framing) takeName(p []byte) (int, *malformed) {
	n := f.run(p, isToken)
	if n == len(p) {
		return n, nil
	}
	if p[n] != ':' || f.size == 0 {
		return 0, bad("a field's name is no token with a colon right behind it (section 5.1)")
	}
	f.field = fieldOf(f.text())
	if f.field != other && f.known[f.field] {
		return 0, bad("%s stands there twice", fieldNames[f.field])
	}
	if f.field != other && f.chunks {
		return 0, bad("%s stands among the trailers (section 6.5.1 of RFC 9110)", fieldNames[f.field])
	}
	f.known[f.field] = true
	f.phase, f.size = fieldValue, 0
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
func (f *framing) endValue(p []byte, n int) (int, *malformed) {
	if n == len(p) {
		return n, nil
	}
	if p[n] != '\r' {
		return 0, bad("a field's value holds a control character, or a line does not end in CR LF")
	}
	f.endLine(fieldLine)
	value := bytes.Trim(f.text(), " \t")
	switch {
	case f.field == host && f.whole && f.checkHost != nil:
		return n + 1, f.readHost()
	case f.field == contentLength:
		return n + 1, f.readLength(value)
	case f.field == transferEncoding && !bytes.EqualFold(value, []byte("chunked")):
		return 0, bad("transfer-encoding is not chunked alone (section 6.1)")
	}
	return n + 1, nil
}

// readHost hears whether Host agrees with the target beside it.
func (f *framing) readHost() *malformed {
	err := f.checkHost(string(bytes.Trim(f.named, " \t")))
	if err == nil {
		return nil
	}
	return &malformed{why: err.Error(), target: err}
}

// readLength reads 1*DIGIT of at most eighteen digits, which cannot overflow.
func (f *framing) readLength(digits []byte) *malformed {
	if len(digits) == 0 || len(digits) > 18 {
		return bad("content-length is no number of octets")
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return bad("content-length is not made of digits alone")
		}
		f.left = f.left*10 + uint64(c-'0')
	}
	return nil
}

// endFields weighs the fields of a complete head and finds out what follows it (section 6.3), or ends the trailers.
func (f *framing) endFields() *malformed {
	long, coded := f.known[contentLength], f.known[transferEncoding]
	switch {
	case f.chunks:
		f.endLine(blank)
		return nil
	case coded && long:
		return bad("content-length stands beside transfer-encoding (section 6.3)")
	case coded && f.old:
		return bad("transfer-encoding stands in HTTP/1.0, which has none (section 6.1)")
	case !f.old && !f.tunnel && !f.known[host]:
		return bad("host is missing (section 3.2)")
	case f.tunnel:
		f.endLine(passThrough)
	case coded:
		f.endLine(chunkSize)
	case f.left > 0:
		f.endLine(content)
	default:
		f.endLine(blank)
	}
	f.heads++
	return nil
}

// takeChunkLine reads chunk-size [ chunk-ext ] CR (section 7.1). A size has fifteen digits at most, so it cannot overflow.
func (f *framing) takeChunkLine(p []byte) (int, *malformed) {
	if f.phase == chunkExt {
		n := span(p, isText)
		if n < len(p) && p[n] != '\r' {
			return 0, bad("a chunk's extension holds a control character, or its line does not end in CR LF")
		}
		if n < len(p) {
			f.endSize()
			n++
		}
		return n, nil
	}
	digit, isHex := hexDigit(p[0])
	switch {
	case isHex && f.size < 15:
		f.left = f.left<<4 | digit
		f.size++
	case f.size > 0 && p[0] == ';':
		f.phase = chunkExt
	case f.size > 0 && p[0] == '\r':
		f.endSize()
	default:
		return 0, bad("a chunk's size is no hexadecimal number, or too large a one")
	}
	return 1, nil
}

// endSize ends a chunk's line: its octets follow, or, behind the last chunk, the trailers.
func (f *framing) endSize() {
	if f.left > 0 {
		f.endLine(chunkData)
		return
	}
	f.known = [fields]bool{}
	f.endLine(fieldLine)
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

// run reads octets of one set into the word.
func (f *framing) run(p []byte, set octetSet) int {
	n := span(p, set)
	copy(f.word[min(f.size, len(f.word)):], p[:n])
	f.size = min(f.size+n, len(f.word)+1)
	return n
}

// text returns the word, or nothing where it was too long to be one that we know.
func (f *framing) text() []byte {
	if f.size > len(f.word) {
		return nil
	}
	return f.word[:f.size]
}

// octetSet is a set of octets.
type octetSet byte

const (
	isToken  octetSet = 1 << iota // tchar (RFC 9110 section 5.6.2)
	isTarget                      // visible, or beyond ASCII: net/http percent-encodes what may not stand in a target
	isText                        // what a field's value may hold (RFC 9110 section 5.5)
)

var octetSets = func() (t [256]octetSet) {
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

// span returns how many octets at p's beginning are in the set.
func span(p []byte, want octetSet) int {
	for i, c := range p {
		if octetSets[c]&want == 0 {
			return i
		}
	}
	return len(p)
}
