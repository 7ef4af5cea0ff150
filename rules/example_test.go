package rules_test

import (
	"fmt"
	"net/url"

	"github.com/robotsproxy/robotsproxy/rules"
)

const robots = `User-agent: *
Disallow: /private/
Allow: /private/press$
Crawl-delay: 0.5

User-agent: NewsBot
Disallow: /*.pdf$
Sitemap: https://site.example/sitemap.xml
`

func Example() {
	set := rules.Parse([]byte(robots), rules.Options{})
	agent := set.Agent("ArchiveBot/2.1 (+https://archive.example/bot)")
	for _, target := range []string{"/", "/private/x", "/private/press", "https://site.example/%70rivate/?q"} {
		v := agent.Verdict(target)
		fmt.Printf("%v line %d %q\n", v.Allowed, v.Line, v.Rule)
	}
	// Output:
	// true line 0 ""
	// false line 2 "Disallow: /private/"
	// true line 3 "Allow: /private/press$"
	// false line 2 "Disallow: /private/"
}

func ExampleAllowed() {
	fmt.Println(rules.Allowed([]byte(robots), "NewsBot/2.1", "https://site.example/report.pdf"))
	fmt.Println(rules.Allowed([]byte(robots), "NewsBot/2.1", "https://site.example"))
	fmt.Println(rules.Allowed([]byte(robots), "OtherBot", "/private/press"))
	fmt.Println(rules.Allowed([]byte(robots), "OtherBot", "site.example/")) // neither a URL nor a path
	// Output:
	// false
	// true
	// true
	// false
}

func ExampleRuleset_Agent() {
	set := rules.Parse([]byte(robots), rules.Options{})
	fmt.Println(set.Agent("Mozilla/5.0 (compatible; NewsBot/2.1; +https://news.example)").Token())
	fmt.Println(set.Agent("OtherBot").Token())
	// Output:
	// newsbot
	// *
}

func ExampleAgent_Verdict() {
	v := rules.Parse([]byte(robots), rules.Options{}).Agent("NewsBot").Verdict("/report.pdf")
	fmt.Println(v.Allowed, v.Rule)
	fmt.Println("group of", v.Group.Agents, "in line", v.Group.Line)
	// Output:
	// false Disallow: /*.pdf$
	// group of NewsBot in line 6
}

func ExampleAgent_CrawlDelay() {
	set := rules.Parse([]byte(robots), rules.Options{})
	fmt.Println(set.Agent("OtherBot").CrawlDelay())
	fmt.Println(set.Agent("NewsBot").CrawlDelay())
	// Output:
	// 500ms true
	// 0s false
}

func ExampleRuleset_Sitemaps() {
	fmt.Println(rules.Parse([]byte(robots), rules.Options{}).Sitemaps())
	// Output: [https://site.example/sitemap.xml]
}

func ExampleProductToken() {
	fmt.Println(rules.ProductToken("NewsBot/2.1 (+https://news.example/bot)"))
	fmt.Println(rules.ProductToken("Mozilla/5.0 (compatible; ExampleBot/0.1; +https://bot.example)"))
	// Output:
	// NewsBot
	// ExampleBot
}

func ExampleParseDialect() {
	const robots = "User-agent: *\nDisallow: /a\nAllow: /ab\n"
	for _, name := range []string{"rfc9309", "mk1996"} {
		dialect, err := rules.ParseDialect(name)
		if err != nil {
			fmt.Println(err)
			return
		}
		set := rules.Parse([]byte(robots), rules.Options{Dialect: dialect})
		fmt.Println(dialect, set.Agent("NewsBot").Verdict("/abc").Rule)
	}
	// Output:
	// rfc9309 Allow: /ab
	// mk1996 Disallow: /a
}

func ExampleAgent_Explain() {
	const robots = "User-agent: *\nDisallow: /a\nAllow: /ab\n\nUser-agent: NewsBot\nDisallow: /abc\n"
	e := rules.Parse([]byte(robots), rules.Options{}).Agent("OtherBot/1.0").Explain("/abcd")
	fmt.Println(e.Verdict.Allowed, e.Verdict.Rule+":", e.Why)
	for _, m := range e.Matches {
		fmt.Println("matches:", m.Rule, m.Octets)
	}
	for _, m := range e.OtherAgents {
		fmt.Println("for", m.Group.Agents+":", m.Rule)
	}
	// Output:
	// true Allow: /ab: it has the most octets of the rules that match
	// matches: Allow: /ab 3
	// matches: Disallow: /a 2
	// for NewsBot: Disallow: /abc
}

func ExampleAgent_DisallowsAll() {
	set := rules.Parse([]byte("User-agent: *\nDisallow: /\n\nUser-agent: NewsBot\nDisallow: /private/\n"), rules.Options{})
	for _, name := range []string{"OtherBot", "NewsBot"} {
		v, all := set.Agent(name).DisallowsAll()
		fmt.Println(all, v.Rule)
	}
	// Output:
	// true Disallow: /
	// false
}

func ExampleRuleset_String() {
	set := rules.Parse([]byte("# ours\nuseragent:NewsBot # and others\nDisallow:/x\nnonsense\n"), rules.Options{})
	fmt.Print(set)
	// Output:
	// User-agent: NewsBot
	// Disallow:/x
}

func ExampleRuleset_Fields() {
	const robots = "License: https://site.example/rsl.xml\nUser-agent: *\nContent-Signal: search=yes, ai-train=no\nAllow: /\nSitemap: /s.xml\n"
	for _, f := range rules.Parse([]byte(robots), rules.Options{}).Fields("license", "content-signal", "sitemap") {
		fmt.Printf("%d %s=%s\n", f.Line, f.Name, f.Value)
	}
	// Output:
	// 1 License=https://site.example/rsl.xml
	// 3 Content-Signal=search=yes, ai-train=no
	// 5 Sitemap=/s.xml
}

func ExampleRuleset_Host() {
	fmt.Println(rules.Parse([]byte("Host: www.site.example\n"), rules.Options{}).Host())
	// Output: www.site.example
}

func ExampleAgent_RequestRate() {
	rate, ok := rules.Parse([]byte("User-agent: *\nRequest-rate: 1/5m 0600-0845\n"), rules.Options{}).Agent("NewsBot").RequestRate()
	fmt.Println(rate.Requests, rate.Per, rate.During.From, rate.During.To, ok)
	// Output: 1 5m0s 6h0m0s 8h45m0s true
}

func ExampleAgent_VisitTime() {
	fmt.Println(rules.Parse([]byte("User-agent: *\nVisit-time: 0600-0845\n"), rules.Options{}).Agent("NewsBot").VisitTime())
	// Output: {6h0m0s 8h45m0s} true
}

func ExampleAgent_ContentUsage() {
	const robots = "User-agent: *\nContent-Usage: train-ai=n\nContent-Usage: /free/ train-ai=y\nAllow: /\n"
	usage, ok := rules.Parse([]byte(robots), rules.Options{}).Agent("NewsBot").ContentUsage("/free/x")
	fmt.Println(usage.Line, usage.Pattern, usage.Preferences, ok)
	// Output: 3 /free/ train-ai=y true
}

func ExampleDialect_Access() {
	fmt.Println(rules.DialectRFC9309.Access(403) == rules.AccessAll, rules.DialectMK1996.Access(403) == rules.AccessNone)
	// Output: true true
}

func ExampleAgent_VerdictURL() {
	u, _ := url.Parse("https://user@a.example/private/x?y=1#top")
	set := rules.Parse([]byte("User-agent: *\nDisallow: /private/*?y=\n"), rules.Options{})
	fmt.Println(set.Agent("NewsBot").VerdictURL(u).Rule)
	// Output: Disallow: /private/*?y=
}
