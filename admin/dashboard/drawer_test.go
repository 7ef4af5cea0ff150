package dashboard

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/robotsproxy/robotsproxy/internal/browsertest"
)

// A row opens the drawer by a click and by a key, with the URL of the request. Esc and the browser's back button close it.
func TestDrawerInBrowser(t *testing.T) {
	records, ids := keptRecords(t, 30)
	server := serve(t, Options{Records: records})
	tab := browsertest.Open(t)
	tab.View(1440, browsertest.Light)
	list := "/decisions?decision=deny"
	tab.Load(server.URL + list)
	shown := func(id string) {
		t.Helper()
		tab.WaitFor(fmt.Sprintf("document.querySelector('#drawer').open && location.pathname === '/decisions/%s' && document.querySelector('#details').innerText.includes(%q)", id, id))
		tab.WaitFor(fmt.Sprintf("document.querySelector('.chosen').dataset.id === %q", id))
	}
	closed := func(id string) {
		t.Helper()
		tab.WaitFor(fmt.Sprintf("!document.querySelector('#drawer').open && location.pathname + location.search === %q", list))
		if id != "" {
			tab.WaitFor(fmt.Sprintf("document.activeElement.closest('tr')?.dataset.id === %q", id))
		}
	}
	first, second := ids[27].String(), ids[24].String()
	tab.Do(chromedp.Click(`[data-id="` + first + `"] a`))
	shown(first)
	tab.WaitFor("document.querySelector('.hit').getBoundingClientRect().bottom < innerHeight")
	tab.Check()
	tab.Do(chromedp.KeyEvent("\x1b"))
	closed(first)
	tab.Do(chromedp.KeyEvent("j"), chromedp.KeyEvent("\r"))
	shown(second)
	tab.Do(chromedp.KeyEvent("k"))
	shown(first)
	tab.Do(chromedp.Click("#drawer .close"))
	closed(first)
	tab.Do(chromedp.Click(`[data-id="` + second + `"] .state`))
	shown(second)
	tab.Do(chromedp.NavigateBack())
	closed("")
	tab.Do(chromedp.NavigateForward())
	shown(second)
	// Keys that are faster than the answers end at the last row.
	tab.Do(chromedp.KeyEvent("j"), chromedp.KeyEvent("j"), chromedp.KeyEvent("j"), chromedp.KeyEvent("k"))
	shown(ids[18].String())
	tab.Do(chromedp.KeyEvent("k"), chromedp.KeyEvent("k"))
	shown(second)
	tab.Do(chromedp.KeyEvent("\x1b"))
	closed(second)
	tab.Do(chromedp.NavigateForward())
	shown(second)
	// Loaded again, the URL is a page of its own, from which the back button leads to the list.
	tab.Do(chromedp.Reload())
	tab.WaitFor("document.querySelector('main .hit') && !document.querySelector('#drawer').open")
	tab.Do(chromedp.NavigateBack())
	closed("")
	tab.WaitFor("document.querySelector('#live tr')")
	tab.View(390, browsertest.Dark)
	tab.Do(chromedp.Click(`[data-id="` + first + `"] a`))
	shown(first)
	tab.Check()
	tab.Load(server.URL + "/decisions/" + first)
	tab.Check()
}
