// Package style has the stylesheet that all pages of robotsproxy share: the dashboard, the refusal of a request and the
// set-up of a client. Both colour schemes come from the same rules.
//
//	h.Set("Content-Security-Policy", "default-src 'none'; style-src "+style.Source)
package style

import (
	"crypto/sha256"
	_ "embed" // the stylesheet
	"encoding/base64"
	"html/template"
)

// Sheet is the stylesheet.
//
//go:embed style.css
var Sheet string

// CSS is Sheet for the style element of a template, which contains nothing else.
var CSS = template.CSS(Sheet)

// Source permits a style element with Sheet in a Content-Security-Policy (CSP Level 3 section 2.3.1).
var Source = func() string {
	sum := sha256.Sum256([]byte(Sheet))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}()
