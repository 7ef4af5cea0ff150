// Command testsummary prints what go test prints, and before its last line the tests that were skipped, with the reason:
//
//	go test -json ./... | testsummary
//
// Its exit status is 1 if a test or a build has failed, if the tests of a package have not ended, or if no package was tested.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

func main() {
	s := &summary{out: os.Stdout, logs: make(map[string][]string), skipped: make(map[string][]string), running: make(map[string]bool)}
	if err := s.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testsummary:", err)
		os.Exit(1)
	}
	s.end()
	if s.failed || s.packages == 0 {
		os.Exit(1)
	}
}

// event is a line of go test -json: see go doc test2json.
type event struct{ Action, Package, Test, Output string }

type summary struct {
	out      io.Writer
	logs     map[string][]string // lines of tests that run, by package and name
	skipped  map[string][]string // tests by reason
	running  map[string]bool     // packages that have begun and not ended
	last     string              // the last line of a package, which is not printed yet
	packages int
	failed   bool
}

func (s *summary) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		var e event
		if json.Unmarshal([]byte(line), &e) != nil {
			e = event{Action: "build-output", Output: line}
		}
		s.add(e)
	}
}

func (s *summary) add(e event) {
	test := e.Package + " " + e.Test
	switch e.Action {
	case "start":
		s.running[e.Package] = true
	case "output":
		if e.Test != "" {
			s.logs[test] = append(s.logs[test], e.Output)
		} else if e.Output != "PASS\n" {
			s.print(e.Output)
		}
	case "build-output":
		s.print(e.Output)
	case "build-fail":
		s.failed = true
	case "pass", "skip", "fail":
		s.ended(e, s.logs[test])
		delete(s.logs, test)
	}
}

func (s *summary) ended(e event, log []string) {
	s.failed = s.failed || e.Action == "fail"
	switch {
	case e.Test == "":
		s.packages++
		delete(s.running, e.Package)
	case e.Action == "skip":
		reason := reasonOf(log)
		s.skipped[reason] = append(s.skipped[reason], e.Package+" "+e.Test)
	case e.Action == "fail":
		for _, line := range log {
			s.print(line)
		}
	}
}

// print prints the line before, and keeps this one.
func (s *summary) print(line string) {
	fmt.Fprint(s.out, s.last)
	s.last = line
}

var position = regexp.MustCompile(`^\S+\.go:\d+: `)

// reasonOf returns the text of a skipped test, without the lines of go test.
func reasonOf(log []string) string {
	var reason []string
	for _, line := range log {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			reason = append(reason, position.ReplaceAllString(line, ""))
		}
	}
	return strings.Join(reason, " ")
}

func (s *summary) end() {
	for _, reason := range slices.Sorted(maps.Keys(s.skipped)) {
		fmt.Fprintf(s.out, "skipped: %s\n", reason)
		for _, test := range s.skipped[reason] {
			fmt.Fprintf(s.out, "\t%s\n", test)
		}
	}
	fmt.Fprint(s.out, s.last)
	for _, name := range slices.Sorted(maps.Keys(s.running)) {
		s.failed = true
		fmt.Fprintf(s.out, "FAIL\t%s [not ended]\n", name)
	}
	if s.failed {
		fmt.Fprintln(s.out, "FAIL") // as go test without -json
	}
}
