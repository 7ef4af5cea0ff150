package plan_test

import (
	"fmt"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/plan"
	"github.com/robotsproxy/robotsproxy/origin"
)

func Example() {
	docs, err := origin.Parse("https://docs.example")
	if err != nil {
		panic(err)
	}
	p := plan.New([]plan.Host{
		{Origin: docs, Lane: docs.Host(), URLs: 5000, Allowed: 4560, Refused: 440, Delay: 5 * time.Second, DelaySource: "crawl-delay"},
	}, plan.Pace{Connections: 4, MaxConcurrent: 8})
	fmt.Println(p.Allowed, "of", p.URLs, "in", p.Time)
	// Output: 4560 of 5000 in 6h20m0s
}
