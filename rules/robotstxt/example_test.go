package robotstxt_test

import (
	"fmt"

	"github.com/robotsproxy/robotsproxy/rules/robotstxt"
)

const robots = `User-agent: *
Disallow: /private/
Allow: /private/press
Crawl-delay: 2.5
Sitemap: https://site.example/sitemap.xml
`

func Example() {
	data, err := robotstxt.FromStatusAndString(200, robots)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(data.TestAgent("/private/report", "NewsBot/2.1"))
	fmt.Println(data.Sitemaps)
	// Output:
	// false
	// [https://site.example/sitemap.xml]
}

func ExampleRobotsData_FindGroup() {
	data, _ := robotstxt.FromString(robots)
	group := data.FindGroup("NewsBot")
	fmt.Println(group.Agent, group.CrawlDelay)
	fmt.Println(group.Test("/private/report"), group.Test("/private/press/1"))
	// Output:
	// * 2.5s
	// false true
}

func ExampleGroup_Verdict() {
	data, _ := robotstxt.FromString(robots)
	v := data.FindGroup("NewsBot").Verdict("/private/report")
	fmt.Println(v.Allowed, v.Line, v.Rule)
	// Output: false 2 Disallow: /private/
}
