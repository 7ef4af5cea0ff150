package robots

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/robotsproxy/robotsproxy/origin"
)

// errAstray is for a redirect to what nobody can be asked for: a file of ours, a port that is none. What it hides is as
// unknown as what a dead host has.
var errAstray = errors.New("a redirect leads to what is no HTTP URL")

// location returns the URL where resp sends us. It is empty where resp is no redirect, or does not say where. Its error is
// errAstray.
func location(resp *http.Response) (string, error) {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return "", nil
	}
	next, err := resp.Location()
	if errors.Is(err, http.ErrNoLocation) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("%w: %.200s", errAstray, err)
	}
	o, err := origin.FromURL(next)
	if err != nil {
		return "", fmt.Errorf("%w: %.200s", errAstray, err)
	}
	clean := url.URL{Scheme: o.Scheme(), Host: o.Authority(), Path: next.Path, RawPath: next.RawPath, RawQuery: next.RawQuery}
	return clean.String(), nil // without userinfo and fragment
}
