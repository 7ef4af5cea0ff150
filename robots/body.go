package robots

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// readBody reads one octet beyond the limit, after decoding: a compressed file may not be larger than a plain one.
func (f *Fetcher) readBody(resp *http.Response) ([]byte, error) {
	body, err := decoded(resp, int64(f.options.MaxSize))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(body, int64(f.options.MaxSize)+1))
	if err != nil {
		return nil, fmt.Errorf("reading the body, after %d octets: %w", len(data), err)
	}
	return data, nil
}

// setBody keeps the octets that count, with their hash, and not the room that was made for more of them.
func (s *Snapshot) setBody(data []byte, maxSize int) {
	s.Truncated = len(data) > maxSize
	s.Body = bytes.Clone(data[:min(len(data), maxSize)])
	sum := sha256.Sum256(s.Body)
	s.SHA256 = hex.EncodeToString(sum[:])
}

// drain reads a little of a body that does not count, so that the connection serves for the page that is asked for next.
func drain(body io.Reader) { _, _ = io.CopyN(io.Discard, body, 64<<10) }

// errCoding is for a body in a coding that was not asked for and is not understood.
var errCoding = errors.New("the body has a content coding that was not asked for")

func decoded(resp *http.Response, limit int64) (io.Reader, error) {
	switch coding := strings.ToLower(strings.Join(resp.Header.Values("Content-Encoding"), ", ")); coding {
	case "", "identity":
		return resp.Body, nil
	case "gzip", "x-gzip":
		// What is longer than its own content could be holds none: empty gzip members without end, for example.
		const overhead = 64 << 10
		return gunzip(io.LimitReader(resp.Body, limit+overhead))
	default:
		return nil, fmt.Errorf("%w: %q", errCoding, coding)
	}
}

// gunzip lets an empty body be: servers say gzip of those too.
func gunzip(body io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(body)
	if _, err := buffered.Peek(1); err == io.EOF {
		return http.NoBody, nil
	}
	return gzip.NewReader(buffered)
}

// isHTML tells a web page by its beginning: that of a tag, a comment or a declaration, which no line of a robots.txt has.
// Its Content-Type tells nothing: many a true robots.txt is sent as text/html.
func isHTML(body []byte) bool {
	const bom = "\xef\xbb\xbf"
	head := bytes.TrimLeft(bytes.TrimPrefix(body, []byte(bom)), " \t\r\n\f")
	return len(head) > 1 && head[0] == '<' && (head[1] == '!' || head[1] == '?' || head[1]|0x20-'a' < 26)
}
