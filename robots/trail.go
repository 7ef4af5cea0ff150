package robots

import (
	"fmt"
	"net/url"
	"slices"

	"github.com/robotsproxy/robotsproxy/origin"
)

// trail is the way of a fetch over redirects, up to the request that is made now.
type trail struct {
	urls   []string
	to     origin.Origin // of the last
	target string        // of the last: path and query
	homes  []string      // hosts whose /robots.txt is among urls: they may say where else it is
	judged bool          // the last is a page of another host
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
	t.judged = !home && t.target != robotsPath
	t.pages = t.pages || t.judged
	if !home && !t.judged {
		t.homes = append(t.homes, o.Host())
	}
	return nil
}

const robotsPath = "/robots.txt"
