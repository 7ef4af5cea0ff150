package rules

import (
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Rate is a Request-rate: a number of requests in a time.
type Rate struct {
	Requests int
	Per      time.Duration
	During   Hours // if zero, all day
}

// Hours is a time of day in UTC, since midnight. If From is after To, it extends past midnight.
type Hours struct{ From, To time.Duration }

// RequestRate returns the first Request-rate for the agent, and whether there is one. The field has no standard. Its
// value is "n/m", m in seconds or with a suffix s, m, h or d, and optionally "hhmm-hhmm", the hours in which it
// applies.
func (a Agent) RequestRate() (Rate, bool) {
	for x := range a.records(keyRequestRate) {
		if rate, ok := parseRate(a.set.value(x)); ok {
			return rate, true
		}
	}
	return Rate{}, false
}

// VisitTime returns the first Visit-time for the agent, and whether there is one. The field has no standard. Its value
// is "hhmm-hhmm" or "hhmm hhmm".
func (a Agent) VisitTime() (Hours, bool) {
	for x := range a.records(keyVisitTime) {
		if hours, ok := parseHours(a.set.value(x)); ok {
			return hours, true
		}
	}
	return Hours{}, false
}

// records yields the records of a kind that apply to the agent: one of their user-agent lines is the agent's. It reads
// each record and each user-agent line of the file once, because records with the same user-agent lines are adjacent.
func (a Agent) records(k key) iter.Seq[*record] {
	return func(yield func(*record) bool) {
		if !a.found() {
			return
		}
		var list uint32 // of the record before
		var names []name
		has := false
		for i := range a.set.records {
			x := &a.set.records[i]
			if x.key != k {
				continue
			}
			if x.list != list {
				list = x.list
				if n := a.set.namesOf(x); !sameNames(n, names) {
					names, has = n, a.isAmong(n)
				}
			}
			if has && !yield(x) {
				return
			}
		}
	}
}

// sameNames reports whether a and b are the same lines, not only equal ones.
func sameNames(a, b []name) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

func (a Agent) isAmong(names []name) bool {
	return slices.ContainsFunc(names, func(n name) bool { return n.token == uint32(a.token) })
}

// namesOf returns the user-agent lines of a record: if it is of use, those of the group, as for a rule; for all
// others the list above it, as for a Crawl-delay.
func (r *Ruleset) namesOf(x *record) []name {
	if x.list == 0 {
		return nil
	}
	if x.key.ofUse() {
		i := before(r.groups, x.line, func(g group) uint32 { return g.line })
		end := ^uint32(0)
		if i < len(r.groups) {
			end = r.groups[i].line
		}
		byLine := func(n name) uint32 { return n.line }
		return r.names[before(r.names, r.groups[i-1].line, byLine):before(r.names, end, byLine)]
	}
	byList := func(n name) uint32 { return n.list }
	return r.names[before(r.names, x.list, byList):before(r.names, x.list+1, byList)]
}

// parseRate parses the value of a Request-rate.
func parseRate(s string) (rate Rate, ok bool) {
	requests, rest, ok := strings.Cut(s, "/")
	if !ok {
		return rate, false
	}
	per, hours, timed := strings.Cut(strings.TrimSpace(rest), " ")
	if timed {
		if rate.During, ok = parseHours(hours); !ok {
			return rate, false
		}
	}
	unit := time.Second
	if n := len(per) - 1; n > 0 {
		if u, known := units[lowerASCII(per[n])]; known {
			per, unit = per[:n], u
		}
	}
	n, err1 := strconv.ParseUint(strings.TrimSpace(requests), 10, 31)
	m, err2 := strconv.ParseUint(per, 10, 16)
	rate.Requests, rate.Per = int(n), time.Duration(m)*unit
	return rate, err1 == nil && err2 == nil && n > 0 && m > 0
}

var units = map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}

// parseHours parses "hhmm-hhmm" or "hhmm hhmm".
func parseHours(s string) (h Hours, ok bool) {
	from, to, ok := strings.Cut(strings.TrimSpace(s), "-")
	if !ok {
		from, to, ok = strings.Cut(from, " ")
	}
	if !ok {
		return h, false
	}
	var okTo bool
	h.From, ok = parseClock(strings.TrimSpace(from))
	h.To, okTo = parseClock(strings.TrimSpace(to))
	return h, ok && okTo
}

// parseClock parses "hhmm" or "hh:mm", optionally with a suffix for UTC.
func parseClock(s string) (time.Duration, bool) {
	s = strings.Replace(strings.TrimSuffix(strings.ToUpper(s), "Z"), ":", "", 1)
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || len(s) != 4 || n > 2400 || n%100 > 59 {
		return 0, false
	}
	return time.Duration(n/100)*time.Hour + time.Duration(n%100)*time.Minute, true
}

// Host returns the first valid host name in a Host field, or "". It is the preferred name of a site with several. The
// field has no standard.
func (r *Ruleset) Host() string {
	for i := range r.records {
		if x := &r.records[i]; x.key == keyHost && isHost(r.value(x)) {
			return r.value(x)
		}
	}
	return ""
}

func isHost(s string) bool {
	return s != "" && len(s) <= 255 && !strings.ContainsAny(s, " \t,;?&=")
}
