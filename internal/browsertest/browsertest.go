// Package browsertest runs pages in a real browser for tests.
//
//	tab := browsertest.Open(t)
//	tab.View(390, browsertest.Dark)
//	tab.Load(server.URL + "/")
//	tab.Check() // no fault of the console, nothing from another origin, no horizontal scroll, and axe finds nothing
//
// If Chromium is not installed the test is skipped, or fails if CI is "true".
package browsertest

import (
	"context"
	_ "embed" // axe
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Scheme is a colour scheme that the browser prefers.
type Scheme string

// The colour schemes.
const (
	Light Scheme = "light"
	Dark  Scheme = "dark"
)

// limit bounds the time of one test in the browser, on a busy machine.
const limit = 3 * time.Minute

// Tab is one tab of a headless Chromium with its own profile. It is for one goroutine.
type Tab struct {
	tb   testing.TB
	ctx  context.Context
	host string // of the page

	mu     sync.Mutex // guards faults
	faults []string
}

// Open starts a browser with one tab, which is closed at the end of the test.
func Open(tb testing.TB) *Tab {
	tb.Helper()
	if _, err := exec.LookPath("chromium"); err != nil {
		if os.Getenv("CI") == "true" {
			tb.Fatal("chromium is not installed")
		}
		tb.Skip("chromium is not installed")
	}
	home := tb.TempDir()
	options := append([]chromedp.ExecAllocatorOption{}, chromedp.DefaultExecAllocatorOptions[:]...)
	options = append(options, chromedp.ExecPath("chromium"), chromedp.Env("HOME="+home), chromedp.UserDataDir(filepath.Join(home, "chromium")),
		chromedp.DisableGPU, chromedp.WSURLReadTimeout(limit), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-features", "Translate,NetworkTimeServiceQuerying,OptimizationHints"))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium has no sandbox for root
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	tb.Cleanup(stop)
	ctx, closeTab := chromedp.NewContext(allocator)
	tb.Cleanup(closeTab)
	ctx, cancel := context.WithTimeout(ctx, limit)
	tb.Cleanup(cancel)
	t := &Tab{tb: tb, ctx: ctx}
	if err := chromedp.Listen(ctx, t.hear); err != nil {
		tb.Fatalf("starting chromium: %v", err)
	}
	return t
}

// hear keeps faults of the console, and requests to other hosts.
func (t *Tab) hear(event any) {
	fault := ""
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			fault = fmt.Sprintf("%s: %s (%s)", e.Entry.Level, e.Entry.Text, e.Entry.URL)
		}
	case *runtime.EventExceptionThrown:
		fault = "exception: " + e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			fault += " " + e.ExceptionDetails.Exception.Description
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			fault = fmt.Sprintf("console.%s", e.Type)
			for _, arg := range e.Args {
				fault += " " + string(arg.Value)
			}
		}
	case *network.EventRequestWillBeSent:
		u, err := url.Parse(e.Request.URL)
		if err != nil || u.Host != "" && u.Host != t.host {
			fault = "a request to " + e.Request.URL
		}
	}
	if fault != "" {
		t.mu.Lock()
		t.faults = append(t.faults, fault)
		t.mu.Unlock()
	}
}

// View sets the width of the tab, in pixels, and the colour scheme.
func (t *Tab) View(width int64, scheme Scheme) {
	t.tb.Helper()
	t.Do(chromedp.EmulateViewport(width, 1000))
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: string(scheme)}}}
	if _, err := chromedp.Call(t.ctx, emulation.SetEmulatedMedia, media); err != nil {
		t.tb.Fatalf("setting the colour scheme: %v", err)
	}
}

// For makes t report to another test, such as a part of the one that opened it, until that ends.
func (t *Tab) For(tb testing.TB) {
	before := t.tb
	t.tb = tb
	tb.Cleanup(func() { t.tb = before })
	t.mu.Lock()
	t.faults = nil
	t.mu.Unlock()
}

// Load opens a URL, and waits until the page is loaded.
func (t *Tab) Load(address string) {
	t.tb.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.tb.Fatal(err)
	}
	t.host = u.Host
	t.Do(chromedp.Navigate(address))
}

// Do runs actions.
func (t *Tab) Do(actions ...chromedp.Action[chromedp.Void]) {
	t.tb.Helper()
	if err := chromedp.Do(t.ctx, actions...); err != nil {
		t.tb.Fatalf("in the browser: %v%s", err, t.heard())
	}
}

// Drag drags the mouse over an element, from one part of its width to another.
func (t *Tab) Drag(selector string, from, to float64) {
	t.tb.Helper()
	box := Evaluate[[]float64](t, fmt.Sprintf("(r => [r.left, r.top + r.height / 2, r.width])(document.querySelector(%q).getBoundingClientRect())", selector))
	at := func(kind input.DispatchMouseEventType, part float64) {
		t.tb.Helper()
		_, err := chromedp.Call(t.ctx, input.DispatchMouseEvent, input.DispatchMouseEventParams{
			Type: kind, X: box[0] + part*box[2], Y: box[1], Button: input.MouseButtonLeft, Buttons: 1, ClickCount: 1,
		})
		if err != nil {
			t.tb.Fatalf("moving the mouse: %v", err)
		}
	}
	at(input.DispatchMouseEventTypeMouseMoved, from)
	at(input.DispatchMouseEventTypeMousePressed, from)
	at(input.DispatchMouseEventTypeMouseMoved, (from+to)/2)
	at(input.DispatchMouseEventTypeMouseMoved, to)
	at(input.DispatchMouseEventTypeMouseReleased, to)
}

// Text returns the text of the page.
func (t *Tab) Text() string {
	t.tb.Helper()
	return Evaluate[string](t, "document.body.innerText")
}

// WaitFor waits until a condition of JavaScript is true.
func (t *Tab) WaitFor(condition string) {
	t.tb.Helper()
	for begin := time.Now(); time.Since(begin) < 30*time.Second; time.Sleep(20 * time.Millisecond) {
		if got, err := chromedp.Run(t.ctx, chromedp.Evaluate[bool]("!!("+condition+")")); err == nil && got {
			return
		}
	}
	t.tb.Fatalf("%s is still false%s\n%s", condition, t.heard(), t.Text())
}

// Screenshot returns the page as PNG.
func (t *Tab) Screenshot() []byte {
	t.tb.Helper()
	b, err := chromedp.Run(t.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		t.tb.Fatalf("taking a screenshot: %v", err)
	}
	return b
}

// Evaluate returns the value of a script on the page of t, or of its promise.
func Evaluate[T any](t *Tab, script string) T {
	t.tb.Helper()
	v, err := chromedp.Run(t.ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		t.tb.Fatalf("evaluating %s: %v", script, err)
	}
	return v
}

// heard returns the faults so far.
func (t *Tab) heard() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(append([]string{""}, t.faults...), "\n")
}

// Quiet reports an error for each fault of the console and each request to another host since the tab was opened.
func (t *Tab) Quiet() {
	t.tb.Helper()
	if faults := t.heard(); faults != "" {
		t.tb.Errorf("the browser reports:%s", faults)
	}
}

//go:embed axe.min.js
var axe string

// violations returns what axe finds, a line each.
const violations = `axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations.map(v =>
	v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map(n => n.html.slice(0, 200) + " " + n.any.concat(n.all).map(c => c.message).join(" ")).join(" | ")).join("\n"))`

// Fits reports an error for each fault of Quiet, and for a horizontal scroll.
func (t *Tab) Fits() {
	t.tb.Helper()
	t.Quiet()
	if Evaluate[bool](t, "document.documentElement.scrollWidth > innerWidth") {
		t.tb.Error("the page scrolls horizontally")
	}
}

// Check reports an error for each fault of Fits, and for what axe finds.
func (t *Tab) Check() {
	t.tb.Helper()
	t.Fits()
	// The Content-Security-Policy of the page permits no other script, but the tools of the browser may run one.
	Evaluate[bool](t, axe+";true")
	if found := Evaluate[string](t, violations); found != "" {
		t.tb.Errorf("axe finds:\n%s", found)
	}
}
