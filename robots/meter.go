package robots

import "time"

// meterSpan is the time over which a meter counts.
const meterSpan = 10 * time.Second

// meter counts events of about the last meterSpan. The zero value has counted none.
type meter struct {
	begin       time.Time // of the span of now
	now, before int       // events in this span, and in the last one
}

func (m *meter) add(t time.Time) {
	m.turn(t)
	m.now++
}

// turn begins another span if the present one is over.
func (m *meter) turn(t time.Time) {
	switch past := t.Sub(m.begin); {
	case past < meterSpan:
	case past < 2*meterSpan:
		m.begin, m.before, m.now = m.begin.Add(meterSpan), m.now, 0
	default:
		m.begin, m.before, m.now = t, 0, 0
	}
}

// rate returns the events in a second.
func (m *meter) rate(t time.Time) float64 {
	m.turn(t)
	past := t.Sub(m.begin)
	if m.before == 0 { // it began a moment ago
		return float64(m.now) / max(past, time.Second).Seconds()
	}
	return (float64(m.now) + float64(m.before)*float64(meterSpan-past)/float64(meterSpan)) / meterSpan.Seconds()
}
