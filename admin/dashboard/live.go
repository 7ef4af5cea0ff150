package dashboard

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
)

// Live passes requests that have ended to the pages that are open. Its zero value is ready, and it is safe for
// concurrent use. It costs one comparison per request while no page is open.
type Live struct {
	watched  atomic.Int32 // number of watchers
	mu       sync.Mutex   // guards watchers, and the fields of each
	watchers map[*watcher]bool
}

// watcher is one open page.
type watcher struct {
	filter  audit.Filter
	rows    []audit.Record // since the last look
	skipped int            // beyond maxBurst, since the last look
}

const (
	maxBurst    = 20                     // rows of one look; a reader can not follow more
	lookEvery   = 400 * time.Millisecond //
	maxWatchers = 100                    // open pages
	keepAlive   = 15 * time.Second       // between comments on a quiet stream
)

// Observe passes a copy of r to each page with a filter that selects it.
func (l *Live) Observe(r *audit.Record) {
	if l.watched.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.watchers {
		switch {
		case !w.filter.Selects(r):
		case len(w.rows) == maxBurst:
			w.skipped++
		default:
			copied := *r
			copied.Evidence = audit.Evidence{}
			w.rows = append(w.rows, copied)
		}
	}
}

// watch adds a watcher. It returns nil if there are too many.
func (l *Live) watch(f audit.Filter) *watcher {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.watchers) >= maxWatchers {
		return nil
	}
	if l.watchers == nil {
		l.watchers = make(map[*watcher]bool)
	}
	w := &watcher{filter: f}
	l.watchers[w] = true
	l.watched.Add(1)
	return w
}

func (l *Live) unwatch(w *watcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.watchers, w)
	l.watched.Add(-1)
}

// take returns the rows of w since the last call, and how many were skipped.
func (l *Live) take(w *watcher) (rows []audit.Record, skipped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rows, skipped = w.rows, w.skipped
	w.rows, w.skipped = nil, 0
	return rows, skipped
}

// live streams the requests that a filter selects, as rows of the table of decisions: server-sent events (HTML Living
// Standard, section 9.2). An event "row" has a row, and an event "skipped" the number of those that are not shown.
func (h *Handler) live(w http.ResponseWriter, r *http.Request) {
	f, err := readFilter(r.URL.Query(), period{}, time.Now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	watcher := h.options.Live.watch(f)
	if watcher == nil {
		http.Error(w, fmt.Sprintf("%d pages are open, which is the maximum", maxWatchers), http.StatusServiceUnavailable)
		return
	}
	defer h.options.Live.unwatch(watcher)
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	if _, err := w.Write([]byte(": open\n\n")); err != nil || out.Flush() != nil {
		return
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	quiet := time.Now()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-look.C:
		}
		event := h.events(watcher)
		if len(event) == 0 {
			if time.Since(quiet) < keepAlive {
				continue
			}
			event = []byte(": quiet\n\n")
		}
		quiet = time.Now()
		_ = out.SetWriteDeadline(quiet.Add(keepAlive)) // a listener without deadlines writes without one
		if _, err := w.Write(event); err != nil || out.Flush() != nil {
			return
		}
	}
}

// events returns the new rows of w as events.
func (h *Handler) events(w *watcher) []byte {
	rows, skipped := h.options.Live.take(w)
	var b bytes.Buffer
	for i := range rows {
		var row bytes.Buffer
		if err := pages["decisions.html"].ExecuteTemplate(&row, "row", &rows[i]); err != nil {
			continue
		}
		b.WriteString("event: row\n")
		for line := range bytes.Lines(row.Bytes()) {
			b.WriteString("data: ")
			b.Write(bytes.TrimRight(line, "\r\n"))
			b.WriteByte('\n')
		}
		b.WriteByte('\n')
	}
	if skipped > 0 {
		fmt.Fprintf(&b, "event: skipped\ndata: %d\n\n", skipped)
	}
	return b.Bytes()
}
