package robots_test

import (
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// answering is a transport that gives the same answer to all, without a network: so it can run under synctest.
type answering struct {
	status int
	header http.Header
	body   string
}

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.status, Status: http.StatusText(a.status), Header: a.header, Body: io.NopCloser(strings.NewReader(a.body)), Request: r}, nil
}

// kept returns for how long the answer is used. Under synctest no time passes meanwhile, so it is exact.
func kept(t *testing.T, a answering, edit func(*fetch.Options)) time.Duration {
	snap := fetched(t, newFetcherOver(t, a, edit), "http://a.example")
	if since := time.Since(snap.Fetched); since != 0 {
		t.Errorf("Fetched is %v ago, want now", since)
	}
	return snap.Expires.Sub(snap.Fetched)
}

func TestLifetime(t *testing.T) {
	const hour, day = time.Hour, 24 * time.Hour
	at := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	for _, row := range []struct {
		name   string
		header func() http.Header
		want   time.Duration
	}{
		{"2.4/nothing said", func() http.Header { return http.Header{} }, day},
		{"2.4/a week", cacheControl("max-age=604800"), day},
		{"2.4/an hour", cacheControl("max-age=3600"), hour},
		{"2.4/a minute is less than MinTTL", cacheControl("max-age=60"), 5 * time.Minute},
		{"9111 5.2.2.1/none", cacheControl("max-age=0"), 5 * time.Minute},
		{"9111 5.2.2.1/quoted", cacheControl(`max-age="3600"`), hour},
		{"9111 4.2.1/no number", cacheControl("max-age=soon"), 5 * time.Minute},
		{"9111 4.2.1/a negative number", cacheControl("max-age=-5"), 5 * time.Minute},
		{"9111 4.2.1/no-cache beside what is no number", cacheControl("no-cache, max-age=soon"), 5 * time.Minute},
		{"9111 4.2.1/a number and more, which Expires does not mend", func() http.Header {
			return http.Header{"Cache-Control": {"max-age=3600s"}, "Expires": {at(hour)}}
		}, 5 * time.Minute},
		{"9111 5.2/another separator", cacheControl("public; max-age=3600"), hour},
		{"9111 1.2.2/too large a number", cacheControl("max-age=99999999999999999999"), day},
		{"9111 5.2.2.4/no-cache", cacheControl("no-cache, max-age=3600"), 5 * time.Minute},
		{"9111 5.2.2.5/no-store", cacheControl("no-store"), 5 * time.Minute},
		{"9111 5.2.2.10/s-maxage goes first", cacheControl("max-age=0, s-maxage=3600"), hour},
		{"9110 5.3/two fields", cacheControl("public", "max-age=3600"), hour},
		{"9111 5.1/Age", func() http.Header { return http.Header{"Cache-Control": {"max-age=7200"}, "Age": {"3600"}} }, hour},
		{"9111 5.1/Age of Expires", func() http.Header { return http.Header{"Expires": {at(2 * hour)}, "Age": {"3600"}} }, hour},
		{"9111 5.1/Age beyond max-age", func() http.Header { return http.Header{"Cache-Control": {"max-age=3600"}, "Age": {"99999999999"}} }, 5 * time.Minute},
		{"9111 5.1/Age that is none", func() http.Header { return http.Header{"Cache-Control": {"max-age=3600"}, "Age": {"-5"}} }, hour},
		{"9111 5.3/Expires", func() http.Header { return http.Header{"Expires": {at(hour)}} }, hour},
		{"9111 5.3/Expires in a week", func() http.Header { return http.Header{"Expires": {at(7 * day)}} }, day},
		{"9111 5.3/Expires in the past", func() http.Header { return http.Header{"Expires": {at(-hour)}} }, 5 * time.Minute},
		{"9111 5.3/Expires: 0", func() http.Header { return http.Header{"Expires": {"0"}} }, 5 * time.Minute},
		{"9111 5.3/max-age goes before Expires", func() http.Header { return http.Header{"Cache-Control": {"max-age=3600"}, "Expires": {at(2 * hour)}} }, hour},
		{"9111 4.2.1/a clock that is wrong", func() http.Header { return http.Header{"Date": {at(-7 * day)}, "Expires": {at(-7*day + hour)}} }, hour},
	} {
		for _, status := range []int{200, 404} {
			t.Run(row.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := row.header()
					if got := kept(t, answering{status: status, header: h}, nil); got != row.want {
						t.Errorf("%d with %v is kept for %v, want %v", status, h, got, row.want)
					}
				})
			})
		}
	}
}

func cacheControl(values ...string) func() http.Header {
	return func() http.Header { return http.Header{"Cache-Control": values} }
}

func TestLifetimeOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short := func(o *fetch.Options) { o.TTL = time.Minute }
		if got := kept(t, answering{status: 200, header: http.Header{}}, short); got != time.Minute {
			t.Errorf("TTL 1 min, nothing said: kept for %v", got)
		}
		if got := kept(t, answering{status: 200, header: cacheControl("max-age=1")()}, short); got != time.Minute {
			t.Errorf("TTL 1 min, max-age=1: kept for %v, want the TTL, since the default MinTTL is longer", got)
		}
		least := func(o *fetch.Options) { o.MinTTL = 48 * time.Hour }
		if got := kept(t, answering{status: 200, header: cacheControl("max-age=1")()}, least); got != 24*time.Hour {
			t.Errorf("MinTTL 48 h: kept for %v, want 24 h (2.4)", got)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	for _, row := range []struct {
		name  string
		value func() string
		want  time.Duration
	}{
		{"9110 10.2.3/none", func() string { return "" }, time.Minute},
		{"9110 10.2.3/seconds", func() string { return "600" }, 10 * time.Minute},
		{"9110 10.2.3/a date", func() string { return time.Now().Add(time.Hour).UTC().Format(http.TimeFormat) }, time.Hour},
		{"9110 10.2.3/a date of old form", func() string { return time.Now().Add(time.Hour).UTC().Format(time.ANSIC) }, time.Hour},
		{"9110 10.2.3/less than ErrorTTL", func() string { return "1" }, time.Minute},
		{"9110 10.2.3/a past date", func() string { return "Sun, 06 Nov 1994 08:49:37 GMT" }, time.Minute},
		{"9110 10.2.3/neither", func() string { return "soon" }, time.Minute},
		{"9110 10.2.3/negative", func() string { return "-5" }, time.Minute},
		{"9110 10.2.3/a week", func() string { return "604800" }, 24 * time.Hour},
		{"9110 10.2.3/a date in a year", func() string { return time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat) }, 24 * time.Hour},
		{"9110 10.2.3/too large a number", func() string { return "99999999999999999999" }, 24 * time.Hour},
	} {
		for _, status := range []int{429, 503} {
			t.Run(row.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := http.Header{"Retry-After": {row.value()}, "Cache-Control": {"max-age=86400"}}
					if got := kept(t, answering{status: status, header: h}, nil); got != row.want {
						t.Errorf("%d with %v is kept for %v, want %v", status, h, got, row.want)
					}
				})
			})
		}
	}
}

// TestSlowFailure counts the time to keep a failure from its end: else one that took longer would be over when it
// begins.
func TestSlowFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		f := newFetcherOver(t, slow, func(o *fetch.Options) { o.Timeout, o.ErrorTTL = 10*time.Second, 5*time.Second })
		snap := fetched(t, f, "http://a.example")
		if got := time.Until(snap.Expires); got != 5*time.Second {
			t.Errorf("a failure that took 10 s is kept for %v more, want 5 s", got)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestRefused asks every 500 ms of an origin that refuses connections. ErrorTTL is the limit only if it is shorter.
func TestRefused(t *testing.T) {
	for _, row := range []struct {
		errorTTL time.Duration
		want     string // between two fetches
	}{
		{time.Minute, "1s 2s 4s 8s 16s 32s 1m4s 2m8s 4m16s 8m32s 17m4s 30m0s 30m0s"},
		{500 * time.Millisecond, "500ms 1s 2s 4s 8s 16s 32s 1m4s 2m8s 4m16s 8m32s 17m4s 30m0s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var last time.Time
			var gaps []string
			refusing := roundTripper(func(*http.Request) (*http.Response, error) {
				if !last.IsZero() {
					gaps = append(gaps, time.Since(last).String())
				}
				last = time.Now()
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
			})
			f := newFetcherOver(t, refusing, func(o *fetch.Options) { o.ErrorTTL = row.errorTTL })
			c := newCache(t, robots.CacheOptions{Fetch: f.Fetch})
			for len(gaps) < 13 {
				lookUp(t, c, mustOrigin(t, "http://a.example"))
				synctest.Wait()
				time.Sleep(500 * time.Millisecond)
			}
			if got := strings.Join(gaps, " "); got != row.want {
				t.Errorf("ErrorTTL %v: time between fetches: %s, want %s", row.errorTTL, got, row.want)
			}
		})
	}
}
