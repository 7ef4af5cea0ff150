// Command crawl crawls a host with Colly through robotsproxy, and prints the URL of each page and of each refusal.
package main

import (
	"fmt"
	"log"
	"net/url"
	"os"

	"github.com/gocolly/colly/v2"

	robotsproxy "github.com/robotsproxy/robotsproxy/contrib/colly"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: crawl URL")
	}
	start, err := url.Parse(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	c := colly.NewCollector(colly.AllowedDomains(start.Hostname()))
	err = robotsproxy.Use(c, func(r *colly.Response, reason string) { fmt.Println("refused", r.Request.URL, reason) })
	if err != nil {
		log.Fatal(err)
	}
	c.OnHTML("a[href]", func(e *colly.HTMLElement) { _ = e.Request.Visit(e.Attr("href")) }) // OnError hears of its error
	c.OnScraped(func(r *colly.Response) { fmt.Println("page", r.Request.URL) })
	_ = c.Visit(start.String())
	c.Wait()
}
