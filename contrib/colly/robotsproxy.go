// Package robotsproxy makes a Colly collector understand the refusals of robotsproxy.
//
//	c := colly.NewCollector()
//	robotsproxy.Use(c, func(r *colly.Response, reason string) { log.Printf("%s: %s", r.Request.URL, reason) })
//
// The collector finds the proxy and its CA by the variables of "robotsproxy env".
package robotsproxy

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/gocolly/colly/v2"
)

// maxWait is longer than pacing.max_wait, for which the proxy holds a request. Colly's own time-out is ten seconds.
const maxWait = 180 * time.Second

// refusal matches a Proxy-Status (RFC 9209) of the proxy's own responses. Responses of sites have no error there.
var refusal = regexp.MustCompile(`^robotsproxy; error=[^;]+(?:; details="(.*)")?`)

// Use lets c wait as long as the proxy does. It sends one request to a host at a time, repeats a request after a 429 of the proxy
// when Retry-After has passed, and calls refused for every other refusal.
func Use(c *colly.Collector, refused func(r *colly.Response, reason string)) error {
	c.SetRequestTimeout(maxWait)
	if err := c.Limit(&colly.LimitRule{DomainGlob: "*", Parallelism: 1}); err != nil {
		return fmt.Errorf("robotsproxy: limiting the collector: %w", err)
	}
	c.OnError(func(r *colly.Response, _ error) {
		if r.Headers == nil { // there is no response
			return
		}
		match := refusal.FindStringSubmatch(r.Headers.Get("Proxy-Status"))
		if match == nil {
			return
		}
		if r.StatusCode == http.StatusTooManyRequests {
			seconds, _ := strconv.Atoi(r.Headers.Get("Retry-After"))
			time.Sleep(time.Duration(max(1, seconds)) * time.Second)
			_ = r.Request.Retry() // OnError hears of its error
			return
		}
		refused(r, match[1])
	})
	return nil
}
