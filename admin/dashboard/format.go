package dashboard

import (
	"encoding/json"
	"fmt"
	"html/template"
	"net/url"
	"path"
	"reflect"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
	"github.com/robotsproxy/robotsproxy/policy"
)

// functions are those of the templates.
var functions = template.FuncMap{
	"number":   number,
	"duration": duration,
	"clock":    clock,
	"date":     date,
	"safe":     safetext.Text,
	"static":   func(name string) string { return "/static/" + name + "?v=" + version },
	"pill":     pillOf,
	"why":      why,
	"elide":    elide,
	"link":     link,
	"url":      auditview.URL,
	"percent":  percent,
	"base":     path.Base,
	"json":     asJSON,
	"orders": func() map[string]string {
		return map[string]string{"requests": "Most requests", "blocked": "Most blocked", "waited": "Longest waits", "host": "By name"}
	},
	"diffLines": diffLines,
}

// asJSON returns v for an attribute of an element.
func asJSON(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

// number returns an integer of any type with commas between thousands.
func number(n any) string {
	v := reflect.ValueOf(n)
	if v.CanUint() {
		return auditview.Number(int64(v.Uint()))
	}
	return auditview.Number(v.Int())
}

func duration(d any) string { return auditview.Duration(time.Duration(reflect.ValueOf(d).Int())) }

// percent returns part of whole, with a decimal below ten.
func percent(part, whole int64) string {
	if whole == 0 {
		return "0 %"
	}
	p := 100 * float64(part) / float64(whole)
	if p < 10 && p > 0 {
		return fmt.Sprintf("%.1f %%", max(p, 0.1))
	}
	return fmt.Sprintf("%.0f %%", p)
}

// clock returns the time of day of t, which a script writes in the zone of the browser.
func clock(t time.Time) template.HTML { return moment(t, "clock", time.TimeOnly) }

// date returns the day and the time of day of t.
func date(t time.Time) template.HTML { return moment(t, "date", "2 Jan 2006 15:04:05") }

func moment(t time.Time, kind, layout string) template.HTML {
	if t.IsZero() {
		return ""
	}
	u := t.UTC()
	return template.HTML(fmt.Sprintf(`<time datetime="%s" data-show="%s" title="%s UTC">%s</time>`,
		u.Format(time.RFC3339Nano), kind, u.Format("2006-01-02 15:04:05"), t.Local().Format(layout)))
}

// pill is the decision about a request, in one or two words.
type pill struct{ Class, Text string }

// pillOf returns the pill of r.
func pillOf(r *audit.Record) pill {
	switch r.Decision {
	case policy.Deny:
		return pill{"blocked", "Blocked"}
	case policy.WouldDeny:
		return pill{"blocked", "Would block"}
	case policy.Throttle:
		return pill{"delayed", "Throttled"}
	case policy.WouldThrottle:
		return pill{"delayed", "Would throttle"}
	case policy.Error:
		return pill{"error", "Failed"}
	case policy.Exempt:
		return pill{"", "Exempt"}
	}
	switch wait := time.Duration(r.Waited); {
	case r.EndedAt.IsZero():
		return pill{"on", "In progress"}
	case r.Reason == policy.ReasonUpstream || r.Error != "":
		return pill{"error", "Failed"}
	case wait >= leastWait:
		return pill{"delayed", "Waited " + duration(wait.Round(100*time.Millisecond))}
	}
	return pill{"", "Allowed"}
}

// leastWait is the shortest wait that is shown in place of the decision.
const leastWait = 100 * time.Millisecond

// why returns the rule that decided about r, or the reason.
func why(r *audit.Record) string {
	switch {
	case r.Rule != "":
		return audit.RuleText(r.RuleLine, r.Rule)
	case r.Reason != policy.ReasonNone && r.Reason != "":
		return string(r.Reason)
	case time.Duration(r.Waited) >= leastWait && r.DelaySource != "":
		return r.DelaySource + " " + duration(r.DelayRequired)
	case r.RobotsState != "" && r.RobotsState != "found":
		return "robots.txt " + r.RobotsState
	}
	return "no rule matches"
}

// elide returns s with at most n characters: those of its middle give way.
func elide(n int, s string) string {
	runes := []rune(safetext.Text(s))
	if len(runes) <= n {
		return string(runes)
	}
	head := n * 2 / 3
	return string(runes[:head]) + "…" + string(runes[len(runes)-(n-head-1):])
}

// link returns the URL of a page with the parameters that are not empty, in pairs, and the period of p.
func link(p period, page string, pairs ...any) string {
	q := p.Query()
	for i := 0; i+1 < len(pairs); i += 2 {
		if value := fmt.Sprint(pairs[i+1]); value != "" {
			q.Set(fmt.Sprint(pairs[i]), value)
		}
	}
	return (&url.URL{Path: page, RawQuery: q.Encode()}).String()
}

// searchText returns the filters of a URL as the text of the search field.
func searchText(q url.Values) string {
	var words []string
	for _, name := range searchWords {
		if value := q.Get(name); value != "" {
			if strings.ContainsAny(value, " \t") {
				value = `"` + value + `"`
			}
			words = append(words, name+":"+value)
		}
	}
	return strings.Join(words, " ")
}

// searchWords are the filters that the search field has, in its order.
var searchWords = []string{"host", "agent", "client", "rule", "reason", "decision", "path", "tag", "via"}
