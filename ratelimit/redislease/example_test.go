package redislease_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"strconv"
	"time"

	"github.com/robotsproxy/robotsproxy/ratelimit/redislease"
)

// The instances share the highest number that any of them has seen.
func ExampleClient_OpenDocument() {
	c, err := redislease.New(redislease.Options{URL: "redis://127.0.0.1:6379"})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	d := c.OpenDocument(redislease.DocumentOptions{
		Name: "crawler1/4711",
		Home: "crawler1:/var/lib/crawler",
		Merge: func(ours, theirs []byte) ([]byte, error) {
			a, _ := strconv.Atoi(string(ours))
			b, err := strconv.Atoi(string(theirs))
			return strconv.AppendInt(nil, int64(max(a, b)), 10), err
		},
		Apply: func(data []byte) error {
			fmt.Printf("the highest number is %s\n", bytes.TrimSpace(data))
			return nil
		},
	})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	delivery, err := d.Update(ctx, func([]byte) ([]byte, error) { return []byte("42"), nil })
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range delivery.Missing {
		fmt.Printf("%s was last heard %v ago\n", m.Name, m.Silent)
	}
}
