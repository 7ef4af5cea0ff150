package sampleweb

import (
	"html/template"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// Site describes one site of the web.
type Site struct {
	URL   string // of its first page
	About string // the behaviour that it shows, for people
}

// Sites returns the sites that crawls begin with.
func Sites() (all []Site) {
	for _, s := range sites {
		if s.about != "" {
			all = append(all, Site{s.url(), s.about})
		}
	}
	return all
}

// site is one host.
type site struct {
	host   string
	scheme string // of the links to it; if empty, http
	about  string // if empty, only other sites lead to it
	robots string // the robots.txt; if empty, there is none
	pages  []page // the first one is /
	treat  func(http.Handler) http.Handler
}

func (s site) url() string {
	if s.scheme != "" {
		return s.scheme + "://" + s.host + "/"
	}
	return "http://" + s.host + "/"
}

type page struct {
	path  string // with the query
	title string
	text  string
}

const (
	slowness   = 1500 * time.Millisecond
	limitAfter = 3    // requests
	retryAfter = "30" // seconds
)

var sites = []site{
	{
		host: "news.example", about: "closes /private/, and everything to PriceWatch",
		robots: "# Ask web@news.example for more.\nUser-agent: *\nDisallow: /private/\nAllow: /private/press/\n\n" +
			"User-agent: PriceWatch\nDisallow: /\n",
		pages: []page{
			{"/", "The Example News", "News of hosts that do not exist."},
			{"/today", "Today", "The port was quiet. A packet arrived, and was answered."},
			{"/weather", "Weather", "Cloudy, with a low chance of time-outs."},
			{"/private/drafts", "Drafts", "Not for crawlers."},
			{"/private/press/2026", "Press", "A page in a closed folder that an Allow line opens."},
		},
	},
	{
		host: "shop.example", about: "closes its cart; the demo has an exemption for its prices",
		robots: "User-agent: *\nDisallow: /cart/\nDisallow: /*?sort=\nDisallow: /prices\n",
		pages: []page{
			{"/", "Example Furniture", "Tables and chairs."},
			{"/chairs", "Chairs", "Four legs each."},
			{"/chairs?sort=price", "Chairs by price", "The same chairs."},
			{"/cart/add?item=7", "Cart", "A crawler that comes here has bought a chair."},
			{"/prices", "Prices", "For partners, who have agreed on it with the shop."},
		},
	},
	{
		host: "docs.example", about: "asks for 2 s between requests (Crawl-delay)",
		robots: "User-agent: *\nCrawl-delay: 2\nDisallow: /search\n",
		pages: []page{
			{"/", "Example Manual", "All pages of it, slowly."},
			{"/install", "Install", "Unpack it. Read the next page."},
			{"/use", "Use", "Start it, and wait."},
			{"/search?q=proxy", "Search", "Each search costs this small server a second."},
		},
	},
	{
		host: "bank.example", scheme: "https", about: "closes /account/, over https",
		robots: "User-agent: *\nDisallow: /account/\n",
		pages: []page{
			{"/", "Example Bank", "Your money is an example, too."},
			{"/rates", "Rates", "Zero."},
			{"/account/login", "Log in", "Not for crawlers."},
		},
	},
	{
		host: "lab.example", about: "closes everything; here that is only recorded (mode report)",
		robots: "User-agent: *\nDisallow: /\n",
		pages: []page{
			{"/", "Example Laboratory", "Measurements of nothing."},
			{"/data", "Data", "0, 0, 0."},
		},
	},
	{
		host: "old.example", about: "redirects its robots.txt to another host",
		treat: redirectRobots("http://www.old.example/robots.txt"),
		pages: []page{
			{"/", "Example Archive", "Pages from before."},
			{"/1996", "1996", "Best viewed."},
			{"/cgi-bin/counter", "Counter", "You are visitor 000001."},
		},
	},
	{
		host: "www.old.example", robots: "User-agent: *\nDisallow: /cgi-bin/\n",
		pages: []page{{"/", "Example Archive", "The archive is at old.example."}},
	},
	{
		host: "wall.example", about: "has a web page in place of its robots.txt (bot wall)",
		treat: wall,
		pages: []page{{"/", "Example Wall", "Only a browser comes here."}},
	},
	{
		host: "slow.example", about: "has no robots.txt, and answers after 1.5 s", treat: slow,
		pages: []page{
			{"/", "Example Turtles", "They arrive."},
			{"/shells", "Shells", "Of turtles."},
		},
	},
	{
		host: "api.example", about: "answers 429 with Retry-After after three requests", robots: "User-agent: *\nDisallow:\n",
		treat: limit,
		pages: []page{
			{"/", "Example API", "A few requests are free."},
			{"/v1/hosts", "Hosts", "All of them are examples."},
			{"/v1/ports", "Ports", "80."},
			{"/v1/names", "Names", "See RFC 2606."},
		},
	},
	{
		host: "wire.example", about: "answers 503 for its robots.txt (unreachable)", treat: failRobots,
		pages: []page{
			{"/", "Example Wire", "Telegrams."},
			{"/stop", "Stop", "Stop."},
		},
	},
}

// newSites returns the handler of all sites.
func newSites() http.Handler {
	hosts := make(map[string]http.Handler, len(sites))
	for _, s := range sites {
		hosts[s.host] = s.handler()
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if h := hosts[strings.ToLower(host)]; h != nil {
			h.ServeHTTP(w, r)
			return
		}
		write(w, http.StatusNotFound, content{"There is no such site here", "These are the sites:", siteLinks()})
	})
}

func (s site) handler() http.Handler {
	var h http.Handler = http.HandlerFunc(s.serve)
	if s.treat != nil {
		h = s.treat(h)
	}
	return h
}

// serve serves the robots.txt and the pages.
func (s site) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/robots.txt" && s.robots != "" {
		_, _ = io.WriteString(w, s.robots) // an error means that the client has left
		return
	}
	for _, p := range s.pages {
		if p.path == r.URL.RequestURI() {
			write(w, http.StatusOK, content{p.title, p.text, s.links()})
			return
		}
	}
	write(w, http.StatusNotFound, content{"There is no such page", "These are the pages of " + s.host + ":", s.links()})
}

// redirectRobots redirects requests for robots.txt to another URL.
func redirectRobots(to string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return forRobots(http.RedirectHandler(to, http.StatusMovedPermanently), next)
	}
}

func failRobots(next http.Handler) http.Handler {
	return forRobots(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the server is being repaired", http.StatusServiceUnavailable)
	}), next)
}

// forRobots serves requests for robots.txt with robots, and others with next.
func forRobots(robots, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			robots.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// wall answers a robots.txt and a page alike: with a challenge, as bot walls do.
func wall(http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusForbidden
		if r.URL.Path == "/robots.txt" {
			status = http.StatusOK
		}
		write(w, status, content{Title: "Checking your browser", Text: "One moment. This page is a challenge for programs."})
	})
}

func slow(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wait(r.Context(), slowness)
		next.ServeHTTP(w, r)
	})
}

// limit answers one page of limitAfter+1 with 429.
func limit(next http.Handler) http.Handler {
	var pages atomic.Int64
	return forRobots(next, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if pages.Add(1)%(limitAfter+1) != 0 {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Retry-After", retryAfter)
		http.Error(w, "too many requests; come back in "+retryAfter+" s", http.StatusTooManyRequests)
	}))
}

// content is the content of a page.
type content struct {
	Title, Text string
	Links       []link
}

type link struct{ URL, Text string }

func (s site) links() (links []link) {
	for _, p := range s.pages {
		links = append(links, link{p.path, p.title})
	}
	return links
}

func siteLinks() (links []link) {
	for _, s := range Sites() {
		links = append(links, link{s.URL, s.URL + ": " + s.About})
	}
	return links
}

var pageTemplate = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{.Title}}</title>
<style>
:root { color-scheme: light dark }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 36rem; margin: 4rem auto; padding: 0 1rem }
</style>
<h1>{{.Title}}</h1>
<p>{{.Text}}</p>
<ul>
{{range .Links}}<li><a href="{{.URL}}">{{.Text}}</a></li>
{{end}}</ul>
</html>
`))

func write(w http.ResponseWriter, status int, c content) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = pageTemplate.Execute(w, c) // an error means that the client has left
}
