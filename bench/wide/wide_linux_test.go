package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(goproxyEnv); dir != "" {
		fmt.Fprintln(os.Stderr, runGoproxy(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// quick is like third, but no host of it takes long.
var quick = shares{unnamed: 0.1, refused: 0.1, reset: 0.05, failing: 0.05}

// TestSmallCrawl crawls a small web each way. All living hosts are visited, their robots.txt is fetched once, and the
// hosts see the Delay.
func TestSmallCrawl(t *testing.T) {
	if testing.Short() {
		t.Skip("builds robotsproxy and crawls for seconds")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "robotsproxy")
	if err := build("../..", dir, program); err != nil {
		t.Fatal(err)
	}
	for _, secure := range []bool{false, true} {
		for _, side := range []string{robotsproxySide, directSide, goproxySide} {
			t.Run(fmt.Sprintf("%s, https %t", side, secure), func(t *testing.T) {
				const pages = 4
				b := &bench{program: program, dir: t.TempDir()}
				m, err := b.run(plan{
					name: "small", connections: 50, pages: pages, rounds: true,
					web: webOptions{
						hosts: 100, dead: quick, latency: 5 * time.Millisecond, delay: 100 * time.Millisecond,
						robotsSize: 500, shared: 0.5, secure: secure,
					},
				}, side)
				if err != nil {
					t.Fatal(err)
				}
				if m.living < 65 || m.fetched != m.living || m.pages != pages*m.living || m.overload != 0 {
					t.Errorf("%d pages of %d of %d hosts were fetched, %d requests were refused as too many; failures: %v",
						m.pages, m.fetched, m.living, m.overload, m.failed)
				}
				checkSide(t, m)
			})
		}
	}
}

// checkSide checks what differs: goproxy fetches no robots.txt, and robotsproxy alone keeps the Delay.
func checkSide(t *testing.T, m *measurement) {
	t.Helper()
	robots := int64(m.living)
	if m.side == goproxySide {
		robots = 0
	}
	if m.robots != robots || m.robotsMost > 1 {
		t.Errorf("robots.txt was requested %d times of %d hosts, %d times of one", m.robots, m.living, m.robotsMost)
	}
	if m.questions == 0 || m.conns == 0 {
		t.Errorf("the web saw %d DNS questions and %d connections", m.questions, m.conns)
	}
	if m.side == robotsproxySide && (m.short+m.overlaps > 0 || m.gaps == 0) {
		t.Errorf("%d of %d gaps were shorter than the Delay, and %d requests overlapped", m.short, m.gaps, m.overlaps)
	}
}

// TestRuns makes three runs with few hosts, and reads their rows.
func TestRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("builds robotsproxy and crawls for seconds")
	}
	b := &bench{dir: t.TempDir(), hosts: 50, pages: 2, connections: 10}
	b.program = filepath.Join(b.dir, "robotsproxy")
	if err := build("../..", b.dir, b.program); err != nil {
		t.Fatal(err)
	}
	if err := b.all([]string{"redis", "restart", "plan"}); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	b.report(&text)
	for _, row := range []string{
		`redis \| (requests/s \| \d+ \| without \d+|not measured: .* \|  \|) \|`,
		`restart \| robots.txt requested again \| 0 \|  \|  \| 0 \| yes`,
		`restart \| robotsproxy \| 100 \|`,
		`plan \| s for 100 URLs of 50 hosts \| `,
		`plan --estimate \| requests for one robots.txt, most \| 1 \|  \|  \| 1 \| yes`,
	} {
		if !regexp.MustCompile(`(?m)^\| ` + row).MatchString(text.String()) {
			t.Errorf("no row matches %s:\n%s", row, &text)
		}
	}
}

// TestGaps sends one host a request too soon after another, and one before its end.
func TestGaps(t *testing.T) {
	w, err := newWeb(webOptions{hosts: 1, delay: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	get := func() {
		d := newDirect(w, make([]robotsFetch, 1))
		defer d.close()
		if status, _, err := d.get(0, "/page/1"); status != 200 || err != nil {
			t.Fatal(status, err)
		}
	}
	for want := range int64(2) {
		get()
		if w.gaps.Load() != want || w.short.Load() != want || w.overlaps.Load() != 0 {
			t.Errorf("after %d requests: %d gaps, of which %d are too short, and %d overlaps",
				want+1, w.gaps.Load(), w.short.Load(), w.overlaps.Load())
		}
	}
	w.state[0].begin(0)
	get()
	if w.overlaps.Load() != 1 {
		t.Errorf("%d requests overlapped, want 1", w.overlaps.Load())
	}
}

func TestShares(t *testing.T) {
	const hosts = 10_000
	var counts [kinds]int
	for i := range hosts {
		counts[third.kindOf(i)]++
	}
	for k := alive + 1; k < kinds; k++ {
		if want := int(third[k] * hosts); counts[k] < want-10 || counts[k] > want+10 {
			t.Errorf("%d hosts are of kind %d, want %d", counts[k], k, want)
		}
	}
}
