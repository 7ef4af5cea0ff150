package dashboard

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/internal/browsertest"
	"github.com/robotsproxy/robotsproxy/policy"
)

// An operator signs in on the way from a request to the form of an exemption, adds it, and undoes that.
func TestExemptInBrowser(t *testing.T) {
	records, ids := keptRecords(t, 30)
	ex := &exempted{}
	server := serve(t, Options{Records: records, Exemptions: ex})
	tab := browsertest.Open(t)
	tab.View(1440, browsertest.Light)
	tab.Load(server.URL + "/decisions?decision=deny")
	id := ids[27].String()
	tab.Do(chromedp.Click(`[data-id="` + id + `"] a`))
	tab.WaitFor("document.querySelector('#drawer').open && document.querySelector('#details .button.first')")
	tab.Do(chromedp.Click("#details .button.first"))
	tab.WaitFor("document.querySelector('#token')")
	tab.Do(chromedp.SendKeys("#token", token+"\r"))
	tab.WaitFor("location.pathname === '/exemptions/new' && document.querySelector('[name=path]').value === '/private/'")
	tab.Do(chromedp.Click("form.order .button.first"))
	tab.WaitFor("document.querySelector('#w-owner') && document.querySelector('[name=path]').value === '/private/'")
	tab.Do(chromedp.SendKeys("[name=reason]", "contract 12"), chromedp.SendKeys("[name=owner]", "ops\r"))
	tab.WaitFor(fmt.Sprintf("location.pathname === '/decisions/%s' && document.querySelector('.banner.done')", id))
	if len(ex.all) != 1 || ex.all[0].Path != "/private/" || ex.all[0].Reason != "contract 12" {
		t.Errorf("exemptions %v", ex.all)
	}
	tab.Do(chromedp.Click(".banner.done button"))
	tab.WaitFor("document.querySelector('.banner.done').innerText.startsWith('Undone.')")
	if len(ex.all) != 0 {
		t.Errorf("exemptions %v after it was undone", ex.all)
	}
}

// The forms, with faults and without, are calm at each width and in each scheme. Only a slow has a Delay.
func TestFormsInBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("each form is loaded six times")
	}
	in := &orders{all: []policy.Intervention{{Kind: policy.Stop, Host: "a.example", Reason: "r", By: "b"}}}
	ex, files := &exempted{all: []admin.Exemption{{ID: 1, Source: admin.SourceStore, Effect: "allow", Host: "a.example", Reason: "r", Owner: "o"}}}, &fetched{}
	records, ids := keptRecords(t, 4)
	server := serve(t, Options{Records: records, Interventions: in, Exemptions: ex, Files: files, History: files})
	tab := browsertest.Open(t)
	tab.Load(server.URL + "/signin")
	tab.Do(chromedp.SendKeys("#token", token+"\r"))
	tab.WaitFor("document.querySelector('form[action=\"/signout\"]')")
	for _, width := range []int64{1440, 768, 390} {
		for _, scheme := range []browsertest.Scheme{browsertest.Light, browsertest.Dark} {
			tab.View(width, scheme)
			for _, path := range []string{
				"/interventions/new?kind=slow&host=a.example", "/interventions/lift?host=a.example", "/exemptions/new", "/exemptions/remove?id=1",
				"/robots/purge?host=a.example", "/decisions/" + ids[3].String(), "/settings", "/hosts/a.example",
			} {
				tab.Load(server.URL + path)
				if (width == 390) == (scheme == browsertest.Dark) {
					tab.Check()
				} else {
					tab.Fits()
				}
			}
		}
	}
	tab.Load(server.URL + "/interventions/new")
	tab.WaitFor("!document.querySelector('[name=delay_seconds]').checkVisibility()")
	tab.Do(chromedp.Click("[value=slow]"))
	tab.WaitFor("document.querySelector('[name=delay_seconds]').checkVisibility()")
	tab.Quiet()
	browsertest.Evaluate[string](tab, "document.querySelector('form.order').submit(), ''")
	tab.WaitFor("document.querySelector('#w-reason')")
	tab.For(t) // the browser reports the status 400
	tab.Check()
}
