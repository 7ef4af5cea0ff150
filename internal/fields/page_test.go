package fields

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"io"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
)

func TestPageUsage(t *testing.T) {
	for _, row := range []struct{ name, page, want string }{
		{"nothing", "<title>x</title><p>text", ""},
		{"robots", `<head><meta name="robots" content="noai, NoIndex, max-snippet:20">`, "robots=noai,noindex"},
		{"two of them", `<meta content=noai name=ROBOTS /><META NAME='robots' CONTENT='noindex'>`, "robots=noai,noindex"},
		{"for this crawler", `<meta name="newsbot" content="nofollow, noai"><meta name="otherbot" content="noindex">`, "robots=newsbot:noai,newsbot:nofollow"},
		{"TDMRep", `<meta name="tdm-reservation" content="1"><meta name="tdm-policy" content="https://a.example/p.json">`, "tdm-policy=https://a.example/p.json tdm-reservation=1"},
		{"entities", `<meta name="robots" content="no&#97;i">`, "robots=noai"},
		{"after the head", `<head></head><meta name="robots" content="noai">`, ""},
		{"in the body", `<body><meta name="robots" content="noai">`, ""},
		{"in a comment", `<!-- <meta name="robots" content="noai"> -->`, ""},
		{"in a script", `<script>"<meta name='robots' content='noai'>"</script>`, ""},
		{"broken off", `<meta name="robots" content="noai"><meta name="robots" content="noind`, "robots=noai"},
		{"without a name", `<meta charset="utf-8"><meta property="robots" content="noai"><meta>`, ""},
		{"beyond the limit", strings.Repeat("<link>", MaxPage/6+1) + `<meta name="robots" content="noai">`, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			for coding, encode := range codings {
				got := strings.TrimPrefix(UsageText("html", PageUsage(encode(row.page), coding, "NewsBot")), "html: ")
				if got != row.want {
					t.Errorf("%q: got %s\nwant %s", coding, got, row.want)
				}
			}
		})
	}
}

// codings encode a text. The last bytes of each coding are missing, as if a limit had cut them.
var codings = map[string]func(string) []byte{
	"": func(s string) []byte { return []byte(s) },
	"gzip": func(s string) []byte {
		return encoded(s, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }, 8)
	},
	"deflate": func(s string) []byte {
		return encoded(s, func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }, 4)
	},
	"br": func(s string) []byte {
		return encoded(s, func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) }, 0)
	},
}

func encoded(text string, coding func(io.Writer) io.WriteCloser, missing int) []byte {
	var b bytes.Buffer
	w := coding(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.Bytes()[:b.Len()-missing]
}

func TestPageInAnotherCoding(t *testing.T) {
	const page = `<meta name="robots" content="noai">`
	for _, coding := range []string{"zstd", "gzip, br", "gzip", "deflate", "br"} { // the last ones are none of this
		if got := PageUsage([]byte(page), coding, ""); got != nil {
			t.Errorf("%s: %q", coding, got)
		}
	}
}

// A small body that expands without end is read to the limit only.
func TestPageThatExpands(t *testing.T) {
	page := encoded(strings.Repeat(" ", 1<<26)+`<meta name="robots" content="noai">`, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }, 0)
	if got := PageUsage(page, "gzip", ""); got != nil {
		t.Errorf("%q", got)
	}
}

func FuzzPageUsage(f *testing.F) {
	f.Add([]byte(`<head><meta name="robots" content="noai, x: noindex"><meta name="tdm-policy" content="https://u:p@a.example/">`), "")
	for coding, encode := range codings {
		f.Add(encode(`<head><meta name="robots" content="noai">`), coding)
	}
	f.Fuzz(func(t *testing.T, page []byte, coding string) {
		for _, p := range PageUsage(page, coding, "newsbot") {
			if len(p) > maxPreference || strings.ContainsAny(p, " ;\n") {
				t.Errorf("%q", p)
			}
		}
	})
}
