package rules_test

import (
	"fmt"

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
