package auditview

import (
	"cmp"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
)

// Records writes records, each with all fields in JSON and CSV, and with the most important ones in a table.
type Records struct {
	*Printer
	values []any
}

// NewRecords returns Records that write to w. They must be closed.
func NewRecords(w io.Writer, o Options) *Records {
	columns := []Column{
		{Title: "id"},
		{Title: "time"},
		{Title: "decision"},
		{Title: "crawler"},
		{Title: "request", Least: 24},
		{Title: "why", Least: 16},
		{Title: "status"},
		{Title: "waited"},
	}
	if o.Format == CSV {
		columns = columns[:0]
		for _, name := range audit.Columns {
			columns = append(columns, Column{Name: name})
		}
	}
	return &Records{Printer: NewPrinter(w, o, columns...)}
}

// Add writes r.
func (rs *Records) Add(r *audit.Record) error {
	switch rs.options.Format {
	case JSON, JSONL:
		return rs.object(r.AppendJSON)
	case CSV:
		rs.values = r.Values(rs.values[:0])
		return rs.Row(rs.values...)
	}
	return rs.Row(r.ID.String(), r.Time, r.Decision, Crawler(r), Target(r), Why(r), statusText(r), waitedText(r))
}

// Crawler returns the crawler of r: the label of its User-Agent, or its client.
func Crawler(r *audit.Record) string { return cmp.Or(r.Agent, r.Client, "-") }

// URL returns the URL of r, or host and port of a tunnel.
func URL(r *audit.Record) string {
	if r.Via == audit.Tunnel || r.Path == "" {
		return authority(r)
	}
	return r.Scheme + "://" + Target(r)
}

// Target returns the URL of r without its scheme.
func Target(r *audit.Record) string {
	if r.Query == "" {
		return authority(r) + r.Path
	}
	return authority(r) + r.Path + "?" + r.Query
}

// authority returns the host of r, with its port if that is not the default one.
func authority(r *audit.Record) string {
	host := cmp.Or(r.Host, "-") // nothing was read
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if r.Port == 0 || r.Port == 80 && r.Scheme == "http" || r.Port == 443 && r.Scheme == "https" && r.Via != audit.Tunnel {
		return host
	}
	return host + ":" + strconv.Itoa(int(r.Port))
}

// Why returns the cause of the decision of r: the rule, the intervention, the exemption or the error. For a request that
// was allowed it returns the price of the response.
func Why(r *audit.Record) string {
	switch {
	case r.Intervention != "" && r.Reason == policy.ReasonStopped:
		return r.Intervention
	case r.Exemption != "" && r.Reason == policy.ReasonExemption:
		return r.Exemption
	case r.Decision == policy.Allow && r.Reason == policy.ReasonNone:
		return priceText(r)
	case r.Rule != "" && (r.Decision == policy.Deny || r.Decision == policy.WouldDeny):
		return audit.RuleText(r.RuleLine, r.Rule)
	case r.Error == "" || strings.HasPrefix(r.Error, string(r.Reason)+": "):
		return cmp.Or(r.Error, string(r.Reason))
	}
	return string(r.Reason) + ": " + r.Error
}

// priceText returns the price of the response in words, if it has one.
func priceText(r *audit.Record) string {
	switch {
	case r.CrawlerPrice == "", strings.HasPrefix(r.CrawlerPrice, "charged "):
		return r.CrawlerPrice
	}
	return "price " + r.CrawlerPrice
}

// statusText returns the status that the client received, or "open" for a request that has not ended.
func statusText(r *audit.Record) string {
	switch {
	case r.EndedAt.IsZero():
		return "open"
	case r.Status == 0:
		return "-"
	}
	return strconv.Itoa(r.Status)
}

func waitedText(r *audit.Record) string {
	if r.Waited == 0 {
		return ""
	}
	return Duration(time.Duration(r.Waited))
}
