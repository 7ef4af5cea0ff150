package audit

import (
	"encoding/json"
	"time"
)

// Normal cuts r to the form that all outputs and stores have: times in UTC and durations to the microsecond, and texts
// as they are encoded, cut at their maximum size. Two records with the same encoding have the same normal form.
func (r *Record) Normal() {
	for _, t := range []*time.Time{&r.Time, &r.RobotsFetchedAt, &r.SignedAt, &r.SentAt, &r.ReleasedAt, &r.EndedAt} {
		if !t.IsZero() {
			*t = time.UnixMicro(t.UnixMicro()).UTC()
		}
	}
	for _, d := range []*Millis{&r.DelayRequired, &r.Waited, &r.Gap, &r.FirstByte} {
		*d = d.normal()
	}
	for _, s := range []*string{&r.UserAgent, &r.Rule, &r.GroupAgents, &r.Error} {
		*s = normalText(*s, maxLine)
	}
	for _, s := range []*string{&r.Path, &r.Query} {
		*s = normalText(*s, maxTarget)
	}
	for _, s := range []*string{
		&r.Client, &r.ClientAddr, &r.Tag, &r.Purpose, &r.SentUserAgent, &r.Agent, &r.ProductToken, &r.Method, &r.Scheme, &r.Host,
		(*string)(&r.Via), &r.Mode, (*string)(&r.Decision), (*string)(&r.Reason), &r.Exemption, &r.Intervention, &r.Deviation,
		&r.RobotsSHA256, &r.RobotsState, &r.Dialect, &r.PolicySHA256, &r.Usage, &r.CrawlerPrice, &r.DelaySource, &r.PacingMode,
		&r.Lane, &r.Spacing, &r.UpstreamAddr, &r.SignatureAgent, &r.KeyID, &r.SignatureNonce,
	} {
		*s = normalText(*s, maxText)
	}
}

// normal cuts m to the microsecond. A duration below one microsecond stays different from an unknown one.
func (m Millis) normal() Millis {
	if cut := m - m%Millis(time.Microsecond); cut != 0 || m == 0 {
		return cut
	}
	return 1
}

// normalText returns s as its encoding of at most the given size has it.
func normalText(s string, most int) string {
	if len(s) <= most && isPlain(s) {
		return s
	}
	e := encoder{}
	e.string(s, most)
	var text string
	if err := json.Unmarshal(e.b, &text); err != nil {
		return ""
	}
	return text
}

// isPlain reports whether s needs no escapes in JSON.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
