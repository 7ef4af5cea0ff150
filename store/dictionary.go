package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// maxKnown is the number of rows of a dictionary that a process keeps in memory. Clients choose some of the texts.
const maxKnown = 20_000

// dictionary finds the ids of rows that many records share. V has all columns of a row.
type dictionary[V comparable] struct {
	table   string
	columns []string
	values  func(*V) []any // of the columns: strings and integers
	known   map[V]known
	add     string // statement
}

// known is a row that is in the table, unless it was pruned after the day on which this process used it.
type known struct{ id, used int64 }

func newDictionary[V comparable](table string, columns string, values func(*V) []any) *dictionary[V] {
	d := &dictionary[V]{table: table, columns: strings.Fields(columns), values: values, known: make(map[V]known)}
	marks := strings.Repeat(", ?", len(d.columns))
	d.add = fmt.Sprintf("INSERT INTO %s (hash, used, %s) VALUES (?, ?%s) ON CONFLICT (hash) DO UPDATE SET used = max(%s.used, excluded.used) RETURNING id",
		table, strings.Join(d.columns, ", "), marks, table)
	return d
}

// id returns the id of v for a record that arrived on day, and adds v to the table if needed.
func (d *dictionary[V]) id(ctx context.Context, tx transaction, v V, day int64) (int64, error) {
	if k, ok := d.known[v]; ok && k.used >= day {
		return k.id, nil
	}
	id, err := d.addRow(ctx, tx, v, day)
	if err != nil {
		return 0, fmt.Errorf("adding to %s: %w", d.table, err)
	}
	if len(d.known) >= maxKnown {
		clear(d.known)
	}
	d.known[v] = known{id, day}
	return id, nil
}

func (d *dictionary[V]) addRow(ctx context.Context, tx transaction, v V, day int64) (id int64, err error) {
	values := d.values(&v)
	args := append([]any{hashOfValues(values), day}, values...)
	err = tx.QueryRowContext(ctx, d.add, args...).Scan(&id)
	return id, err
}

// hashOfValues returns 16 bytes of a SHA-256, by which a dictionary recognizes a row: an index over all columns would
// take as much room as the rows.
func hashOfValues(values []any) []byte {
	h := sha256.New()
	for _, value := range values {
		switch value := value.(type) {
		case string:
			h.Write(binary.AppendUvarint(nil, uint64(len(value))))
			h.Write([]byte(value))
		case int64:
			h.Write(binary.AppendVarint(nil, value))
		default:
			panic(fmt.Sprintf("store: a dictionary has no values of type %T", value))
		}
	}
	return h.Sum(nil)[:16]
}

// asker, target, verdict, pace and outcome are the parts of a record that many records share.
type (
	asker  struct{ client, address, tag, purpose, userAgent, sentUserAgent, agent, productToken, signatureAgent, keyID string }
	target struct {
		scheme, host string
		port         int64
		lane         string
	}
	verdict struct {
		method, via, mode, decision, reason string
		ruleLine                            int64
		rule                                string
		groupLine                           int64
		groupAgents                         string
		exemption, intervention, deviation  string
		sha256                              string
		status                              int64
		state                               string
		fetched                             int64
		dialect, policy                     string
		rulesVersion                        int64
		usage, price                        string
	}
	pace struct {
		delay                 int64
		source, mode, spacing string
	}
	outcome struct {
		status, retryAfter int64
		upstream, err      string
	}
	name struct{ text string }
)

// dictionaries are those of a Records. Records.mu guards them.
type dictionaries struct {
	askers   *dictionary[asker]
	targets  *dictionary[target]
	verdicts *dictionary[verdict]
	paces    *dictionary[pace]
	outcomes *dictionary[outcome]
	names    *dictionary[name]
}

const (
	askerColumns   = "client address tag purpose user_agent sent_user_agent agent product_token signature_agent keyid"
	targetColumns  = "scheme host port lane"
	verdictColumns = `method via mode decision reason rule_line rule group_line group_agents exemption intervention deviation
		robots_sha256 robots_status robots_state robots_fetched_at dialect policy_sha256 rules_version usage crawler_price`
	paceColumns    = "delay_required delay_source pacing_mode spacing"
	outcomeColumns = "status retry_after upstream_addr error"
)

func newDictionaries() dictionaries {
	return dictionaries{
		askers: newDictionary("askers", askerColumns, func(v *asker) []any {
			return []any{
				v.client, v.address, v.tag, v.purpose, v.userAgent, v.sentUserAgent, v.agent, v.productToken, v.signatureAgent, v.keyID,
			}
		}),
		targets: newDictionary("targets", targetColumns, func(v *target) []any {
			return []any{v.scheme, v.host, v.port, v.lane}
		}),
		verdicts: newDictionary("verdicts", verdictColumns, func(v *verdict) []any {
			return []any{
				v.method, v.via, v.mode, v.decision, v.reason, v.ruleLine, v.rule, v.groupLine, v.groupAgents, v.exemption,
				v.intervention, v.deviation, v.sha256, v.status, v.state, v.fetched, v.dialect, v.policy, v.rulesVersion, v.usage,
				v.price,
			}
		}),
		paces: newDictionary("paces", paceColumns, func(v *pace) []any {
			return []any{v.delay, v.source, v.mode, v.spacing}
		}),
		outcomes: newDictionary("outcomes", outcomeColumns, func(v *outcome) []any {
			return []any{v.status, v.retryAfter, v.upstream, v.err}
		}),
		names: newDictionary("names", "name", func(v *name) []any { return []any{v.text} }),
	}
}

// forget drops the ids that are in memory.
func (d *dictionaries) forget() { *d = newDictionaries() }

// columnList returns names of columns for a query, each after the alias of its table.
func columnList(alias, columns string) string {
	return alias + "." + strings.Join(slices.Collect(strings.FieldsSeq(columns)), ", "+alias+".")
}
