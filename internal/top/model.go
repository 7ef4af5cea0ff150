package top

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/robotsproxy/robotsproxy/admin"
)

// dialog is what the keys are for.
type dialog int

const (
	noDialog     dialog = iota
	filterDialog        // the user types a part of a host name
	stopDialog          // the user types why a host is stopped
	helpDialog
)

const (
	askTimeout = 10 * time.Second
	maxInput   = 500 // characters; the longest reason of an intervention
	hostRows   = 500 // hosts that are asked for
)

// model is the state of the view. Its methods change a copy, which Update returns.
type model struct {
	ctx      context.Context
	proxy    Proxy
	interval time.Duration
	colour   bool

	query  Query
	sample *Sample
	err    error     // of the last question; nil: it was answered
	since  time.Time // of err
	asked  int       // number of the last question; answers to earlier ones do not count
	frozen bool

	width, height int
	selected      string // host; empty: the first row
	first         int    // row that is the first on the screen

	dialog dialog
	input  string
	target string // host that stopDialog is about
	note   string // result of the last change, until the next key
}

// sampled is the answer to a question.
type sampled struct {
	asked  int
	sample *Sample
	err    error
}

// due says that it is time for the next question after one.
type due struct{ asked int }

// changed is the result of a change.
type changed struct {
	effect string
	err    error
}

func newModel(ctx context.Context, o Options) model {
	o.Query.Limit = hostRows
	return model{ctx: ctx, proxy: o.Proxy, interval: o.Interval, colour: o.Colour, query: o.Query, width: 80, height: 24}
}

// Init waits for the time of the second question.
func (m model) Init() tea.Cmd { return m.wait() }

// Update returns the model after msg.
func (m model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case due:
		if msg.asked == m.asked && !m.frozen {
			return m.ask()
		}
	case sampled:
		return m.answered(msg)
	case changed:
		m.note = msg.effect
		if msg.err != nil {
			m.note = "not done: " + msg.err.Error()
		}
		return m.ask()
	case tea.PasteMsg:
		m.typed(msg.Content)
	case tea.KeyPressMsg:
		m.note = ""
		return m.pressed(msg)
	}
	return m, nil
}

// ask asks the proxy now.
func (m model) ask() (tea.Model, tea.Cmd) {
	m.asked++
	asked, query := m.asked, m.query
	return m, func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, askTimeout)
		defer cancel()
		sample, err := m.proxy.Sample(ctx, query)
		return sampled{asked, sample, err}
	}
}

// wait waits until the next question is due.
func (m model) wait() tea.Cmd {
	asked := m.asked
	return tea.Tick(m.interval, func(time.Time) tea.Msg { return due{asked} })
}

func (m model) answered(a sampled) (tea.Model, tea.Cmd) {
	if a.asked != m.asked {
		return m, nil
	}
	switch {
	case a.err == nil:
		m.take(a.sample)
	case m.err == nil:
		m.err, m.since = a.err, time.Now()
	default:
		m.err = a.err
	}
	return m, m.wait()
}

// take shows a sample.
func (m *model) take(s *Sample) { m.sample, m.err = s, nil }

// change makes a change of the proxy.
func (m model) change(do func(ctx context.Context) (string, error)) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, askTimeout)
		defer cancel()
		effect, err := do(ctx)
		return changed{effect, err}
	}
}

func (m model) pressed(key tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	if key.String() == "ctrl+c" {
		return m, tea.Quit
	}
	switch m.dialog {
	case helpDialog:
		m.dialog = noDialog
		return m, nil
	case filterDialog, stopDialog:
		return m.pressedInDialog(key)
	}
	for _, c := range columns {
		if key.String() == c.key {
			return m.sortBy(c)
		}
	}
	switch key.String() {
	case "q":
		return m, tea.Quit
	case "?", "f1":
		m.dialog = helpDialog
	case "/":
		m.dialog, m.input = filterDialog, m.query.Host
	case "esc":
		if m.query.Host != "" {
			m.query.Host = ""
			return m.ask()
		}
	case "space", "p":
		if m.frozen = !m.frozen; !m.frozen {
			return m.ask()
		}
	case "<", "left", "shift+tab":
		return m.sortBy(m.columnBeside(-1))
	case ">", "right", "tab":
		return m.sortBy(m.columnBeside(1))
	case "x":
		if l := m.lane(); l != nil {
			m.dialog, m.input, m.target = stopDialog, "", l.Host
		}
	case "u":
		if l := m.lane(); l != nil {
			host := l.Host
			return m, m.change(func(ctx context.Context) (string, error) { return m.proxy.Resume(ctx, host) })
		}
	default:
		m.move(key.String())
	}
	return m, nil
}

func (m model) pressedInDialog(key tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	switch key.String() {
	case "esc":
		m.dialog = noDialog
	case "backspace":
		if r := []rune(m.input); len(r) > 0 {
			m.input = string(r[:len(r)-1])
		}
	case "ctrl+u":
		m.input = ""
	case "enter":
		return m.entered()
	default:
		m.typed(key.Text)
	}
	return m, nil
}

// typed adds text to the input. Characters that cannot be printed are left out.
func (m *model) typed(text string) {
	if m.dialog != filterDialog && m.dialog != stopDialog {
		return
	}
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
	r := []rune(m.input + text)
	m.input = string(r[:min(len(r), maxInput)])
}

// entered ends a dialog with its input.
func (m model) entered() (tea.Model, tea.Cmd) {
	input := strings.TrimSpace(m.input)
	if m.dialog == filterDialog {
		m.dialog, m.query.Host, m.first = noDialog, input, 0
		return m.ask()
	}
	if input == "" {
		m.note = "a reason is needed: it is kept in the record of every request that the stop refuses"
		return m, nil
	}
	m.dialog = noDialog
	host := m.target
	return m, m.change(func(ctx context.Context) (string, error) { return m.proxy.Stop(ctx, host, input) })
}

func (m model) sortBy(c column) (tea.Model, tea.Cmd) {
	m.query.Sort, m.selected, m.first = c.sort, "", 0
	return m.ask()
}

// columnBeside returns the column beside that by which the hosts are sorted.
func (m model) columnBeside(step int) column {
	i := slices.IndexFunc(columns, func(c column) bool { return c.sort == m.query.Sort })
	return columns[(max(i, 0)+step+len(columns))%len(columns)]
}

// move moves the selection.
func (m *model) move(key string) {
	steps := map[string]int{
		"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -m.rows(), "pgdown": m.rows(),
		"home": -hostRows, "g": -hostRows, "end": hostRows, "G": hostRows,
	}
	hosts := m.sample.Hosts
	if steps[key] == 0 || len(hosts) == 0 {
		return
	}
	m.selected = hosts[min(max(m.index()+steps[key], 0), len(hosts)-1)].Host
	m.scroll()
}

// scroll moves the rows so that the selected one is on the screen.
func (m *model) scroll() {
	i := m.index()
	m.first = max(min(m.first, i), i-m.rows()+1)
}

// index returns the index of the selected host: 0 if it is not listed.
func (m model) index() int {
	return max(0, slices.IndexFunc(m.sample.Hosts, func(l admin.Lane) bool { return l.Host == m.selected }))
}

// lane returns the selected host, or nil if there is none.
func (m model) lane() *admin.Lane {
	if len(m.sample.Hosts) == 0 {
		return nil
	}
	return &m.sample.Hosts[m.index()]
}

// style returns a style with a colour, if the view has colours.
func (m model) style(colour string) lipgloss.Style {
	if !m.colour || colour == "" {
		return lipgloss.NewStyle()
	}
	return lipgloss.NewStyle().Foreground(lipgloss.Color(colour))
}
