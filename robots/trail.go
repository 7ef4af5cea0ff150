package robots

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/robotsproxy/robotsproxy/origin"
)

// trail is the way of a fetch over redirects, up to the request that is made now.
type trail struct {
	urls   []string
	to     origin.Origin // of the last
	target string        // of the last: path and query
	homes  []string      // hosts whose /robots.txt is among urls: they may say where else it is
	page   bool          // the last is a page of another host
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
	t.urls, t.to, t.target = append(t.urls, u), o, parsed.RequestURI()
	home := slices.Contains(t.homes, o.Host())
	t.page = !home && t.target != robotsPath
	t.pages = t.pages || t.page
	if !home && !t.page {
		t.homes = append(t.homes, o.Host())
	}
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
	t := &trail{homes: []string{s.Origin.Host()}}
	for _, u := range s.Redirects {
		if err := t.add(u); err != nil {
			return true // nobody can say
		}
	}
	return t.pages
}
