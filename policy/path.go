package policy

import (
	"bytes"
	"slices"
	"strings"
)

// reading is a way in which servers split a path into segments. The zero value is that of RFC 3986.
type reading struct {
	slashes    bool // %2F, %5C and \ separate segments, as in nginx (%2F) and IIS
	parameters bool // a dot segment may have parameters ("..;x=y"), as in Tomcat
	whole      bool // ".." removes everything up to a literal slash
}

// readings are tried in order. Readings that agree on a path yield the same form, which is judged once.
var readings = []reading{
	{},
	{parameters: true},
	{slashes: true},
	{slashes: true, parameters: true},
	{slashes: true, parameters: true, whole: true},
}

// otherForms returns the forms in which a server may read target, except the written one: with dot segments removed
// (RFC 3986 section 5.2.4), with each run of slashes merged, and with both. An encoded slash and a backslash differ
// from a slash (RFC 9309 section 2.2.2), except beside a dot segment: nginx reads "/a/..%2Fb" as "/b".
func otherForms(target string) []string {
	path, query := target, ""
	if i := strings.IndexByte(target, '?'); i >= 0 {
		path, query = target[:i], target[i:]
	}
	if !ambiguous(path) {
		return nil // most paths
	}
	var forms []string
	add := func(form string) {
		if form += query; form != target && !slices.Contains(forms, form) {
			forms = append(forms, form)
		}
	}
	for _, r := range readings {
		switch {
		case !r.matters(path):
		case r.plain(path) == len(path):
			add(mergeSlashes(path))
		default:
			form := r.removeDots(path, false)
			add(form)
			add(mergeSlashes(form))
			add(mergeSlashes(r.removeDots(path, true)))
		}
	}
	return forms
}

// matters reports whether r may read path differently from the readings before it.
func (r reading) matters(path string) bool {
	return (!r.slashes || strings.ContainsAny(path, `%\`)) && (!r.parameters || r.whole || strings.Contains(path, ";"))
}

// ambiguous reports whether path may have other forms: it has a doubled slash, or a segment that begins with a dot.
func ambiguous(path string) bool {
	for i := range len(path) {
		n := slashLen(path[i:])
		if n == 0 {
			continue
		}
		after := path[i+n:]
		if beginsWithDot(after) || path[i] == '/' && strings.HasPrefix(after, "/") {
			return true
		}
	}
	return false
}

func beginsWithDot(s string) bool {
	return strings.HasPrefix(s, ".") || len(s) >= 3 && strings.EqualFold(s[:3], "%2e")
}

// maxDots is the maximum number of segments that begin with a dot; Judge refuses a target with more. Real paths have
// far fewer. A header of 64 KiB can contain 20,000, and otherForms would take several milliseconds for them.
const maxDots = 1000

// hasManyDots reports whether the path of target has more than maxDots segments that begin with a dot.
func hasManyDots(target string) bool {
	path, _, _ := strings.Cut(target, "?")
	dots := 0
	for i := 0; i < len(path) && dots <= maxDots; i++ {
		if n := slashLen(path[i:]); n > 0 && beginsWithDot(path[i+n:]) {
			dots++
		}
	}
	return dots > maxDots
}

// mayBeSlash reports whether c may begin a slash in any spelling.
func mayBeSlash(c byte) bool { return c == '/' || c == '\\' || c == '%' }

// slashLen returns the length of the slash at the start of s, in any spelling, or 0 if s does not begin with one.
func slashLen[T string | []byte](s T) int {
	switch {
	case s[0] == '/' || s[0] == '\\':
		return 1
	case len(s) >= 3 && s[0] == '%' && (s[1] == '2' && s[2]|0x20 == 'f' || s[1] == '5' && s[2]|0x20 == 'c'):
		return 3
	}
	return 0
}

// removeDots returns path, which begins with a slash, without its dot segments. The slashes on both sides of a dot
// segment become one "/", however they are written; all others stay. If merge is true, ".." also removes the empty
// segments before it, as on servers that merge runs of slashes first.
func (r reading) removeDots(path string, merge bool) string {
	kept := make([]byte, 0, len(path))
	afterDots := false
	for len(path) > 0 {
		if n := r.plain(path); n > 0 {
			slash := slashLen(path)
			if afterDots {
				kept = append(append(kept, '/'), path[slash:n]...)
			} else {
				kept = append(kept, path[:n]...)
			}
			afterDots, path = false, path[n:]
			continue
		}
		_, name, rest := r.first(path)
		if r.dots(name) == ".." {
			kept = r.up(kept, merge)
		}
		afterDots, path = true, rest
	}
	if afterDots {
		kept = append(kept, '/') // "/a/." and "/a/b/.." name the folder "/a/"
	}
	return string(kept)
}

// plain returns the length of the leading segments of path that are not dot segments, with their slashes.
func (r reading) plain(path string) int {
	n := 0
	for n < len(path) {
		slash, name, _ := r.first(path[n:])
		if r.dots(name) != "" {
			return n
		}
		n += len(slash) + len(name)
	}
	return n
}

// first splits path into its first slash, the segment after it, and the rest.
func (r reading) first(path string) (slash, name, rest string) {
	n := slashLen(path)
	end := n
	for end < len(path) && !(mayBeSlash(path[end]) && r.divides(path[end:])) {
		end++
	}
	return path[:n], path[n:end], path[end:]
}

// divides reports whether s begins with a slash that separates segments.
func (r reading) divides(s string) bool {
	return s[0] == '/' || r.slashes && slashLen(s) > 0
}

// up returns kept without its last segment.
func (r reading) up(kept []byte, merge bool) []byte {
	for {
		i := r.lastSlash(kept)
		empty := i >= 0 && i+slashLen(kept[i:]) == len(kept)
		kept = kept[:max(i, 0)]
		if !merge || !empty {
			return kept
		}
	}
}

// lastSlash returns the index of the slash before the last segment of kept, or -1 if kept is empty.
func (r reading) lastSlash(kept []byte) int {
	if !r.slashes || r.whole {
		return bytes.LastIndexByte(kept, '/')
	}
	i := len(kept) - 1
	for i >= 0 && slashLen(kept[i:]) == 0 {
		i--
	}
	return i
}

// dots returns "." or ".." if the segment is one of them in any spelling, else "". An encoded dot is a dot (RFC 3986
// section 6.2.2.2).
func (r reading) dots(name string) string {
	if name == "" || name[0] != '.' && name[0] != '%' {
		return ""
	}
	if r.parameters {
		name, _, _ = strings.Cut(name, ";")
	}
	if strings.Contains(name, "%") && len(name) <= len("%2e%2e") {
		name = strings.ReplaceAll(strings.ToLower(name), "%2e", ".")
	}
	if name == "." || name == ".." {
		return name
	}
	return ""
}

// mergeSlashes replaces each run of slashes in path with one.
func mergeSlashes(path string) string {
	if !strings.Contains(path, "//") {
		return path
	}
	merged := make([]byte, 0, len(path))
	for {
		i := strings.Index(path, "//")
		if i < 0 {
			return string(append(merged, path...))
		}
		merged = append(merged, path[:i+1]...)
		path = strings.TrimLeft(path[i:], "/")
	}
}
