package rules

import (
	"slices"
	"strings"
)

// Field is a named line that is neither a rule nor a user-agent line, such as Content-Signal, Content-Usage, License or
// Sitemap. Unknown names are included.
type Field struct {
	Line  int
	Name  string // as written
	Value string
	Group Group // the group that it is in; zero before all groups
}

// Fields returns the fields with one of the names, in any case, or all fields if there are no names. They are in the
// order of the file.
func (r *Ruleset) Fields(names ...string) (fields []Field) {
	for i := range r.records {
		x := &r.records[i]
		name := r.name(x)
		if len(names) > 0 && !slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) }) {
			continue
		}
		fields = append(fields, Field{Line: int(x.line), Name: name, Value: r.value(x), Group: r.groupAt(x.line)})
	}
	return fields
}

// Sitemaps returns the values of the Sitemap lines, as written, in the order of the file. They apply to all agents
// (2.2.4). Fields returns them with their lines.
func (r *Ruleset) Sitemaps() (urls []string) {
	for i := range r.records {
		if x := &r.records[i]; x.key == keySitemap && x.valueLength > 0 {
			urls = append(urls, r.value(x))
		}
	}
	return urls
}

func (r *Ruleset) name(x *record) string { return r.arena[x.text : x.text+uint32(x.nameLength)] }

func (r *Ruleset) value(x *record) string {
	end := x.text + uint32(x.textLength)
	return r.arena[end-uint32(x.valueLength) : end]
}

// Usage is a Content-Usage line, the permitted uses of the resources below a path.
type Usage struct {
	Line        int
	Pattern     string // as in a rule; "" for all paths
	Preferences string // as written, as in "train-ai=n, search=y"
}

// ContentUsage returns the Content-Usage line that applies to a target, and whether there is one: in the agent's
// groups, the line with the longest pattern that matches, or the first of equal length.
func (a Agent) ContentUsage(target string) (best Usage, ok bool) {
	if !a.found() {
		return best, false
	}
	path := string(appendPath(nil, pathOf(target)))
	longest := -1
	for x := range a.records(keyContentUsage) {
		u := Usage{Line: int(x.line), Preferences: a.set.value(x)}
		if strings.HasPrefix(u.Preferences, "/") {
			u.Pattern, u.Preferences, _ = strings.Cut(u.Preferences, " ")
			u.Preferences = strings.TrimSpace(u.Preferences)
		}
		if octets, matches := matchPattern(u.Pattern, path); matches && octets > longest {
			best, longest = u, octets
		}
	}
	return best, longest >= 0
}

// matchPattern reports whether a pattern as written matches a path in normal form, and returns its length in octets.
func matchPattern(pattern, path string) (octets int, matched bool) {
	if pattern == "" {
		return 0, true
	}
	form, octets, ends := appendPattern(nil, []byte(pattern))
	literal, wild := string(form), ""
	if i := strings.IndexByte(literal, '*'); i >= 0 {
		literal, wild = literal[:i], literal[i:]
	}
	rest, ok := strings.CutPrefix(path, literal)
	switch {
	case !ok:
		return 0, false
	case wild == "":
		return octets, !ends || rest == ""
	}
	matched, _ = matchWildcards(wild, rest, ends)
	return octets, matched
}
