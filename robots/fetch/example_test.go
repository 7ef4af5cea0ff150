package fetch_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// A second fetch is conditional if the first brought an ETag.
func Example() {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		w.Header().Set("Cache-Control", "max-age=3600")
		if r.Header.Get("If-None-Match") == `"v1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprint(w, "User-agent: *\nDisallow: /private\n")
	}))
	defer site.Close()

	f, err := fetch.New(fetch.Options{Transport: http.DefaultTransport, UserAgent: "robotsproxy/1.0"})
	if err != nil {
		fmt.Println(err)
		return
	}
	o, err := origin.Parse(site.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	var previous *fetch.Answer
	for range 2 {
		a, err := f.Fetch(context.Background(), fetch.Request{Origin: o, Previous: previous})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(a.Availability == fetch.Found, a.Status, len(a.Body), a.Expires.Sub(a.Fetched))
		previous = a
	}
	// Output:
	// true 200 33 1h0m0s
	// true 304 33 1h0m0s
}
