package robotstest_test

import (
	"fmt"
	"net/http"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

func Example() {
	site, err := robotstest.Start(robotstest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer site.Close()
	site.SetRobots("a.example", robotstest.Robots{Body: "User-agent: *\nDisallow: /private/\n"})

	client := http.Client{Transport: site.Transport()}
	for _, url := range []string{"https://a.example/robots.txt", "http://a.example/page/1", "http://b.example/robots.txt"} {
		res, err := client.Get(url)
		if err != nil {
			fmt.Println(err)
			return
		}
		res.Body.Close()
	}
	for _, r := range site.Requests() {
		fmt.Println(r)
	}
	fmt.Println(site.Paths("a.example"))
	// Output:
	// GET https://a.example/robots.txt 200
	// GET http://a.example/page/1 200
	// GET http://b.example/robots.txt 404
	// [/page/1 /robots.txt]
}
