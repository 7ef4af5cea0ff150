package rules_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/rules"
)

// verdictsHash is the hash of the verdicts of Version.
const verdictsHash = "835c88e6cdb5b5f10e1136e43ab0e2b8af4f18817e321d5a110f294b6a239371"

// The files of the corpus are made of these lines.
var corpusLines = []string{
	"User-agent: *", "User-agent: NewsBot", "user-agent: newsbot/2.0", "User-agent: News", "User-agent: other bot", "User-agent:",
	"Disallow: /", "Disallow:", "Disallow: /private/", "Allow: /private/open", "Disallow: /*.pdf$", "Allow: /*?id=", "Disallow: /a%2fb",
	"Disallow: /a%2Fb%7e", "Allow: /~a", "Disallow: *", "Allow: $", "Disallow: /ä", "Disallow: /%C3%A4", "Disallow private",
	"Disallow: /x # not /y", " Allow : /x ", "disallow: x", "Disallow: http://a.example/y", "Noindex: /n", "Sitemap: /s.xml", "", "# text",
	"Crawl-delay: 2", "Crawl-delay: 0.5", "Crawl-delay: x", "Request-rate: 1/5", "Request-rate: 30/1m 0600-0845", "Visit-time: 0600-0845",
	"Content-Usage: train-ai=n", "User-agent: * (all)", "User-agent: NewsBot Crawl-delay: 3 Disallow: /x", "User-agent: other Allow: /a", "Disallows: /a",
	"Content-Usage: /x train-ai=y", "Content-Signal: search=yes, ai-train=no", "<html>", "\x00\xff",
}

var (
	corpusAgents  = []string{"", "NewsBot", "NewsBot/2.0", "Mozilla/5.0 (compatible; NewsBot/1.0)", "news", "other bot"}
	corpusTargets = []string{
		"/", "/private/", "/private/open/x", "/file.pdf", "/file.pdf?id=1", "/a/b", "/a%2Fb~", "/%7Ea", "/ä", "/%c3%a4", "/x", "/y",
		"/robots.txt", "x", "", "/x?", "/a;",
	}
)

func TestChangedVerdictsHaveANewVersion(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	hash := sha256.New()
	for range 300 {
		lines := []string{corpusLines[random.IntN(6)]}
		for range 1 + random.IntN(12) {
			lines = append(lines, corpusLines[random.IntN(len(corpusLines))])
		}
		body := []byte(strings.Join(lines, []string{"\n", "\r\n", "\r"}[random.IntN(3)]))
		for _, d := range rules.Dialects() {
			set := rules.Parse(body, rules.Options{Dialect: d, RobotsURL: "http://a.example/robots.txt"})
			for _, name := range corpusAgents {
				agent := set.Agent(name)
				delay, _ := agent.CrawlDelay()
				rate, _ := agent.RequestRate()
				all, _ := agent.DisallowsAll()
				fmt.Fprintf(hash, "%q %v %+v %+v\n", agent.Token(), delay, rate, all)
				for _, target := range corpusTargets {
					uses, _ := agent.UsesOf(target)
					fmt.Fprintf(hash, "%+v %+v\n", agent.Verdict(target), uses)
				}
			}
		}
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != verdictsHash {
		t.Errorf("The verdicts have changed, or this corpus or the list of dialects has. If the verdicts have, raise Version, "+
			"which is %d, so that records of earlier verdicts do not look false. Then set verdictsHash to %q.", rules.Version, got)
	}
}
