package limit_test

import (
	"fmt"
	"log/slog"

	"github.com/robotsproxy/robotsproxy/internal/limit"
)

func ExampleCounter() {
	c := limit.NewCounter[string](slog.New(slog.DiscardHandler), "client", limit.Bound{Max: 10}, limit.Bound{Max: 1})
	first := c.Take("news", 1)
	fmt.Println(c.Take("news", 1) == nil, c.Take("lab", 1) == nil)
	first.Release()
	fmt.Println(c.Take("news", 1) == nil)
	// Output:
	// true false
	// false
}
