package proxy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/dunglas/httpsfv"
)

// ownName is our name in Proxy-Status.
const ownName = "robotsproxy"

// dropOwnStatus removes from Proxy-Status (RFC 9209) the members that have our name: an origin's answer does not speak for
// us. Other members pass. A line that is no list passes unless it could be taken for ours.
func dropOwnStatus(h http.Header) {
	lines := h["Proxy-Status"]
	if len(lines) == 0 {
		return
	}
	var others []string
	for _, line := range lines {
		if line = othersStatus(line); line != "" {
			others = append(others, line)
		}
	}
	h["Proxy-Status"] = others
	if len(others) == 0 {
		delete(h, "Proxy-Status")
	}
}

// othersStatus returns a line of Proxy-Status without the members that have our name.
func othersStatus(line string) string {
	list, err := httpsfv.UnmarshalList([]string{line})
	if err != nil {
		if resemblesOurs(line) {
			return ""
		}
		return line
	}
	others := slices.DeleteFunc(slices.Clone(list), isOurs)
	if len(others) == len(list) {
		return line
	}
	line, err = httpsfv.Marshal(others)
	if err != nil {
		return ""
	}
	return line
}

// isOurs reports whether a member is named after us. A name is a token or a string (RFC 9209 section 2).
func isOurs(m httpsfv.Member) bool {
	switch m := m.(type) {
	case httpsfv.Item:
		return strings.EqualFold(strings.TrimSpace(fmt.Sprint(m.Value)), ownName)
	case httpsfv.InnerList:
		return slices.ContainsFunc(m.Items, func(i httpsfv.Item) bool { return isOurs(i) })
	}
	return false
}

// resemblesOurs reports whether our name can be read in s, whatever stands between its letters.
func resemblesOurs(s string) bool {
	letters := strings.Map(func(c rune) rune {
		if 'a' <= c && c <= 'z' {
			return c
		}
		return -1
	}, strings.ToLower(s))
	return strings.Contains(letters, ownName)
}
