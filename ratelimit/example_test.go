package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math"
	"time"

	"github.com/robotsproxy/robotsproxy/ratelimit"
)

func Example() {
	l, err := ratelimit.New(ratelimit.Options{})
	if err != nil {
		log.Fatal(err)
	}
	r := ratelimit.Request{Key: "a.example", Client: "news", Delay: 10 * time.Second, MaxWait: time.Second}

	g, err := l.Acquire(context.Background(), r)
	if err != nil {
		log.Fatal(err)
	}
	// Here the request is sent, and its response read to the end.
	g.Release(ratelimit.Outcome{Status: 200})

	var wait *ratelimit.WaitError
	if _, err := l.Acquire(context.Background(), r); errors.As(err, &wait) {
		fmt.Println("Retry-After:", math.Ceil(wait.Wait.Seconds()))
	}
	// Output: Retry-After: 10
}
