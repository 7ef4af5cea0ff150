package top

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/policy"
)

// proxy answers with the same hosts, in the order of their names, and notes what it is asked.
type proxy struct {
	hosts []admin.Lane
	err   error
	asked []string
}

func (p *proxy) Sample(_ context.Context, q Query) (*Sample, error) {
	p.asked = append(p.asked, fmt.Sprintf("sort %s host %s", q.Sort, q.Host))
	if p.err != nil {
		return nil, p.err
	}
	s := &Sample{Status: admin.Status{Version: "1.0", Mode: "enforce", Listen: "http://127.0.0.1:3128", Uptime: 60, Ready: true, Waiting: 5}}
	s.Window, s.Rate = 3600, 4.25
	s.Total = admin.LaneTotal{Hosts: len(p.hosts), HostCounts: admin.HostCounts{Requests: 1204, Blocked: 12}, Paused: 1}
	for _, l := range p.hosts {
		if strings.Contains(l.Host, q.Host) {
			s.Hosts = append(s.Hosts, l)
		}
	}
	return s, nil
}

func (p *proxy) Stop(_ context.Context, host, reason string) (string, error) {
	p.asked = append(p.asked, fmt.Sprintf("stop %s: %s", host, reason))
	return host + " is stopped.", nil
}

func (p *proxy) Resume(_ context.Context, host string) (string, error) {
	p.asked = append(p.asked, "resume "+host)
	return "", errors.New(host + " has no intervention\x1b[31m")
}

// view is a model with a proxy of some hosts: a.example, b.example and so on.
func view(t *testing.T, hosts int) (model, *proxy) {
	t.Helper()
	p := &proxy{}
	for i := range hosts {
		p.hosts = append(p.hosts, admin.Lane{Host: string(rune('a'+i%26)) + strings.Repeat("x", i/26) + ".example"})
	}
	m := newModel(t.Context(), Options{Proxy: p, Interval: time.Millisecond, Query: Query{Sort: "requests", Window: time.Hour}})
	s, err := p.Sample(t.Context(), m.query)
	if err != nil {
		t.Fatal(err)
	}
	m.take(s)
	p.asked = nil
	return m, p
}

// keys are names of keys that are no characters.
var keys = map[string]rune{
	"up": tea.KeyUp, "down": tea.KeyDown, "pgdown": tea.KeyPgDown, "home": tea.KeyHome, "end": tea.KeyEnd, "left": tea.KeyLeft, "enter": tea.KeyEnter,
	"esc": tea.KeyEscape, "backspace": tea.KeyBackspace, "space": tea.KeySpace, "tab": tea.KeyTab,
}

// send sends a message to m, and the results of its commands, but no passing of time.
func send(m model, msg tea.Msg) model {
	for msg != nil {
		next, cmd := m.Update(msg)
		m, msg = next.(model), nil
		if cmd == nil {
			return m
		}
		if msg = cmd(); msg != nil {
			if _, ok := msg.(due); ok {
				return m
			}
		}
		if _, ok := msg.(tea.QuitMsg); ok {
			return m
		}
	}
	return m
}

// press presses keys: names, or characters.
func press(m model, pressed ...string) model {
	for _, name := range pressed {
		code, ok := keys[name]
		switch {
		case !ok && len(name) > 1: // text
			for _, r := range name {
				m = send(m, tea.KeyPressMsg{Code: r, Text: string(r)})
			}
			continue
		case name == "space":
			m = send(m, tea.KeyPressMsg{Code: code, Text: " "})
		case ok:
			m = send(m, tea.KeyPressMsg{Code: code})
		default:
			m = send(m, tea.KeyPressMsg{Code: rune(name[0]), Text: name})
		}
	}
	return m
}

func TestKeys(t *testing.T) {
	for _, test := range []struct {
		name, keys string
		asked      string // by the proxy, with semicolons
		selected   string
		screen     string // a part of it
	}{
		{"sort by a letter", "w", "sort waiting host ", "a.example", ""},
		{"sort by the column after", ">", "sort blocked host ", "a.example", ""},
		{"sort by the column before, around the end", "left < left", "sort host host ;sort paused host ;sort waited host ", "a.example", ""},
		{"select", "down j j k", "", "c.example", ""},
		{"select the last and the first", "end up home", "", "a.example", ""},
		{"select beyond the end", "end pgdown down", "", "z.example", ""},
		{"filter", "/ c.ex enter", "sort requests host c.ex", "c.example", "host: c.ex  q quit"},
		{"correct a filter", "/ cd backspace enter", "sort requests host c", "c.example", "host: c  "},
		{"leave the dialog of the filter", "/ c.ex esc", "", "a.example", "q quit"},
		{"end a filter", "/ c.ex enter esc", "sort requests host c.ex;sort requests host ", "a.example", "q quit"},
		{"a filter without a host", "/ nothing enter x u", "sort requests host nothing", "", "No host of the last 1 h has nothing in its name."},
		{"stop", "down x owner space asked enter", "stop b.example: owner asked;sort requests host ", "b.example", "b.example is stopped."},
		{"keys are text in a dialog", "x q/?x", "", "a.example", "why stop a.example? q/?x_"},
		{"a stop without a reason", "x space enter", "", "a.example", "a reason is needed"},
		{"do not stop", "x oops esc enter", "", "a.example", "q quit"},
		{"resume", "j u", "resume b.example;sort requests host ", "b.example", "not done: b.example has no intervention%1B[31m"},
		{"the result goes with the next key", "j u k", "resume b.example;sort requests host ", "a.example", "q quit"},
		{"help", "?", "", "a.example", "any key goes back"},
		{"leave the help", "? q", "", "a.example", "q quit"},
		{"freeze", "space", "", "a.example", "frozen  q quit"},
		{"go on", "space space", "sort requests host ", "a.example", "q quit"},
		{"other keys", "y F 7", "", "a.example", "q quit"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, p := view(t, 26)
			m = press(m, strings.Fields(test.keys)...)
			if got := strings.Join(p.asked, ";"); got != test.asked {
				t.Errorf("the proxy is asked %q, want %q", got, test.asked)
			}
			selected := ""
			if l := m.lane(); l != nil {
				selected = l.Host
			}
			if selected != test.selected {
				t.Errorf("%s is selected, want %s", selected, test.selected)
			}
			if screen := m.draw(time.Now()); !strings.Contains(screen, test.screen) {
				t.Errorf("the screen has no %q:\n%s", test.screen, screen)
			}
		})
	}
}

func TestQuit(t *testing.T) {
	for _, key := range []tea.KeyPressMsg{{Code: 'q', Text: "q"}, {Code: 'c', Mod: tea.ModCtrl}} {
		m, _ := view(t, 1)
		_, cmd := m.Update(key)
		if cmd == nil {
			t.Errorf("%s does not quit", key)
		} else if _, ok := cmd().(tea.QuitMsg); !ok {
			t.Errorf("%s does not quit", key)
		}
	}
	m, _ := view(t, 1)
	m = press(m, "x")
	if _, cmd := m.Update(tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl}); cmd == nil {
		t.Error("ctrl+c does not quit in a dialog")
	}
}

// A paste is text of a dialog without control characters, and nothing elsewhere.
func TestPaste(t *testing.T) {
	m, _ := view(t, 3)
	m = send(m, tea.PasteMsg{Content: "x"})
	m = send(press(m, "x"), tea.PasteMsg{Content: "a\nb\x1b[2Jc" + strings.Repeat("d", 2*maxInput)})
	if !strings.HasPrefix(m.input, "ab[2Jcdd") || len(m.input) != maxInput {
		t.Errorf("the input has %d characters, %.20q", len(m.input), m.input)
	}
}

// A proxy that stops answering is asked again; the figures before stay on the screen.
func TestNoAnswer(t *testing.T) {
	m, p := view(t, 3)
	p.err = errors.New("connection\x1b[2J refused")
	m = send(m, due{m.asked})
	m.since = time.Date(2026, 3, 1, 14, 32, 7, 0, time.Local)
	m = send(m, due{m.asked})
	screen := m.draw(time.Now())
	if !strings.Contains(screen, "no answer since 14:32:07: connection%1B[2J refused") || !strings.Contains(screen, "b.example") {
		t.Errorf("without an answer:\n%s", screen)
	}
	p.err = nil
	if m = send(m, due{m.asked}); strings.Contains(m.draw(time.Now()), "no answer") || len(p.asked) != 3 {
		t.Errorf("after another answer, and %d questions:\n%s", len(p.asked), m.draw(time.Now()))
	}
	m = send(m, sampled{m.asked - 1, &Sample{}, nil})
	m = send(m, due{m.asked - 1})
	if len(m.sample.Hosts) != 3 || len(p.asked) != 3 {
		t.Error("a late answer counts")
	}
	m = press(m, "space")
	if m = send(m, due{m.asked}); len(p.asked) != 3 {
		t.Error("a view that is frozen asks")
	}
}

// Each screen has the size of the terminal, and shows the selected host.
func TestSizes(t *testing.T) {
	now := time.Now()
	for _, width := range []int{1, 12, 40, 60, 80, 100, 200} {
		for _, height := range []int{1, 2, 6, 24, 50} {
			m, p := view(t, 60)
			p.hosts[1] = admin.Lane{
				Host: "b.example", HostCounts: admin.HostCounts{Requests: 1_234_567, Blocked: 99_999, Failed: 5}, Waiting: 250, Delay: 3600, WaitedSeconds: 86_400,
				NextSlot: now.Add(time.Hour), PausedUntil: now.Add(time.Hour), PauseSource: "retry-after", Robots: &admin.File{State: "unreachable"},
				Interventions: []admin.Intervention{{Kind: policy.Slow, Delay: 2.5}, {Kind: policy.Stop}, {Kind: policy.Bypass}},
			}
			p.hosts[2].Host = strings.Repeat("long.", 40) + "example"
			m.colour = width > 100
			m = send(m, tea.WindowSizeMsg{Width: width, Height: height})
			for _, key := range []string{"j", "end", "?", "x", "/"} {
				if key == "?" {
					m = press(m, "?", "esc", "up")
				} else {
					m = press(m, key)
				}
				screen := strings.Split(m.draw(now), "\n")
				if len(screen) != height {
					t.Errorf("%d x %d after %s: %d lines", width, height, key, len(screen))
				}
				for _, line := range screen {
					if n := lipgloss.Width(line); n > width {
						t.Errorf("%d x %d after %s: a line of %d columns: %q", width, height, key, n, line)
					}
				}
				if l := m.lane(); height >= 6 && width >= 80 && !strings.Contains(strings.Join(screen, "\n"), l.Host[:9]) {
					t.Errorf("%d x %d after %s: %s is not on the screen", width, height, key, l.Host)
				}
				m.dialog = noDialog
			}
		}
	}
}

// styles are what the view itself writes to control the terminal.
var styles = regexp.MustCompile("\x1b\\[[0-9;]*m")

// What sites and operators write does not control the terminal.
func TestHostileNames(t *testing.T) {
	m, p := view(t, 1)
	evil := "a\x1b]0;x\x07\u202e\nb"
	p.hosts[0].Host = evil
	p.hosts[0].Interventions = []admin.Intervention{{Kind: policy.Stop, Host: evil, Reason: evil}}
	m = send(m, due{m.asked})
	m.sample.Interventions = p.hosts[0].Interventions
	m.sample.Status.Mode, m.sample.Status.NotReady = "report"+evil, evil
	m.sample.Status.Ready = false
	m = press(m, "x")
	m.colour = false
	screen := m.draw(time.Now())
	var text strings.Builder
	if err := m.sample.Write(&text, textOptions()); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{styles.ReplaceAllString(screen, ""), text.String()} {
		if strings.ContainsAny(s, "\x1b\x07\u202e") || !strings.Contains(s, "a%1B]0;x%07%E2%80%AE%0Ab") {
			t.Errorf("%q", s)
		}
	}
	if n := strings.Count(screen, "\n"); n != m.height-1 {
		t.Errorf("%d lines", n+1)
	}
}
