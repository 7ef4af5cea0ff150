package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
)

// orders keeps interventions in memory.
type orders struct {
	all    []policy.Intervention
	who    string
	effect admin.InterventionEffect
}

func (o *orders) Interventions() []policy.Intervention { return slices.Clone(o.all) }

func (o *orders) Intervene(_ context.Context, i policy.Intervention) (admin.InterventionEffect, error) {
	o.all = slices.DeleteFunc(o.all, func(old policy.Intervention) bool { return old.Kind == i.Kind && old.Host == i.Host })
	o.all = append(o.all, i)
	return o.effect, nil
}

func (o *orders) Lift(_ context.Context, hosts []string, who string) (admin.InterventionEffect, error) {
	o.who = who
	o.all = slices.DeleteFunc(o.all, func(i policy.Intervention) bool { return slices.Contains(hosts, i.Host) })
	return o.effect, nil
}

// names returns the interventions in force.
func (o *orders) names() string {
	var all []string
	for _, i := range o.all {
		all = append(all, i.String())
	}
	return strings.Join(all, ", ")
}

// exempted keeps exemptions in memory.
type exempted struct {
	all    []admin.Exemption
	others int
}

func (x *exempted) All() []admin.Exemption { return slices.Clone(x.all) }

func (x *exempted) Parse(entry map[string]string) (policy.Exemption, error) {
	var wrong []string
	for _, key := range []string{"host", "reason", "owner"} {
		if entry[key] == "" {
			wrong = append(wrong, key+": found none, expected one")
		}
	}
	if wrong != nil {
		return policy.Exemption{}, errors.New(strings.Join(wrong, "\n"))
	}
	e := policy.Exemption{Host: entry["host"], Path: entry["path"], Client: entry["client"], Reason: entry["reason"], Owner: entry["owner"]}
	if entry["effect"] == "allow" {
		e.Effect, e.Until = policy.EffectAllow, time.Now().Add(time.Hour)
	}
	return e, nil
}

func (x *exempted) Add(_ context.Context, e policy.Exemption) (admin.Exemption, error) {
	added := admin.NewExemption(e, admin.SourceStore, time.Now())
	added.ID = int64(len(x.all) + 1)
	x.all = append(x.all, added)
	return added, nil
}

func (x *exempted) Remove(_ context.Context, id int64) (admin.Exemption, bool, error) {
	i := slices.IndexFunc(x.all, func(e admin.Exemption) bool { return e.ID == id })
	if i < 0 {
		return admin.Exemption{}, false, nil
	}
	removed := x.all[i]
	x.all = slices.Delete(x.all, i, i+1)
	return removed, true, nil
}

func (x *exempted) OtherInstances() int { return x.others }

// fetched counts what is done to the robots.txt of a.example.
type fetched struct {
	oneFile
	done []string
}

func (f *fetched) Refresh(_ context.Context, o origin.Origin) (*robots.Snapshot, error) {
	f.done = append(f.done, "refresh "+o.String())
	return newSnapshot(), nil
}

func (f *fetched) Purge(_ context.Context, o origin.Origin) error {
	f.done = append(f.done, "purge "+o.String())
	return nil
}

// operator is a browser that has signed in.
type operator struct {
	t       *testing.T
	server  *httptest.Server
	cookies []*http.Cookie
}

func signedIn(t *testing.T, o Options) *operator {
	t.Helper()
	op := &operator{t: t, server: serve(t, o)}
	resp, _ := do(t, request(t, "POST", op.server.URL+"/signin", url.Values{"token": {token}}))
	op.cookies = resp.Cookies()
	return op
}

// send sends a form, or loads a page if form is nil. It keeps the cookies of the response.
func (op *operator) send(path string, form url.Values) (*http.Response, string) {
	op.t.Helper()
	method := http.MethodPost
	if form == nil {
		method = http.MethodGet
	}
	r := request(op.t, method, op.server.URL+path, form)
	for _, c := range op.cookies {
		r.AddCookie(c)
	}
	resp, page := do(op.t, r)
	for _, c := range resp.Cookies() {
		op.cookies = slices.DeleteFunc(op.cookies, func(old *http.Cookie) bool { return old.Name == c.Name })
		if c.MaxAge >= 0 {
			op.cookies = append(op.cookies, c)
		}
	}
	return resp, page
}

// change sends a form that must succeed, and returns the page after it.
func (op *operator) change(path string, form url.Values) string {
	op.t.Helper()
	resp, page := op.send(path, form)
	if resp.StatusCode != http.StatusSeeOther {
		op.t.Fatalf("%s: %s\n%s", path, resp.Status, page)
	}
	_, page = op.send(resp.Header.Get("Location"), nil)
	return page
}

// undo presses the button of a page.
func (op *operator) undo(page string) string {
	op.t.Helper()
	_, rest, found := strings.Cut(page, `name="notice" value="`)
	if !found {
		op.t.Fatalf("the page has no button that undoes the change\n%s", page)
	}
	id, _, _ := strings.Cut(rest, `"`)
	return op.change("/undo", url.Values{"notice": {id}, "next": {"/settings"}})
}

// values returns a form of pairs.
func values(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return q
}

func contains(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("the page does not contain %q\n%s", text, page)
		}
	}
}

var (
	anOrder     = values("kind", "stop", "host", "a.example", "for_seconds", "0", "reason", "owner called", "by", "eve", "next", "/hosts")
	anExemption = values("effect", "deny", "host", "a.example", "reason", "contract 12", "owner", "ops", "next", "/hosts")
)

// No form is shown and no change is made without the token, or for a page of another site.
func TestChangesNeedToken(t *testing.T) {
	in, ex, files := &orders{all: []policy.Intervention{{Kind: policy.Stop, Host: "b.example", Reason: "r", By: "b"}}}, &exempted{}, &fetched{}
	added, _ := ex.Add(t.Context(), policy.Exemption{Host: "b.example"})
	o := Options{Interventions: in, Exemptions: ex, Files: files, History: files}
	op := signedIn(t, o)
	before := fmt.Sprint(in.names(), ex.all, files.done)
	page := op.change("/interventions/new", anOrder)
	_, rest, _ := strings.Cut(page, `name="notice" value="`)
	notice, _, _ := strings.Cut(rest, `"`)
	in.all = in.all[:1]
	lifting := values("host", "b.example", "reason", "r", "by", "b")
	for path, form := range map[string]url.Values{
		"/interventions/new": anOrder, "/interventions/lift": lifting, "/exemptions/new": anExemption, "/exemptions/remove": values("id", fmt.Sprint(added.ID)),
		"/robots/refresh": values("host", "a.example"), "/robots/purge": values("host", "a.example"), "/undo": values("notice", notice),
	} {
		resp, page := do(t, request(t, "POST", op.server.URL+path, form))
		if resp.StatusCode != http.StatusUnauthorized || !strings.Contains(page, "Nothing was changed") {
			t.Errorf("%s without a token: %s", path, resp.Status)
		}
		if next := form.Get("next"); next != "" && !strings.Contains(page, `name="next" value="`+next+`"`) {
			t.Errorf("%s: signing in does not lead to %s", path, next)
		}
		cross := request(t, "POST", op.server.URL+path, form)
		cross.Header.Set("Sec-Fetch-Site", "cross-site")
		for _, c := range op.cookies {
			cross.AddCookie(c)
		}
		if resp, _ := do(t, cross); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s from another site: %s", path, resp.Status)
		}
		if path == "/undo" || path == "/robots/refresh" {
			continue
		}
		if resp, _ := get(t, op.server.URL+path+"?"+form.Encode()); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("the form %s without a token: %s", path, resp.Status)
		}
	}
	if after := fmt.Sprint(in.names(), ex.all, files.done); after != before {
		t.Errorf("in force is %s, was %s", after, before)
	}
}

func TestIntervene(t *testing.T) {
	in := &orders{effect: admin.InterventionEffect{
		Instances: admin.InstanceCount{Total: 3, Acknowledged: 2, Missing: []string{"two since 12:00"}}, Answered: 4, Tunnels: 1200, NotStored: "disk full",
	}}
	op := signedIn(t, Options{Interventions: in})
	_, page := op.send("/interventions/new?kind=slow&host=a.example&next=/settings", nil)
	contains(t, page, `value="slow" checked`, `value="a.example"`, `name="next" value="/settings"`)
	page = op.change("/interventions/new", values("kind", "slow", "host", " A.Example. ", "delay_seconds", "2.5", "for_seconds", "600", "reason", hostile, "by", "eve", "next", "/settings"))
	contains(t, page, "a.example is slowed to a request each 2.5 s until", "4 waiting requests were answered", "1,200 tunnels", "2 of 3 instances confirmed it; not yet: two since 12:00", "disk full")
	if got := in.names(); got != "slow a.example 2.5s: "+hostile+" (eve)" || strings.Contains(page, hostile) {
		t.Errorf("in force is %q", got)
	}
	if _, again := op.send("/settings", nil); strings.Contains(again, "is slowed") {
		t.Error("the notice is shown twice")
	}
	slowed := op.change("/interventions/new", values("kind", "slow", "host", "a.example", "delay_seconds", "9", "for_seconds", "600", "reason", "more", "by", "eve", "next", "/settings"))
	stopped := op.change("/interventions/new", values("kind", "stop", "host", "a.example", "for_seconds", "0", "reason", "enough", "by", "eve", "next", "/settings"))
	contains(t, op.undo(stopped), "Undone.")
	if got := in.names(); got != "slow a.example 9s: more (eve)" || in.who != "eve: undone" {
		t.Errorf("in force is %q after the stop was undone by %q", got, in.who)
	}
	op.undo(slowed)
	if got := in.names(); got != "slow a.example 2.5s: "+hostile+" (eve)" {
		t.Errorf("in force is %q after the longer Delay was undone", got)
	}
	_, rest, _ := strings.Cut(slowed, `name="notice" value="`)
	id, _, _ := strings.Cut(rest, `"`)
	if resp, page := op.send("/undo", values("notice", id)); resp.StatusCode != http.StatusNotFound || !strings.Contains(page, "can not be undone here any more") {
		t.Errorf("undone twice: %s", resp.Status)
	}
}

func TestBadInterventionForms(t *testing.T) {
	in := &orders{}
	op := signedIn(t, Options{Interventions: in})
	for _, row := range []struct{ name, value, want string }{
		{"kind", "halt", "neither stop, slow nor bypass"},
		{"host", "", `id="w-host">This is needed.`},
		{"host", "http://a.example", `id="w-host">`},
		{"reason", "  ", `id="w-reason">This is needed.`},
		{"reason", strings.Repeat("r", 600), `id="w-reason">the reason and the operator`},
		{"by", "", `id="w-by">This is needed.`},
		{"delay_seconds", "x", `id="w-delay_seconds">This is not a number`},
		{"delay_seconds", "NaN", `id="w-delay_seconds">This is not a number`},
		{"delay_seconds", "", `id="w-delay_seconds">the delay of a.example is 0s`},
		{"delay_seconds", "1e300", `id="w-delay_seconds">delay_seconds is more than 292 years`},
		{"for_seconds", "-1", `id="w-for">for_seconds is -1`},
		{"for_seconds", "NaN", `id="w-for">This is not a number`},
	} {
		form := values("kind", "slow", "host", "a.example", "delay_seconds", "2", "for_seconds", "600", "reason", "r & s", "by", "eve", "next", "/hosts")
		form.Set(row.name, row.value)
		resp, page := op.send("/interventions/new", form)
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s %.20q: %s", row.name, row.value, resp.Status)
		}
		contains(t, page, row.want, `name="next" value="/hosts"`, "Nothing was changed")
		if row.name != "reason" {
			contains(t, page, "r &amp; s")
		}
	}
	resp, page := op.send("/interventions/new", values("kind", "bypass", "host", "*", "for_seconds", "0", "reason", "r", "by", "eve"))
	if resp.StatusCode != http.StatusBadRequest || !strings.Contains(page, `id="w-for">the bypass of * has no end`) {
		t.Errorf("a bypass without an end: %s\n%s", resp.Status, page)
	}
	if len(in.all) != 0 {
		t.Errorf("in force is %s", in.names())
	}
	for i := range 1000 {
		in.all = append(in.all, policy.Intervention{Kind: policy.Stop, Host: fmt.Sprintf("h%d.example", i)})
	}
	resp, page = op.send("/interventions/new", anOrder)
	if resp.StatusCode != http.StatusConflict || !strings.Contains(page, "1000 interventions are in force, which is the maximum") {
		t.Errorf("one more than the maximum: %s", resp.Status)
	}
	if resp, _ = op.send("/interventions/new", values("reason", strings.Repeat("r", maxForm+1))); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a large form: %s", resp.Status)
	}
}

func TestLift(t *testing.T) {
	until := time.Now().Add(time.Hour)
	in := &orders{effect: admin.InterventionEffect{Instances: admin.InstanceCount{Total: 2, Acknowledged: 2}}, all: []policy.Intervention{
		{Kind: policy.Stop, Host: "a.example", Reason: "r", By: "b", Until: until},
		{Kind: policy.Slow, Host: "a.example", Delay: time.Second, Reason: "r", By: "b"},
		{Kind: policy.Stop, Host: "b.example", Reason: "r", By: "b"},
	}}
	op := signedIn(t, Options{Interventions: in})
	before := in.names()
	_, page := op.send("/settings", nil)
	contains(t, page, `href="/interventions/lift?host=a.example`, "a.example is stopped. r (b).")
	_, page = op.send("/interventions/lift?host=a.example", nil)
	contains(t, page, "End 2 interventions", "slow <b>a.example</b> 1 s")
	for _, form := range []url.Values{values("host", "a.example"), values("host", "a.example", "by", "eve"), values("host", "a.example", "reason", "r")} {
		if resp, page := op.send("/interventions/lift", form); resp.StatusCode != http.StatusBadRequest || !strings.Contains(page, "This is needed.") {
			t.Errorf("%v: %s", form, resp.Status)
		}
	}
	for _, host := range []string{"", "c.example"} {
		if resp, _ := op.send("/interventions/lift", values("host", host, "by", "eve", "reason", "r")); resp.StatusCode != http.StatusNotFound {
			t.Errorf("host %q: %s", host, resp.Status)
		}
	}
	if in.names() != before {
		t.Errorf("in force is %s", in.names())
	}
	page = op.change("/interventions/lift", values("host", "a.example", "by", "eve", "reason", "mended", "next", "/settings"))
	contains(t, page, "All 2 instances confirmed it")
	if in.names() != "stop b.example: r (b)" || in.who != "eve: mended" {
		t.Errorf("in force is %s, lifted by %s", in.names(), in.who)
	}
	op.undo(page)
	if len(in.all) != 3 || !in.all[1].Until.Equal(until) || in.all[2].Delay != time.Second {
		t.Errorf("in force is %v after the lift was undone", in.all)
	}
}

func TestExempt(t *testing.T) {
	ex := &exempted{others: 2}
	records, ids := keptRecords(t, 4)
	op := signedIn(t, Options{Exemptions: ex, Records: records})
	_, page := op.send("/decisions/"+ids[3].String(), nil)
	_, rest, _ := strings.Cut(page, `href="/exemptions/new?`)
	query, _, _ := strings.Cut(rest, `"`)
	_, page = op.send("/exemptions/new?"+strings.ReplaceAll(query, "&amp;", "&"), nil)
	contains(t, page, `value="allow" checked`, `value="a.example"`, `name="path" type="text" value="/private/"`, `value="news"`, `name="next" value="/decisions/`+ids[3].String()+`"`)
	resp, page := op.send("/exemptions/new", values("effect", "allow", "path", "/<&>", "reason", " "))
	if resp.StatusCode != http.StatusBadRequest || len(ex.all) != 0 {
		t.Errorf("bad fields: %s, %v", resp.Status, ex.all)
	}
	contains(t, page, `id="w-host">found none`, `id="w-reason">found none`, `id="w-owner">found none`, `value="/&lt;&amp;&gt;"`)
	form := values("effect", "allow", "host", "A.example", "path", "/private/", "client", "news", "reason", "contract 12", "owner", "ops", "next", "/decisions/"+ids[3].String())
	page = op.change("/exemptions/new", form)
	contains(t, page, "allow a.example/private/ for news until", "This holds on 1 of 3 instances")
	if len(ex.all) != 1 {
		t.Fatalf("exemptions %v", ex.all)
	}
	contains(t, op.undo(page), "Undone.")
	if len(ex.all) != 0 {
		t.Errorf("exemptions %v after it was undone", ex.all)
	}
	for range 1000 {
		ex.all = append(ex.all, admin.Exemption{ID: 1, Source: admin.SourceStore})
	}
	if resp, page := op.send("/exemptions/new", anExemption); resp.StatusCode != http.StatusConflict || !strings.Contains(page, "1000 exemptions were added") {
		t.Errorf("one more than the maximum: %s", resp.Status)
	}
}

func TestRemoveExemption(t *testing.T) {
	ex := &exempted{}
	added, _ := ex.Add(t.Context(), policy.Exemption{Host: "a.example", Path: "/p", Effect: policy.EffectAllow, Reason: "r", Owner: "o", Until: time.Now().Add(time.Hour)})
	op := signedIn(t, Options{Exemptions: ex})
	_, page := op.send("/exemptions/remove?id="+fmt.Sprint(added.ID), nil)
	contains(t, page, "Remove an exemption", "<b>a.example</b>/p")
	for _, id := range []string{"", "x", "0", "99"} {
		if resp, _ := op.send("/exemptions/remove?id="+id, nil); resp.StatusCode != http.StatusNotFound {
			t.Errorf("the form of %q: %s", id, resp.Status)
		}
		if resp, _ := op.send("/exemptions/remove", values("id", id)); resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusBadRequest {
			t.Errorf("removing %q: %s", id, resp.Status)
		}
	}
	page = op.change("/exemptions/remove", values("id", fmt.Sprint(added.ID), "next", "/settings"))
	contains(t, page, "The exemption was removed: allow a.example/p")
	if len(ex.all) != 0 {
		t.Errorf("exemptions %v", ex.all)
	}
	op.undo(page)
	if len(ex.all) != 1 || ex.all[0].Reason != "r" || ex.all[0].Effect != "allow" {
		t.Errorf("exemptions %v after the removal was undone", ex.all)
	}
}

func TestRefreshAndPurge(t *testing.T) {
	files := &fetched{}
	op := signedIn(t, Options{Files: files, History: files})
	contains(t, op.change("/robots/refresh", values("host", "http://a.example", "next", "/settings")), "Fetched now: http://a.example/robots.txt is found, status 200.")
	_, page := op.send("/robots/purge?host=a.example", nil)
	contains(t, page, "<b>a.example</b>")
	contains(t, op.change("/robots/purge", values("host", "a.example", "next", "/settings")), "Removed from the cache: the robots.txt of http://a.example.")
	if got := strings.Join(files.done, ", "); got != "refresh http://a.example, purge http://a.example" {
		t.Errorf("done is %s", got)
	}
	for host, status := range map[string]int{"": 400, "a b": 400, "b.example": 404} {
		if resp, _ := op.send("/robots/purge", values("host", host)); resp.StatusCode != status {
			t.Errorf("purging %q: %s, want %d", host, resp.Status, status)
		}
	}
}

// A listener without these parts says so.
func TestNoParts(t *testing.T) {
	op := signedIn(t, Options{})
	for _, path := range []string{"/interventions/new", "/interventions/lift", "/exemptions/new", "/exemptions/remove", "/robots/purge", "/robots/refresh"} {
		if path != "/robots/refresh" {
			if resp, _ := op.send(path, nil); resp.StatusCode != http.StatusNotFound {
				t.Errorf("%s: %s", path, resp.Status)
			}
		}
		if resp, _ := op.send(path, url.Values{"host": {"a.example"}}); resp.StatusCode != http.StatusNotFound {
			t.Errorf("sending %s: %s", path, resp.Status)
		}
	}
}

func TestNotices(t *testing.T) {
	var ns notices
	first := ns.put(notice{Text: "first"})
	for range maxNotices {
		ns.put(notice{})
	}
	if _, ok := ns.get(first); ok || len(ns.kept) > maxNotices {
		t.Errorf("%d notices are kept, the oldest among them: %t", len(ns.kept), ok)
	}
	id := ns.put(notice{Text: "last"})
	old := ns.kept[id]
	old.made = time.Now().Add(-2 * noticeTime)
	ns.kept[id] = old
	if _, ok := ns.take(id); ok {
		t.Error("an old notice can undo its change")
	}
	if _, ok := ns.take(""); ok {
		t.Error("a notice without an ID")
	}
}
