package fields

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/http"
	"strings"

	"github.com/andybalholm/brotli"
	"golang.org/x/net/html"
)

// MaxPage is how much of an HTML page is read for preferences, in bytes, in its content coding and without it.
const MaxPage = 64 << 10

// IsPage reports whether the header of a response is that of an HTML page.
func IsPage(h http.Header) bool {
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	return kind == "text/html" || kind == "application/xhtml+xml"
}

// PageUsage returns the preferences in the head of an HTML page, of which page is the beginning: those of the meta
// elements robots, tdm-reservation and tdm-policy, and of that with the name of a crawler, its product token. coding is
// the value of Content-Encoding: gzip, br, deflate, or none. Other codings are not read.
func PageUsage(page []byte, coding, crawler string) (preferences []string) {
	r, err := decoded(page, coding)
	if err != nil {
		return nil
	}
	var tags []string
	for name, content := range metas(io.LimitReader(r, MaxPage)) {
		switch {
		case strings.EqualFold(name, "robots"):
			tags = append(tags, content)
		case crawler != "" && strings.EqualFold(name, crawler):
			tags = append(tags, crawler+":"+content)
		case strings.EqualFold(name, "tdm-reservation") && (content == "0" || content == "1"):
			preferences = append(preferences, "tdm-reservation="+content)
		case strings.EqualFold(name, "tdm-policy"):
			preferences = append(preferences, urlPreference("tdm-policy", content)...)
		}
	}
	return appendTags(preferences, "robots", robotsTags(tags))
}

// decoded returns page without its content coding (RFC 9110 section 8.4.1).
func decoded(page []byte, coding string) (io.Reader, error) {
	r := bytes.NewReader(page)
	switch strings.ToLower(strings.TrimSpace(coding)) {
	case "", "identity":
		return r, nil
	case "gzip", "x-gzip":
		return gzip.NewReader(r)
	case "deflate":
		return zlib.NewReader(r)
	case "br":
		return brotli.NewReader(r), nil
	}
	return bytes.NewReader(nil), nil
}

// metas yields the names and contents of the meta elements before the body of a page. The tokenizer takes time in
// proportion to the bytes that r has.
func metas(r io.Reader) func(yield func(name, content string) bool) {
	return func(yield func(name, content string) bool) {
		z := html.NewTokenizer(r)
		for {
			kind := z.Next()
			tag, attributes := z.TagName()
			switch {
			case kind == html.ErrorToken, kind == html.StartTagToken && string(tag) == "body", kind == html.EndTagToken && string(tag) == "head":
				return
			case kind != html.StartTagToken && kind != html.SelfClosingTagToken, string(tag) != "meta", !attributes:
				continue
			}
			if name, content := metaOf(z); name != "" && !yield(name, content) {
				return
			}
		}
	}
}

// metaOf returns the attributes name and content of the tag at which z is.
func metaOf(z *html.Tokenizer) (name, content string) {
	for more := true; more; {
		var key, value []byte
		key, value, more = z.TagAttr()
		switch string(key) {
		case "name":
			name = strings.TrimSpace(string(value))
		case "content":
			content = strings.TrimSpace(string(value))
		}
	}
	return name, content
}
