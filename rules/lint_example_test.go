package rules_test

import (
	"fmt"

	"github.com/robotsproxy/robotsproxy/rules"
)

func ExampleLint() {
	const robots = "User-agent: *\nDissallow: /private/\nDisallow: tmp/\nCrawl-delay: 10s\n"
	for _, f := range rules.Lint([]byte(robots), rules.Options{}) {
		fmt.Printf("%d:%d: %v: %s. %s\n", f.Line, f.Column, f.Severity, f.Message, f.Fix)
	}
	// Output:
	// 2:1: error: "Dissallow" is not "Disallow", and only lenient crawlers read it as that. Write "Disallow".
	// 3:11: error: "tmp/" begins with neither "/" nor "*", and no path does, so that the rule matches nothing. Write "/tmp/".
	// 4:16: error: "s" is glued to the number, and the delay is passed over. Write "Crawl-delay: 10".
}

func ExampleChecks() {
	for _, c := range rules.Checks()[:2] {
		fmt.Printf("%s (%v): %s\n", c.Code, c.Severity, c.Summary)
	}
	// Output:
	// html-page (error): The file is a web page.
	// too-large (error): The file is larger than crawlers must read, so they ignore its end.
}
