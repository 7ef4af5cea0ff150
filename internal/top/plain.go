package top

import (
	"fmt"
	"io"
	"strings"

	"github.com/robotsproxy/robotsproxy/internal/auditview"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

// Write writes s as text: a sentence, the interventions in force, and a table of the hosts.
func (s *Sample) Write(w io.Writer, o auditview.Options) error {
	t := s.Total
	number := auditview.Number
	_, err := fmt.Fprintf(w, "%s  %.1f requests/s; %s to %s in the last %s: "+
		"%s blocked, %s delayed, %s failed. %s wait; %s paused. Mode %s.\n",
		auditview.Moment(s.Time, o.Zone), s.Rate, requests(t.Requests), hosts(t.Hosts), spell(seconds(s.Window)),
		number(t.Blocked+t.WouldDeny), number(t.Delayed), number(t.Failed), number(int64(s.Status.Waiting)),
		hosts(t.Paused), safetext.Text(s.Status.Mode))
	if err != nil {
		return err
	}
	if len(s.Interventions) > 0 {
		if _, err := fmt.Fprintf(w, "In force: %s.\n", interventionsText(s.Interventions)); err != nil {
			return err
		}
	}
	if len(s.Hosts) == 0 {
		return nil
	}
	o.Format = auditview.Table
	p := auditview.NewPrinter(w, o,
		auditview.Column{Title: "host", Least: 16}, auditview.Column{Title: "requests"}, auditview.Column{Title: "blocked"},
		auditview.Column{Title: "failed"}, auditview.Column{Title: "queue"}, auditview.Column{Title: "active"},
		auditview.Column{Title: "delay"}, auditview.Column{Title: "next"}, auditview.Column{Title: "waited"},
		auditview.Column{Title: "state", Least: 10})
	for i := range s.Hosts {
		l := &s.Hosts[i]
		err := p.Row(l.Host, l.Requests, l.Blocked+l.WouldDeny, l.Failed, int64(l.Waiting), int64(l.Active),
			spell(seconds(l.Delay)), nextText(l, s.Time), spell(seconds(l.WaitedSeconds)), stateText(l, s.Time))
		if err != nil {
			return err
		}
	}
	if err := p.Close(); err != nil {
		return err
	}
	if s.More {
		_, err = fmt.Fprintf(w, "and %s\n", strings.Replace(hosts(t.Hosts-len(s.Hosts)), " ", " more ", 1))
	}
	return err
}

func requests(n int64) string {
	if n == 1 {
		return "1 request"
	}
	return auditview.Number(n) + " requests"
}

func hosts(n int) string {
	if n == 1 {
		return "1 host"
	}
	return auditview.Number(int64(n)) + " hosts"
}
