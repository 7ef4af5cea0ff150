package robots

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/robotsproxy/robotsproxy/origin"
)

// errScheme is for a redirect to what is not the web: a file of ours, for example.
var errScheme = errors.New("a redirect leads to a scheme that is not HTTP")

// location returns the URL where resp sends us. It is empty where there is none: no redirect, or one to nothing that could
// be. Its error is errScheme.
func location(resp *http.Response) (string, error) {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return "", nil
	}
	next, err := resp.Location()
	if err != nil {
		return "", nil
	}
	if next.Scheme != "http" && next.Scheme != "https" {
		return "", fmt.Errorf("%w: %.20q", errScheme, next.Scheme)
	}
	o, err := origin.FromURL(next)
	if err != nil {
		return "", nil
	}
	clean := url.URL{Scheme: o.Scheme(), Host: o.Authority(), Path: next.Path, RawPath: next.RawPath, RawQuery: next.RawQuery}
	return clean.String(), nil // without userinfo and fragment
}
