package auditview

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
	"github.com/robotsproxy/robotsproxy/policy"
)

// cell is a value in a table.
type cell struct {
	text  string
	right bool // aligned
	style style
}

// style is an escape sequence of a terminal (ECMA-48 SGR).
type style string

const (
	plain  style = ""
	bold   style = "\x1b[1m"
	faint  style = "\x1b[2m"
	red    style = "\x1b[31m" // refused for good
	yellow style = "\x1b[33m" // may come again
	reset        = "\x1b[0m"
)

func (c cell) width() int { return utf8.RuneCountInString(c.text) }

func (c cell) styled(colour bool) string {
	if !colour || c.style == plain {
		return c.text
	}
	return string(c.style) + c.text + reset
}

// key is a text that a table shows as "-" if it is empty.
type key string

// figure is a text with numbers, which a table shows as it shows a number.
type figure string

func newCell(v any, o Options) cell {
	switch v := v.(type) {
	case policy.Outcome:
		return cell{text: string(v), style: outcomeStyle(v)}
	case int64:
		return cell{text: Number(v), right: true}
	case time.Duration:
		return cell{text: Duration(v), right: true}
	case time.Time:
		return cell{text: o.moment(v), right: o.Width > 0}
	case figure:
		return cell{text: string(v), right: true}
	case key:
		return cell{text: cmp.Or(safetext.Text(string(v)), "-")}
	}
	return cell{text: safetext.Text(v.(string))}
}

func outcomeStyle(o policy.Outcome) style {
	switch o {
	case policy.Deny, policy.Error:
		return red
	case policy.WouldDeny, policy.Throttle, policy.WouldThrottle:
		return yellow
	}
	return plain
}

// Number returns n with commas between thousands: 48,210.
func Number(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// Duration returns d in the two largest units: "1 m 10 s", "3 h 12 m", "2 d 4 h". Below ten seconds it has up to three
// decimals.
func Duration(d time.Duration) string {
	if d < 0 {
		return "-" + Duration(-d)
	}
	if d < 10*time.Second {
		return strconv.FormatFloat(float64(d.Round(time.Millisecond))/float64(time.Second), 'f', -1, 64) + " s"
	}
	units := []struct {
		name string
		size time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}
	for i, u := range units[:3] {
		if d < u.size {
			continue
		}
		next := units[i+1]
		if round := d.Round(next.size); round != d {
			return Duration(round) // which may be a unit larger
		}
		text := fmt.Sprintf("%d %s", d/u.size, u.name)
		if rest := d % u.size / next.size; rest > 0 {
			text += fmt.Sprintf(" %d %s", rest, next.name)
		}
		return text
	}
	if round := d.Round(time.Second); round != d {
		return Duration(round)
	}
	return fmt.Sprintf("%d s", d/time.Second)
}

// Moment returns t to the second in a zone, UTC if that is nil. It is empty for the zero time.
func Moment(t time.Time, zone *time.Location) string {
	if t.IsZero() {
		return ""
	}
	if zone == nil {
		zone = time.UTC
	}
	return t.In(zone).Format(time.DateTime)
}

// moment returns t for a table.
func (o Options) moment(t time.Time) string {
	s, now := Moment(t, o.Zone), Moment(o.Now, o.Zone)
	switch {
	case o.Width == 0 || s == "" || now == "" || s[:4] != now[:4]:
		return s
	case s[:len(time.DateOnly)] == now[:len(time.DateOnly)]:
		return s[len("2006-01-02 "):]
	}
	if o.Zone != nil {
		t = t.In(o.Zone)
	}
	return t.Format("2 Jan 15:04:05")
}

// appendValue appends v as JSON, as audit.Record has it.
func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case int64:
		return strconv.AppendInt(b, v, 10)
	case time.Duration:
		text, _ := audit.Millis(v).MarshalJSON() // cannot fail
		return append(b, text...)
	case time.Time:
		if v.IsZero() {
			return append(b, "null"...)
		}
		return append(append(append(b, '"'), v.UTC().Format(time.RFC3339Nano)...), '"')
	case policy.Outcome:
		return safetext.AppendJSON(b, string(v))
	case key:
		return safetext.AppendJSON(b, string(v))
	}
	return safetext.AppendJSON(b, v.(string))
}

// Field returns v for CSV: numbers and times as in JSON, durations in milliseconds, and texts as on a terminal, with an
// apostrophe before those that a spreadsheet would read as a formula.
func Field(v any) string {
	switch v := v.(type) {
	case int64, time.Duration:
		return string(appendValue(nil, v))
	case time.Time:
		if v.IsZero() {
			return ""
		}
		return v.UTC().Format(time.RFC3339Nano)
	case policy.Outcome:
		return string(v)
	case key:
		return Text(string(v))
	}
	return Text(v.(string))
}

// Text returns s for a cell of CSV. See OWASP, CSV Injection.
func Text(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r\n", rune(s[0])) {
		s = "'" + s
	}
	return safetext.Text(s)
}
