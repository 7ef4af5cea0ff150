package fields_test

import (
	"fmt"
	"net/http"

	"github.com/robotsproxy/robotsproxy/internal/fields"
)

func ExampleCleanHeader() {
	h := http.Header{"Connection": {"close, X-Hop"}, "X-Hop": {"1"}, "Robotsproxy-Tag": {"nightly"}, "Accept": {"*/*"}}
	fields.CleanHeader(h, false)
	fmt.Println(h)
	// Output: map[Accept:[*/*]]
}
