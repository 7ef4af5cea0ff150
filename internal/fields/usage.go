package fields

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// This file reads the preferences of a site about the use of its content. Each is a text such as "train-ai=n", without
// white space, so that a list of them is one text: see UsageText.

// maxUsage and maxPreference bound a list of preferences and one of them, in bytes. A site chooses them, and records
// keep them.
const (
	maxUsage      = 320
	maxPreference = 200
)

// UsageText returns the preferences of one source, such as "robots.txt", in canonical form: sorted, each once, as in
// "robots.txt: search=y train-ai=n". It sorts preferences. It ends with "..." if some are omitted. It is "" if there are no preferences.
func UsageText(source string, preferences []string) string {
	if len(preferences) == 0 {
		return ""
	}
	slices.Sort(preferences)
	text := append(make([]byte, 0, maxUsage/2), source...)
	text = append(text, ':')
	for _, p := range slices.Compact(preferences) {
		if len(text)+len(p) > maxUsage {
			return string(append(text, " ..."...))
		}
		text = append(append(text, ' '), p...)
	}
	return string(text)
}

// StatedIn returns the preferences of one source in the texts of several, joined with "; ", as a record has them.
func StatedIn(usage, source string) []string {
	for text := range strings.SplitSeq(usage, "; ") {
		if name, preferences, _ := strings.Cut(text, ": "); name == source {
			return strings.Fields(preferences)
		}
	}
	return nil
}

// IsCut reports whether the text of some preferences omits others.
func IsCut(usage string) bool { return strings.Contains(usage, " ...") }

// ResponseUsage returns the preferences in the header of a response: Content-Usage (draft-ietf-aipref-attach-05 section
// 2), Content-Signal, X-Robots-Tag, TDM-Reservation and TDM-Policy (TDMRep), and Link with rel=license.
func ResponseUsage(h http.Header) (preferences []string) {
	if v := h["Content-Usage"]; len(v) > 0 {
		preferences = append(preferences, contentUsage(v)...)
	}
	for _, v := range h["Content-Signal"] {
		preferences = append(preferences, ContentSignal(v)...)
	}
	if v := h["X-Robots-Tag"]; len(v) > 0 {
		preferences = appendTags(preferences, "x-robots-tag", robotsTags(v))
	}
	if v := h.Get("Tdm-Reservation"); v == "0" || v == "1" {
		preferences = append(preferences, "tdm-reservation="+v)
	}
	preferences = append(preferences, urlPreference("tdm-policy", h.Get("Tdm-Policy"))...)
	for _, v := range h["Link"] {
		preferences = append(preferences, licenseLink(v)...)
	}
	return preferences
}

// ContentUsage returns the preferences in the value of a Content-Usage line of a robots.txt: the members of a dictionary
// that are the tokens y or n (draft-ietf-aipref-vocab-08 section 6.5), also those of categories that the vocabulary does
// not define.
func ContentUsage(value string) []string {
	if name, preference, _ := strings.Cut(value, "="); isWord(name) && (preference == "y" || preference == "n") && name[0] >= 'a' {
		return []string{value} // one preference, as in most files
	}
	return contentUsage([]string{value})
}

func contentUsage(value []string) (preferences []string) {
	d, err := httpsfv.UnmarshalDictionary(value)
	if err != nil {
		return nil
	}
	for _, name := range d.Names() {
		m, _ := d.Get(name)
		if item, ok := m.(httpsfv.Item); ok && (item.Value == httpsfv.Token("y") || item.Value == httpsfv.Token("n")) {
			preferences = appendPreference(preferences, name, string(item.Value.(httpsfv.Token)))
		}
	}
	return preferences
}

// ContentSignal returns the preferences in the value of a Content-Signal line or field (contentsignals.org), in lower
// case: "search=yes", "ai-train=no" or "use=reference". It never returns the values y and n of Content-Usage.
func ContentSignal(value string) (preferences []string) {
	for member := range strings.SplitSeq(strings.ToLower(value), ",") {
		name, value, _ := strings.Cut(member, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if isWord(name) && isWord(value) && len(value) > 1 {
			preferences = appendPreference(preferences, name, value)
		}
	}
	return preferences
}

// License returns the preference in the value of a License line of a robots.txt (RSL 1.0), the URL of the license.
func License(value string) []string { return urlPreference("license", value) }

// urlPreference returns a preference that is a URL, without userinfo. It omits a value that is not an absolute URL.
func urlPreference(name, value string) []string {
	if value == "" || len(value) > maxPreference {
		return nil
	}
	if rest, ok := strings.CutPrefix(value, "https://"); ok && isPlainURL(rest) {
		return appendPreference(nil, name, value) // as in most files
	}
	u, err := url.Parse(value)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return nil
	}
	u.User = nil
	return appendPreference(nil, name, strings.ReplaceAll(u.String(), ";", "%3B"))
}

// isPlainURL reports whether s is the rest of a URL, after its scheme, that needs no change.
func isPlainURL(s string) bool {
	other := func(c rune) bool { return !isWordRune(c) && c != '/' && (c < 'A' || c > 'Z') }
	return s != "" && s[0] != '/' && !strings.ContainsFunc(s, other)
}

func appendPreference(preferences []string, name, value string) []string {
	if value == "" || len(name)+len(value) >= maxPreference {
		return preferences
	}
	return append(preferences, name+"="+value)
}

// isWord reports whether s has only letters, digits and "_-.*".
func isWord(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return !isWordRune(c) })
}

func isWordRune(c rune) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '.' || c == '*'
}

// tagRules are the rules of X-Robots-Tag that are preferences about use.
var tagRules = []string{"noai", "noarchive", "nofollow", "noimageai", "noimageindex", "noindex", "none", "nosnippet", "notranslate"}

// untilRule is a rule with a date.
const untilRule = "unavailable_after"

// robotsTags returns the rules of X-Robots-Tag, each as one word: "noai", "noindex", "otherbot:nofollow". The name of a
// crawler holds for the rest of its line.
func robotsTags(lines []string) []string {
	var rules []string
	for _, line := range lines {
		agent := ""
		parts := strings.Split(strings.ToLower(line), ",")
		for i, part := range parts {
			part = strings.TrimSpace(part)
			if name, rest, ok := strings.Cut(part, ":"); ok && name != untilRule && isWord(name) {
				if strings.HasPrefix(name, "max-") {
					continue // the size of a preview
				}
				agent, part = name+":", strings.TrimSpace(rest)
			}
			if date, ok := strings.CutPrefix(part, untilRule+":"); ok {
				part = untilRule + until(strings.TrimSpace(date), parts[i+1:])
			} else if !slices.Contains(tagRules, part) {
				continue
			}
			rules = append(rules, agent+part)
		}
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

// appendTags appends tags as one preference, such as "x-robots-tag=noai,noindex", or as several that are short enough.
func appendTags(preferences []string, name string, tags []string) []string {
	joined := ""
	for _, tag := range tags {
		if len(name)+len(joined)+len(",")+len(tag) >= maxPreference {
			preferences = appendPreference(preferences, name, joined)
			joined = ""
		}
		if joined != "" {
			joined += ","
		}
		joined += tag
	}
	return appendPreference(preferences, name, joined)
}

// until returns ":" and a date as in RFC 3339, or "" if it has another form, or another zone than UTC. A date may have a
// comma after its weekday: then its rest is the next part of the line.
func until(date string, next []string) string {
	if len(date) <= len("wednesday") && len(next) > 0 {
		date += "," + next[0]
	}
	for _, layout := range []string{
		time.RFC3339, time.DateOnly, time.RFC1123, time.RFC850, time.RFC822, "2 Jan 2006 15:04:05 MST",
	} {
		t, err := time.Parse(layout, strings.ToUpper(date))
		if zone, offset := t.Zone(); err == nil && (zone == "UTC" || zone == "GMT" || offset != 0) {
			return ":" + t.UTC().Format(time.RFC3339)
		}
	}
	return ""
}

// licenseLink returns the targets of the links with the relation license in a line of Link (RFC 8288 section 3).
func licenseLink(line string) (preferences []string) {
	for line != "" {
		begin := strings.IndexByte(line, '<')
		if begin < 0 {
			return preferences
		}
		target, rest, ok := strings.Cut(line[begin+1:], ">")
		if !ok {
			return preferences
		}
		params, _, _ := strings.Cut(rest, "<")
		for param := range strings.SplitSeq(params, ";") {
			name, value, _ := strings.Cut(strings.ToLower(strings.TrimRight(strings.TrimSpace(param), ", ")), "=")
			if strings.TrimSpace(name) == "rel" && slices.Contains(strings.Fields(strings.Trim(value, `" `)), "license") {
				preferences = append(preferences, urlPreference("license", target)...)
			}
		}
		line = rest
	}
	return preferences
}

// CrawlerPrice returns the price in the header of a response, as pay per crawl has it: that of Crawler-Price, which comes
// with 402, or "charged" and that of Crawler-Charged.
func CrawlerPrice(h http.Header) string {
	if v := h.Get("Crawler-Price"); v != "" {
		return cutPrice(v)
	}
	if v := h.Get("Crawler-Charged"); v != "" {
		return "charged " + cutPrice(v)
	}
	return ""
}

// cutPrice bounds a price. "USD 0.01" is usual.
func cutPrice(v string) string { return v[:min(len(v), 64)] }
