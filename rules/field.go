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

// Licenses returns the values of the License lines (RSL 1.0), as written, in the order of the file. They
// apply to all agents.
func (r *Ruleset) Licenses() (urls []string) {
	if !r.stated {
		return nil
	}
	for i := range r.records {
		if x := &r.records[i]; x.key == keyLicense && x.valueLength > 0 {
			urls = append(urls, r.value(x))
		}
	}
	return urls
}

// Usage is a Content-Usage or Content-Signal line, the permitted uses of the resources below a path.
type Usage struct {
	Line        int
	Pattern     string // as in a rule; "" for all paths
	Preferences string // as written, as in "train-ai=n, search=y"
}

// ContentUsage returns the Content-Usage line that applies to a target, and whether there is one: in the agent's
// groups, the line with the longest pattern that matches, or the first of equal length.
func (a Agent) ContentUsage(target string) (best Usage, ok bool) {
	lines, ok := a.usages(keyContentUsage, target)
	if !ok || len(lines) == 0 {
		return best, false
	}
	return a.set.usageOf(lines[0]), true
}

// Stated is a line that states the permitted uses of a resource.
type Stated struct {
	Usage
	Signal bool   // a Content-Signal, not a Content-Usage
	Rule   string // the line as written, without its comment
	Group  Group
}

// UsesOf returns the lines that state the permitted uses of a target, in the agent's groups: the Content-Usage lines
// (draft-ietf-aipref-attach-05 section 3.1), then the Content-Signal lines (contentsignals.org). Of each field it
// returns those with the longest pattern that matches; the most restrictive of them applies. It is not ok if that takes
// too many steps, as for a verdict. It allocates nothing if the file has no such lines.
func (a Agent) UsesOf(target string) (lines []Stated, ok bool) {
	if !a.found() || !a.set.stated {
		return nil, !a.tooComplex
	}
	for _, k := range [...]key{keyContentUsage, keyContentSignal} {
		records, ok := a.usages(k, target)
		if !ok {
			return nil, false
		}
		for _, x := range records {
			lines = append(lines, Stated{
				Usage: a.set.usageOf(x), Signal: k == keyContentSignal,
				Rule: a.set.text(span{x.text, uint32(x.textLength)}), Group: a.set.groupAt(x.line),
			})
		}
	}
	return lines, true
}

// maxUsages is how many lines with one pattern count.
const maxUsages = 16

// usages returns the records of a kind with the longest pattern that matches a target.
func (a Agent) usages(k key, target string) (best []*record, ok bool) {
	if !a.found() {
		return nil, !a.tooComplex
	}
	path := string(appendPath(nil, pathOf(target)))
	longest, steps := -1, len(path)
	for x := range a.records(k) {
		octets, matches, more := matchPattern(a.set.usageOf(x).Pattern, path)
		if steps += blockSteps + more; steps > maxVerdictSteps {
			return nil, false
		}
		switch {
		case !matches || octets < longest:
		case octets > longest:
			best, longest = append(best[:0], x), octets
		case len(best) < maxUsages:
			best = append(best, x)
		}
	}
	return best, true
}

// usageOf returns a record of use. A path ends at the first space or tab.
func (r *Ruleset) usageOf(x *record) Usage {
	u := Usage{Line: int(x.line), Preferences: r.value(x)}
	if !strings.HasPrefix(u.Preferences, "/") {
		return u
	}
	end := strings.IndexAny(u.Preferences, " \t")
	if end < 0 {
		end = len(u.Preferences)
	}
	u.Pattern, u.Preferences = u.Preferences[:end], strings.TrimSpace(u.Preferences[end:])
	return u
}

// matchPattern reports whether a pattern as written matches a path in normal form, and returns its length in octets and
// the steps that it took.
func matchPattern(pattern, path string) (octets int, matched bool, steps int) {
	if pattern == "" {
		return 0, true, 0
	}
	form, octets, ends := appendPattern(nil, []byte(pattern))
	literal, wild := string(form), ""
	if i := strings.IndexByte(literal, '*'); i >= 0 {
		literal, wild = literal[:i], literal[i:]
	}
	steps = len(pattern)
	rest, ok := strings.CutPrefix(path, literal)
	switch {
	case !ok:
		return 0, false, steps
	case wild == "":
		return octets, !ends || rest == "", steps
	}
	matched, more := matchWildcards(wild, rest, ends)
	return octets, matched, steps + more
}
