package robots

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/robotsproxy/robotsproxy/origin"
)

// trail is the way of a fetch over redirects, up to the request that is made now.
type trail struct {
	urls   []string
	to     origin.Origin // of the last
	target string        // of the last: path and query
	page   bool          // the last is a page to which another host, or a page, redirects
	pages  bool          // such a page is among urls
}

// add goes on to u, which location has written.
func (t *trail) add(u string) error {
	parsed, err := url.Parse(u)
	if err != nil {
		return fmt.Errorf("%w: %.200s", errAstray, err)
	}
	o, err := origin.FromURL(parsed)
	if err != nil {
		return fmt.Errorf("%w: %.200s", errAstray, err)
	}
	// A host may say where else its robots.txt is. Neither another host nor a page may.
	within := !t.page && origin.Key(o.Host()) == origin.Key(t.to.Host())
	t.urls, t.to, t.target = append(t.urls, u), o, parsed.RequestURI()
	t.page = !within && t.target != robotsPath
	t.pages = t.pages || t.page
	return nil
}

const robotsPath = "/robots.txt"

// refused returns err, with where the last redirect leads if that may not be followed. The query may hold secrets.
func (t *trail) refused(err error) error {
	if !errors.As(err, new(*RefusedError)) {
		return err
	}
	path, query, _ := strings.Cut(t.target, "?")
	if query != "" {
		path += "?..."
	}
	return fmt.Errorf("it redirects to %.500s, and %w", t.to.String()+path, err)
}

// FromPage reports whether a redirect to a page of another host led to s: see Hop.Page.
func (s *Snapshot) FromPage() bool {
	t := &trail{to: s.Origin}
	for _, u := range s.Redirects {
		if err := t.add(u); err != nil {
			return true // nobody can say
		}
	}
	return t.pages
}
