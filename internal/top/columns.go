package top

import (
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
	"github.com/robotsproxy/robotsproxy/policy"
)

// column is a column of the view.
type column struct {
	title  string
	sort   string // the order of /api/v1/hosts
	key    string // that sorts by it
	left   bool   // the text is at the left
	least  int    // width of the terminal, in columns, below which the column is left out
	text   func(l *admin.Lane, now time.Time) string
	colour func(l *admin.Lane) string
}

// Colours of the terminal, by meaning.
const (
	blocked = "1" // red
	delayed = "3" // yellow
	failed  = "5" // magenta
	muted   = "8" // grey
)

// columns are those of the view.
var columns = []column{
	{
		title: "host", sort: "host", key: "h", left: true,
		text: func(l *admin.Lane, _ time.Time) string { return safetext.Text(l.Host) },
	},
	{
		title: "requests", sort: "requests", key: "r",
		text: func(l *admin.Lane, _ time.Time) string { return auditview.Number(l.Requests) },
	},
	{
		title: "blocked", sort: "blocked", key: "b",
		text:   func(l *admin.Lane, _ time.Time) string { return auditview.Number(l.Blocked + l.WouldDeny) },
		colour: func(l *admin.Lane) string { return if0(l.Blocked+l.WouldDeny, blocked) },
	},
	{
		title: "failed", sort: "failed", key: "f", least: 100,
		text:   func(l *admin.Lane, _ time.Time) string { return auditview.Number(l.Failed) },
		colour: func(l *admin.Lane) string { return if0(l.Failed, failed) },
	},
	{
		title: "queue", sort: "waiting", key: "w",
		text:   func(l *admin.Lane, _ time.Time) string { return auditview.Number(int64(l.Waiting)) },
		colour: func(l *admin.Lane) string { return if0(int64(l.Waiting), delayed) },
	},
	{
		title: "delay", sort: "delay", key: "d", least: 50,
		text: func(l *admin.Lane, _ time.Time) string { return spell(seconds(l.Delay)) },
	},
	{title: "next", sort: "next", key: "n", least: 60, text: nextText},
	{
		title: "waited", sort: "waited", key: "t", least: 72,
		text: func(l *admin.Lane, _ time.Time) string { return spell(seconds(l.WaitedSeconds)) },
	},
	{title: "state", sort: "paused", key: "s", left: true, least: 40, text: stateText, colour: stateColour},
}

// if0 returns colour, unless n is 0.
func if0(n int64, colour string) string {
	if n == 0 {
		return muted
	}
	return colour
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// spell returns d, or a dash if it is 0.
func spell(d time.Duration) string {
	if d <= 0 {
		return "-"
	}
	if d > time.Second {
		d = d.Round(100 * time.Millisecond)
	}
	return auditview.Duration(d)
}

// nextText says in how long the next request may start.
func nextText(l *admin.Lane, now time.Time) string {
	left := l.NextSlot.Sub(now).Round(time.Second)
	if left <= 0 {
		return "now"
	}
	return auditview.Duration(left)
}

// stateText lists the interventions, the pause and the fault of robots.txt that delay or refuse requests to a host.
func stateText(l *admin.Lane, now time.Time) string {
	var parts []string
	for _, i := range l.Interventions {
		parts = append(parts, order(i))
	}
	if left := l.PausedUntil.Sub(now).Round(time.Second); left > 0 {
		why := "429 or 503"
		if l.PauseSource == "retry-after" {
			why = "Retry-After"
		}
		parts = append(parts, "paused "+auditview.Duration(left)+", "+why)
	}
	if l.Robots != nil {
		switch l.Robots.State {
		case "unreachable", "html", "stale", "error":
			parts = append(parts, "robots.txt "+l.Robots.State)
		}
	}
	return strings.Join(parts, ", ")
}

func stateColour(l *admin.Lane) string {
	for _, i := range l.Interventions {
		if i.Kind == policy.Stop {
			return blocked
		}
	}
	if !l.PausedUntil.IsZero() || len(l.Interventions) > 0 {
		return delayed
	}
	return failed
}

// order says what an intervention does.
func order(i admin.Intervention) string {
	switch i.Kind {
	case policy.Stop:
		return "stopped"
	case policy.Slow:
		return "slow " + auditview.Duration(seconds(i.Delay))
	default:
		return "bypassed"
	}
}
