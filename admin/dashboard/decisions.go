package dashboard

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/auditquery"
)

// pageRows is the number of rows of one page of decisions.
const pageRows = 100

// decisionsPage is the data of decisions.html.
type decisionsPage struct {
	Tabs   []tab
	Chips  []chip
	Rows   []audit.Record
	Total  *audit.Sum // of the filter and the period; nil if it would take long to count them
	Older  string     // URL of the next page; empty on the last
	Newest bool       // the first page, to which requests are added
	Live   string     // URL of their stream
}

// tab is a usual filter by decision.
type tab struct {
	Text, URL string
	Current   bool
}

// tabs returns the usual filters by decision, with the other parameters of a URL.
func tabs(q url.Values) (all []tab) {
	for _, t := range []struct{ text, decisions string }{
		{"All", ""}, {"Blocked", "deny,would_deny"}, {"Throttled", "throttle,would_throttle"}, {"Failed", "error"}, {"Exempt", "exempt"},
	} {
		next := maps.Clone(q)
		next.Del("after")
		next.Del("decision")
		if t.decisions != "" {
			next.Set("decision", t.decisions)
		}
		all = append(all, tab{t.text, "/decisions?" + next.Encode(), strings.Join(q["decision"], ",") == t.decisions})
	}
	return all
}

// chip is one filter.
type chip struct {
	Name, Value string
	Without     string // URL of the page without it
}

// decisions lists the requests of a filter, the newest first.
func (h *Handler) decisions(v *view) error {
	p, err := h.decisionsPage(v)
	if err != nil {
		return err
	}
	return v.render("Decisions", "decisions.html", p)
}

func (h *Handler) decisionsPage(v *view) (*decisionsPage, error) {
	q := v.URL.Query()
	if to, ok := searched(q); ok {
		http.Redirect(v.w, v.Request, to, http.StatusSeeOther)
		return nil, errAnswered
	}
	if h.options.Records == nil {
		return nil, h.notKept()
	}
	f, err := readFilter(q, v.period, v.now)
	if err != nil {
		return nil, err
	}
	p := &decisionsPage{Tabs: tabs(q), Chips: chips(v.URL), Newest: f.After == 0 && f.Until.IsZero(), Live: "/live?" + filters(q).Encode()}
	if counted := f.Path == "" && f.Rule == "" && f.Tag == "" && len(f.Vias) == 0; counted {
		total, err := h.total(v, f)
		if err != nil {
			return nil, err
		}
		p.Total = &total
	}
	f.Newest, f.Limit = true, pageRows+1
	for r, err := range h.options.Records.Records(v.ctx(), f) {
		if err != nil {
			return nil, err
		}
		if len(p.Rows) == pageRows {
			q.Set("after", p.Rows[pageRows-1].ID.String())
			p.Older = "/decisions?" + q.Encode()
			break
		}
		p.Rows = append(p.Rows, *r)
	}
	return p, nil
}

// total returns the counts of f, without its cursor.
func (h *Handler) total(v *view, f audit.Filter) (audit.Sum, error) {
	f.After = 0
	sums, err := h.options.Records.Sums(v.ctx(), f)
	if err != nil || len(sums) == 0 {
		return audit.Sum{}, err
	}
	return sums[0], nil
}

// readFilter returns the filter in the query of a URL.
func readFilter(q url.Values, p period, now time.Time) (audit.Filter, error) {
	list := func(name string) (words []string) {
		for _, value := range q[name] {
			if value != "" {
				words = append(words, strings.Split(value, ",")...)
			}
		}
		return words
	}
	f, err := auditquery.Words{
		Host: q.Get("host"), Client: q.Get("client"), Agent: q.Get("agent"), Tag: q.Get("tag"), Path: q.Get("path"), Rule: ruleOnly(q.Get("rule")),
		Decisions: list("decision"), Reasons: list("reason"), Vias: list("via"),
	}.Filter(now)
	if err != nil {
		return f, &fault{http.StatusBadRequest, err.Error()}
	}
	f.Since, f.Until = p.Since, p.Until
	if text := q.Get("after"); text != "" {
		if f.After, err = audit.ParseID(text); err != nil {
			return f, &fault{http.StatusBadRequest, "after: " + err.Error()}
		}
	}
	return f, nil
}

// ruleOnly returns the text of a rule without its line, which lists of rules show before it.
func ruleOnly(text string) string {
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		if _, rule, ok := strings.Cut(rest, "  "); ok {
			return rule
		}
	}
	return text
}

// filters returns the filters among the parameters of a URL.
func filters(q url.Values) url.Values {
	kept := url.Values{}
	for _, name := range searchWords {
		if q.Get(name) != "" {
			kept[name] = q[name]
		}
	}
	return kept
}

// chips returns the filters of a URL.
func chips(u *url.URL) (all []chip) {
	q := u.Query()
	for _, name := range searchWords {
		value := strings.Join(q[name], ",")
		if value == "" {
			continue
		}
		without := u.Query()
		without.Del(name)
		without.Del("after")
		all = append(all, chip{name, value, "/decisions?" + without.Encode()})
	}
	return all
}

// searched returns the URL for the text of the search field in q, and false if there is none. A word such as host:a.example is a
// filter; a word without a name is a host, or a path if it begins with a slash.
func searched(q url.Values) (to string, ok bool) {
	if !q.Has("q") {
		return "", false
	}
	next := url.Values{}
	for _, name := range []string{"range", "since", "until"} {
		if q.Get(name) != "" {
			next.Set(name, q.Get(name))
		}
	}
	for _, word := range words(q.Get("q")) {
		name, value, named := strings.Cut(word, ":")
		switch {
		case named && isFilter(name):
			next.Set(name, value)
		case strings.HasPrefix(word, "/"):
			next.Set("path", word)
		default:
			next.Set("host", word)
		}
	}
	return "/decisions?" + next.Encode(), true
}

func isFilter(name string) bool {
	for _, n := range searchWords {
		if n == name {
			return true
		}
	}
	return false
}

// words splits a text at spaces outside quotation marks, which it removes.
func words(text string) (all []string) {
	quoted := false
	fields := strings.FieldsFunc(text, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == ' ' && !quoted
	})
	for _, f := range fields {
		if f = strings.ReplaceAll(f, `"`, ""); f != "" {
			all = append(all, f)
		}
	}
	return all
}
