package proxy

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/browsertest"
	"github.com/robotsproxy/robotsproxy/policy"
)

// The page of a refusal fits each screen in both colour schemes, and axe finds nothing.
func TestRefusalInBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("it loads the page of each reason")
	}
	pages := map[string]*refusal{"rule": refused(t, longFile, 6), "long": refused(t, longFile, 6)}
	facts := pages["long"].facts()
	facts.URL = "http://a.example/private/" + strings.Repeat("averylongnamewithoutabreak", 30)
	for reason := range classes {
		if reason == policy.ReasonAuth || reason == policy.ReasonClientLeft {
			continue // the browser asks for a password, or has left
		}
		ref := &refusal{Reason: reason, Status: http.StatusOK} // a browser reports other statuses as faults
		ref.complete(0)
		pages[string(reason)] = ref
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ref := pages[r.URL.Path[1:]]; ref != nil {
			resp := ref.response(r, "01j901p8tru0c")
			for name, values := range resp.Header {
				w.Header()[name] = values
			}
			_, _ = fmt.Fprint(w, writtenBody(t, resp))
		}
	}))
	t.Cleanup(server.Close)
	tab := browsertest.Open(t)
	for _, width := range []int64{1440, 768, 390} {
		for _, scheme := range []browsertest.Scheme{browsertest.Light, browsertest.Dark} {
			tab.View(width, scheme)
			for name := range pages {
				if width != 390 && name != "rule" {
					continue
				}
				t.Run(fmt.Sprintf("%d/%s/%s", width, scheme, name), func(t *testing.T) {
					tab.For(t)
					tab.Load(server.URL + "/" + name)
					tab.Check()
				})
			}
		}
	}
}

func writtenBody(t *testing.T, resp *http.Response) string {
	t.Helper()
	var b strings.Builder
	if err := resp.Write(&b); err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(b.String(), "\r\n\r\n")
	return body
}
