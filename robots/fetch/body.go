package fetch

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

// readFile reads the body of a 2xx response into a.
func (f *Fetcher) readFile(at *attempt, a *Answer, resp *http.Response) error {
	if err := at.beginBody(); err != nil {
		return err
	}
	defer at.queue.EndBody()
	data, err := f.readBody(resp)
	resp.Body.Close() // end the visit before the wait for Parse
	if err != nil {
		return err
	}
	a.ContentType = short(resp.Header.Get("Content-Type"))
	a.ETag, a.LastModified = short(resp.Header.Get("ETag")), short(resp.Header.Get("Last-Modified"))
	a.setBody(data, f.options.MaxSize)
	if isHTML(data) {
		a.Flags |= WebPage
	}
	f.setFound(a, resp.Header)
	return at.parse(a)
}

// readBody reads one byte more than MaxSize, after decoding, so that setBody can tell a longer file.
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

// setBody copies at most maxSize bytes of data, which may have a much larger capacity.
func (a *Answer) setBody(data []byte, maxSize int) {
	a.Truncated = len(data) > maxSize
	a.Body = bytes.Clone(data[:min(len(data), maxSize)])
	sum := sha256.Sum256(a.Body)
	a.SHA256 = hex.EncodeToString(sum[:])
}

// drain reads a short body that does not count, so that the connection can be reused.
func drain(body io.Reader) { _, _ = io.CopyN(io.Discard, body, 64<<10) }

var errCoding = errors.New("the body has a content coding that was not asked for")

// decoded returns the body of resp without its content coding. Limit is the number of decoded bytes that will be read.
func decoded(resp *http.Response, limit int64) (io.Reader, error) {
	switch coding := strings.ToLower(strings.Join(resp.Header.Values("Content-Encoding"), ", ")); coding {
	case "", "identity":
		return resp.Body, nil
	case "gzip", "x-gzip":
		// Without this limit a body of empty gzip members could be endless.
		const overhead = 64 << 10
		return gunzip(io.LimitReader(resp.Body, limit+overhead))
	default:
		return nil, fmt.Errorf("%w: %q", errCoding, coding)
	}
}

// gunzip decodes body. Some servers label an empty body as gzip, so that is no error.
func gunzip(body io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(body)
	if _, err := buffered.Peek(1); err == io.EOF {
		return http.NoBody, nil
	}
	return gzip.NewReader(buffered)
}

// isHTML reports whether body starts with a tag, a comment or a declaration. No line of a robots.txt starts so. The
// Content-Type does not help: many robots.txt files are sent as text/html.
func isHTML(body []byte) bool {
	const bom = "\xef\xbb\xbf"
	head := bytes.TrimLeft(bytes.TrimPrefix(body, []byte(bom)), " \t\r\n\f")
	return len(head) > 1 && head[0] == '<' && (head[1] == '!' || head[1] == '?' || head[1]|0x20-'a' < 26)
}
