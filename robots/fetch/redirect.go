package fetch

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/robotsproxy/robotsproxy/origin"
)

const robotsPath = "/robots.txt"

// errBadTarget is the error of a redirect to a URL that cannot be requested. Its file is as unknown as that
// of an origin that does not answer.
var errBadTarget = errors.New("a redirect leads to a URL that is not HTTP")

// location returns the URL to which resp redirects, without userinfo and fragment. It is empty if resp is not a
// redirect or has no Location.
func location(resp *http.Response) (string, error) {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect,
		http.StatusPermanentRedirect:
	default:
		return "", nil
	}
	next, err := resp.Location()
	if errors.Is(err, http.ErrNoLocation) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("%w: %.200s", errBadTarget, err)
	}
	o, err := origin.FromURL(next)
	if err != nil {
		return "", fmt.Errorf("%w: %.200s", errBadTarget, err)
	}
	clean := url.URL{
		Scheme: o.Scheme(), Host: o.Authority(), Path: next.Path, RawPath: origin.RawPath(next), RawQuery: next.RawQuery,
	}
	return clean.String(), nil
}

// trail is the list of the URLs that a fetch requests.
type trail struct {
	urls   []string
	to     origin.Origin // of the last URL
	target string        // path and query of the last URL
	page   bool          // another host, or a page, redirects to the last URL, and that is a page
	pages  bool          // page was true for one of urls
}

// add appends u, which is robotsPath of an origin or a result of location.
func (t *trail) add(u string) error {
	parsed, err := url.Parse(u)
	if err != nil {
		return fmt.Errorf("%w: %.200s", errBadTarget, err)
	}
	o, err := origin.FromURL(parsed)
	if err != nil {
		return fmt.Errorf("%w: %.200s", errBadTarget, err)
	}
	// A host may say where on it its robots.txt is. Another host, or a page, may not.
	within := !t.page && origin.Key(o.Host()) == origin.Key(t.to.Host())
	t.urls, t.to, t.target = append(t.urls, u), o, parsed.RequestURI()
	t.page = !within && t.target != robotsPath
	t.pages = t.pages || t.page
	return nil
}

// explain adds the target of the last redirect to a *RefusedError, without its query, which may contain secrets. It
// returns other errors unchanged.
func (t *trail) explain(err error) error {
	if !errors.As(err, new(*RefusedError)) {
		return err
	}
	path, query, _ := strings.Cut(t.target, "?")
	if query != "" {
		path += "?..."
	}
	return fmt.Errorf("it redirects to %.500s, and %w", t.to.String()+path, err)
}

// FromPage reports whether a redirect to a page of another host led to a: see Hop.Page.
func (a *Answer) FromPage() bool {
	t := &trail{to: a.Origin}
	for _, u := range a.Redirects {
		if err := t.add(u); err != nil {
			return true // not known
		}
	}
	return t.pages
}
