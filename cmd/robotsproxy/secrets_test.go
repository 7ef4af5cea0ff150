package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// TestSecretsStayOutOfRecords checks that no credential in a request is written to a file or the log, and that the
// origin receives all of them.
func TestSecretsStayOutOfRecords(t *testing.T) {
	site := robotstest.New(t)
	s := startSite(t, site, "\n  resolve: {a.example: 127.0.0.1}\nlog: {level: debug}\n")
	host := fmt.Sprintf("a.example:%d", site.Port())
	targets := []string{
		"/x?bearer=s3cr3t", "/x?private_key=s3cr3t", "/x?ticket=s3cr3t", "/x?PHPSESSID=s3cr3t", "/x?cookie=s3cr3t", "/x?hmac=s3cr3t", "/x?passphrase=s3cr3t", "/x?refresh=s3cr3t",
		"/x?next=https%3A%2F%2Fa%2F%3Ftoken%3Ds3cr3t", "/x?next=%252Fa%253Ftoken%253Ds3cr3t", "/x?next=https://a/?token=s3cr3t", "/x?next=https%3A%2F%2Fa%2F%23access_token%3Ds3cr3t",
		"/x?next=https%3A%2F%2Fu%3As3cr3t%40a%2F", "/x;jsessionid=s3cr3t?page=2", "/x;jsessionid=s3cr3t/y", "/go/https%3A%2F%2Fb%2F%3Ftoken%3Ds3cr3t",
	}
	get := func(target string) string {
		return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nReferer: http://%s/?token=s3cr3t\r\nUser-Agent: NewsBot (+https://u:s3cr3t@a/?token=s3cr3t)\r\nCookie: sid=s3cr3t\r\nAuthorization: Bearer s3cr3t\r\nConnection: close\r\n\r\n", target, host, host)
	}
	for _, target := range targets {
		s.exchange(t, get("http://"+host+target), "")
		if requests := site.Requests(); requests[len(requests)-1].Target != target {
			t.Errorf("the origin saw %v, want %s", requests[len(requests)-1], target)
		}
	}
	for _, target := range []string{"http:a.example/?token=s3cr3t", "http://" + host + "/x#token=s3cr3t", "http://u:s3cr3t@" + host + "/x", "http://" + host + "/%zz?token=s3cr3t", "/x?token=s3cr3t"} {
		s.exchange(t, get(target), "")
	}
	records := ofClients(s.records(t))
	if len(records) < len(targets) {
		t.Errorf("%d records of %d requests", len(records), len(targets))
	}
	if got, want := records[0].Query+" "+records[13].Path+" "+records[13].Query, "bearer=*** /x;jsessionid=*** page=2"; got != want {
		t.Errorf("recorded: %s, want %s", got, want)
	}
	if strings.Contains(s.log.String(), "s3cr3t") {
		t.Errorf("the log:\n%s", s.log)
	}
	err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(data), "s3cr3t") {
			for line := range strings.Lines(string(data)) {
				if strings.Contains(line, "s3cr3t") {
					t.Errorf("%s holds %s", path, line)
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSecretsOfRedirects checks that no record has a credential in a redirect of robots.txt.
func TestSecretsOfRedirects(t *testing.T) {
	site := robotstest.New(t)
	site.SetRobots("a.example", robotstest.Robots{Redirect: "/moved;jsessionid=s3cr3t/robots.txt?token=s3cr3t"})
	s := startSite(t, site, "\n  resolve: {a.example: 127.0.0.1}\n")
	s.fetch(t, fmt.Sprintf("http://a.example:%d/page/1", site.Port()), "*/*")
	records := s.allRecords(t)
	if text := fmt.Sprintf("%+v", records); strings.Contains(text, "s3cr3t") || !strings.Contains(text, "/moved;jsessionid=***/robots.txt") {
		t.Errorf("the records are %s", text)
	}
}
