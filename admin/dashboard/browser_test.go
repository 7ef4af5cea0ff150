package dashboard

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/browsertest"
	"github.com/robotsproxy/robotsproxy/policy"
)

// Each page is calm at each width and in each scheme.
func TestPagesInBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("each page is loaded six times")
	}
	p, err := policy.New(policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	files := oneFile{}
	server := serve(t, Options{
		Records: spacedRecords(t, 2, 3, 1, 5), Files: files, History: files, Judge: judged{policy: p, body: string(robotsBody)}, Live: new(Live), Proxy: func(*http.Request) (string, string) { return "http", "127.0.0.1:3128" },
		State: func() admin.State {
			return admin.State{Mode: "report", Listen: "http://127.0.0.1:3128", Records: admin.RecordCounts{Lost: 12}}
		},
		Settings: func() Settings {
			return Settings{Values: []Setting{{"listen", ":3128", "c.yaml:1:9", true}}, CAs: []CA{{Name: "CA", SHA256: "AA:BB", End: time.Now()}}}
		},
	})
	empty, _ := keptRecords(t, 0)
	nothing := serve(t, Options{Records: empty, State: func() admin.State { return admin.State{Mode: "enforce", Listen: "http://127.0.0.1:3128"} }})
	tab := browsertest.Open(t)
	for _, width := range []int64{1440, 768, 390} {
		for _, scheme := range []browsertest.Scheme{browsertest.Light, browsertest.Dark} {
			tab.View(width, scheme)
			for _, address := range []string{
				server.URL + "/", server.URL + "/decisions", server.URL + "/decisions?host=none.example", server.URL + "/hosts", server.URL + "/hosts/slow.example",
				server.URL + "/check", server.URL + "/check?url=a.example/private/x&agent=NewsBot", server.URL + "/clients?name=NewsBot",
				server.URL + "/settings", server.URL + "/signin", nothing.URL + "/",
			} {
				t.Run(fmt.Sprintf("%d/%s/%s", width, scheme, address), func(t *testing.T) {
					tab.For(t)
					tab.Load(address)
					if (width == 390) == (scheme == browsertest.Dark) {
						tab.Check()
					} else {
						tab.Fits()
					}
				})
			}
		}
	}
}

// A request shows on the pages that are open, at the top of the list.
func TestLiveInBrowser(t *testing.T) {
	live := new(Live)
	records, _ := keptRecords(t, 30)
	server := serve(t, Options{Records: records, Live: live})
	tab := browsertest.Open(t)
	tab.View(1440, browsertest.Light)
	var ids audit.Sequence
	arrive := func(i int) string {
		r := newRecord(ids.Next(time.Now()), i)
		live.Observe(&r)
		return r.ID.String()
	}
	watched := func(n int32) {
		t.Helper()
		for range 1000 {
			if live.watched.Load() == n {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("%d pages watch, want %d", live.watched.Load(), n)
	}
	for _, path := range []string{"/", "/decisions?decision=deny"} {
		tab.Load(server.URL + path)
		watched(1)
		other, id := arrive(1), arrive(3)
		tab.WaitFor(fmt.Sprintf("document.querySelector('#live tr').dataset.id === %q", id))
		if seen := browsertest.Evaluate[bool](tab, fmt.Sprintf("!!document.querySelector('[data-id=%q]')", other)); seen != (path == "/") {
			t.Errorf("%s: a request that the filter does not select is on the page: %t", path, seen)
		}
	}
	// In the midst of the list rows wait above it, and while it is paused none arrives.
	tab.Do(chromedp.Evaluate[chromedp.Void]("document.body.style.paddingBottom = '3000px'; scrollTo(0, 1500)"))
	arrive(3)
	arrive(6)
	tab.WaitFor("document.querySelector('#new').innerText === '2 new'")
	tab.Do(chromedp.Click("#new"))
	tab.WaitFor("scrollY === 0 && document.querySelector('#new').hidden")
	tab.Do(chromedp.KeyEvent("p"))
	tab.WaitFor("document.querySelector('#pause').innerText === 'Resume'")
	paused := arrive(9)
	time.Sleep(3 * lookEvery)
	if browsertest.Evaluate[bool](tab, fmt.Sprintf("!!document.querySelector('[data-id=%q]')", paused)) {
		t.Error("a row arrived while the page was paused")
	}
	tab.Quiet()
	tab.Load("about:blank")
	watched(0)
}

// An open page without requests shows the first one.
func TestFirstRequestInBrowser(t *testing.T) {
	live := new(Live)
	records, _ := keptRecords(t, 0)
	server := serve(t, Options{Records: records, Live: live})
	tab := browsertest.Open(t)
	tab.Load(server.URL + "/")
	tab.WaitFor("document.querySelector('.spinner')")
	for live.watched.Load() == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	var ids audit.Sequence
	r := newRecord(ids.Next(time.Now()), 3)
	if err := records.Write(t.Context(), []audit.Entry{{Record: r}}); err != nil {
		t.Fatal(err)
	}
	live.Observe(&r)
	tab.WaitFor("document.querySelector('.tiles')")
	tab.Check()
}

// The search field makes filters, keys open pages, and the browser's back button returns.
func TestSearchInBrowser(t *testing.T) {
	records, _ := keptRecords(t, 30)
	server := serve(t, Options{Records: records})
	tab := browsertest.Open(t)
	tab.View(1440, browsertest.Light)
	tab.Load(server.URL + "/")
	tab.Do(chromedp.KeyEvent("/"))
	tab.WaitFor("document.activeElement.name === 'q'")
	browsertest.Evaluate[string](tab, "document.activeElement.value = ''") // the tools of the browser type the key nevertheless
	tab.Do(chromedp.KeyEvent("host:a.example decision:deny\r"))
	tab.WaitFor("document.querySelectorAll('.chip').length === 2 && location.pathname === '/decisions'")
	tab.Do(chromedp.Click(".chip a"))
	tab.WaitFor("document.querySelectorAll('.chip').length === 1")
	tab.Do(chromedp.NavigateBack())
	tab.WaitFor("document.querySelectorAll('.chip').length === 2")
	tab.Do(chromedp.KeyEvent("j"), chromedp.KeyEvent("j"))
	tab.WaitFor("document.querySelectorAll('#live tr')[1].classList.contains('chosen')")
	tab.Do(chromedp.KeyEvent("3"))
	tab.WaitFor("location.pathname === '/hosts'")
	tab.Quiet()
}

// A drag in the chart selects its time, which is in the URL.
func TestChartInBrowser(t *testing.T) {
	records, _ := keptRecords(t, 30)
	server := serve(t, Options{Records: records})
	tab := browsertest.Open(t)
	tab.View(1440, browsertest.Light)
	tab.Load(server.URL + "/")
	tab.WaitFor("document.querySelector('.u-over')")
	tab.Drag(".u-over", .2, .6)
	tab.WaitFor("location.search.startsWith('?since=') && document.querySelector('.menu summary').innerText.startsWith('From ')")
	tab.Quiet()
}
