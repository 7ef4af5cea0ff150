package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

// liveLine keeps a line of text at the bottom of a terminal. It draws the line every second if the text has changed,
// and leaves the cursor at its beginning, so that the output of another program overwrites it. Write clears it first.
type liveLine struct {
	columns    func() int
	quit, done chan struct{}

	mu    sync.Mutex // guards w and drawn
	w     io.Writer
	drawn string // if empty, there is no line
}

// clearLine moves the cursor to the beginning of its line and clears that.
const clearLine = "\r\x1b[K"

func newLiveLine(w io.Writer) *liveLine {
	return &liveLine{
		columns: func() int { return columns(w) }, quit: make(chan struct{}), done: make(chan struct{}), w: w,
	}
}

// start draws the result of text until stop is called. The caller must call stop. Without a terminal, or on one that
// cannot clear a line, nothing is drawn.
func (s *liveLine) start(text func() string) {
	if !isTerminal(s.w) || os.Getenv("TERM") == "dumb" {
		close(s.done)
		return
	}
	go s.run(text)
}

func (s *liveLine) run(text func() string) {
	defer close(s.done)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.draw(text())
		case <-s.quit:
			s.draw("")
			return
		}
	}
}

// stop clears the line for good.
func (s *liveLine) stop() {
	close(s.quit)
	<-s.done
}

// defaultColumns stands for an unknown width.
const defaultColumns = 120

func (s *liveLine) draw(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	width := s.columns()
	if width < 1 {
		width = defaultColumns
	}
	text = cutColumns(safetext.Text(text), width-1) // a line of the whole width would wrap
	switch {
	case text == s.drawn:
	case text == "":
		_, _ = io.WriteString(s.w, clearLine)
	default:
		_, _ = io.WriteString(s.w, clearLine+text+"\r")
	}
	s.drawn = text
}

// Write clears the line, and writes p to the terminal.
func (s *liveLine) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drawn != "" {
		s.drawn = ""
		if _, err := io.WriteString(s.w, clearLine); err != nil {
			return 0, err
		}
	}
	return s.w.Write(p)
}

// cutColumns cuts s to a number of columns. Wide characters count as one.
func cutColumns(s string, columns int) string {
	if r := []rune(s); len(r) > columns {
		return string(r[:columns])
	}
	return s
}

// statusText returns the status line of run: the requests so far, and the longest of the waits under way.
func (p *privateProxy) statusText(sum *summary) string {
	requests, blocked := sum.progress()
	text := fmt.Sprintf("robotsproxy  %s  %d blocked", count(requests, "request"), blocked)
	host, wait := "", time.Duration(0)
	why := ""
	for w := range p.components.limiter.Waits() {
		if left := time.Until(w.Start); left > wait {
			host, wait, why = w.Key, left, sum.delayText(w.Key, w.Delay)
			if w.Paused {
				why = " (it pushed back)"
			}
		}
	}
	switch {
	case host != "":
		return text + fmt.Sprintf("  waiting %d s for %s%s", int(math.Ceil(wait.Seconds())), host, why)
	case requests == 0:
		return ""
	}
	return text
}

// seconds returns d as a number of seconds, as robots.txt has it.
func seconds(d time.Duration) string { return strconv.FormatFloat(inSeconds(d), 'f', -1, 64) }

// inSeconds returns d in seconds as a decimal number reads: 1.128, for which d.Seconds() is 1.1280000000000001.
func inSeconds(d time.Duration) float64 { return float64(d) / float64(time.Second) }
