package ownfetch_test

import (
	"context"
	"fmt"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/ownfetch"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/ratelimit"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
	"github.com/robotsproxy/robotsproxy/rules"
)

// closed is a cache in which every host disallows everything.
type closed struct{}

func (closed) Kept(origin.Origin) *robots.Snapshot {
	file := rules.Parse([]byte("User-agent: *\nDisallow: /\n"), rules.Options{})
	return &robots.Snapshot{Answer: fetch.Answer{Availability: fetch.Found}, Rules: file}
}

func (c closed) ToJudge(_ context.Context, o origin.Origin, _ fetch.Asker) (*robots.Snapshot, error) {
	return c.Kept(o), nil
}

func Example() {
	judge, err := policy.New(policy.Options{})
	if err != nil {
		panic(err)
	}
	limiter, err := ratelimit.New(ratelimit.Options{})
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	fetches := ownfetch.New(ownfetch.Options{Rules: closed{}, Policy: judge, Limiter: limiter})

	victim, _ := origin.Parse("http://victim.example")
	_, err = fetches.Admit(context.Background(), fetch.Hop{To: victim, Target: "/private", Page: true})
	fmt.Println(err)
	// Output: line 2 of http://victim.example/robots.txt disallows that for *: Disallow: /; an operator who knows better sets robots_file in hosts
}
