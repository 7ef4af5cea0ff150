package fields

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/dunglas/httpsfv"
)

// OwnName is the proxy's name in Proxy-Status.
const OwnName = "robotsproxy"

// DropOwnStatus removes from Proxy-Status (RFC 9209) the members that have the proxy's name, which an origin must not
// use. Other members pass. A line that is not a list passes unless it could be mistaken for the proxy's.
func DropOwnStatus(h http.Header) {
	lines := h["Proxy-Status"]
	if len(lines) == 0 {
		return
	}
	var others []string
	for _, line := range lines {
		if line = withoutOwn(line); line != "" {
			others = append(others, line)
		}
	}
	h["Proxy-Status"] = others
	if len(others) == 0 {
		delete(h, "Proxy-Status")
	}
}

// withoutOwn returns a line of Proxy-Status without the members that have the proxy's name.
func withoutOwn(line string) string {
	list, err := httpsfv.UnmarshalList([]string{line})
	if err != nil {
		if resemblesOwn(line) {
			return ""
		}
		return line
	}
	others := slices.DeleteFunc(slices.Clone(list), isOwnMember)
	if len(others) == len(list) {
		return line
	}
	line, err = httpsfv.Marshal(others)
	if err != nil {
		return ""
	}
	return line
}

// isOwnMember reports whether a member has the proxy's name, as a token or a string (RFC 9209 section 2).
func isOwnMember(m httpsfv.Member) bool {
	switch m := m.(type) {
	case httpsfv.Item:
		return strings.EqualFold(strings.TrimSpace(fmt.Sprint(m.Value)), OwnName)
	case httpsfv.InnerList:
		return slices.ContainsFunc(m.Items, func(i httpsfv.Item) bool { return isOwnMember(i) })
	}
	return false
}

// resemblesOwn reports whether the letters of s contain the proxy's name, with or without other characters between
// them.
func resemblesOwn(s string) bool {
	letters := strings.Map(func(c rune) rune {
		if 'a' <= c && c <= 'z' {
			return c
		}
		return -1
	}, strings.ToLower(s))
	return strings.Contains(letters, OwnName)
}
