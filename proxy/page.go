package proxy

import (
	"cmp"
	"net/http"

	"github.com/robotsproxy/robotsproxy/internal/fields"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/rules"
)

// pageStart is the beginning of an HTML page, as it passed. It is read for preferences when the page has passed, so that the
// page does not wait.
type pageStart struct {
	coding string
	begin  []byte // at most fields.MaxPage
}

// newPage returns the beginning of the page in resp, still empty, or nil if resp has none or only a part of one.
func newPage(resp *http.Response) *pageStart {
	whole := policy.CarriesContent(resp.Request.Method, resp.StatusCode) && resp.StatusCode != http.StatusPartialContent
	if !whole || !fields.IsPage(resp.Header) {
		return nil
	}
	return &pageStart{coding: resp.Header.Get("Content-Encoding")}
}

// add adds bytes that pass. It does nothing if p is nil.
func (p *pageStart) add(b []byte) {
	if p != nil {
		p.begin = append(p.begin, b[:min(len(b), fields.MaxPage-len(p.begin))]...)
	}
}

// notePage records the preferences in the page that has passed, if there is one.
func (ex *exchange) notePage() {
	if ex.page == nil {
		return
	}
	judged := &ex.judged.request
	crawler := cmp.Or(judged.Client.ProductToken, rules.ProductToken(judged.UserAgent))
	preferences := fields.PageUsage(ex.page.begin, ex.page.coding, crawler)
	ex.rec.AddUsage(ex.query.Text(fields.UsageText("html", preferences)))
	ex.page = nil
}
