// Package auditquery reads the words of a question about records, as the flags of commands and the parameters of the API
// have them.
//
//	f, err := auditquery.Words{Since: "24h", Host: "*.example", Decisions: []string{"deny"}}.Filter(time.Now())
package auditquery

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/settings"
	"github.com/robotsproxy/robotsproxy/policy"
)

// Words are an audit.Filter as written. Empty fields select all.
type Words struct {
	Since, Until             string // see Moment
	Host                     string // or a pattern, such as *.example
	Client, Agent, Tag       string
	Path                     string
	Rule                     string // without its line
	Decisions, Reasons, Vias []string
}

// Vias are the ways in which requests arrive.
var Vias = []audit.Via{audit.Plain, audit.Intercepted, audit.Tunnel, audit.Robots}

// Error is a fault of one word. Its text begins with Name.
type Error struct {
	Name string // of the flag or parameter
	Err  error
}

func (e *Error) Error() string { return e.Name + " " + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// Filter returns the filter that w describes. Times are relative to now, and in its zone. All errors are of type *Error.
func (w Words) Filter(now time.Time) (f audit.Filter, err error) {
	f = audit.Filter{Client: w.Client, Agent: w.Agent, Tag: w.Tag, Path: w.Path, Rule: w.Rule}
	if f.Since, err = Moment("since", w.Since, now); err != nil {
		return f, err
	}
	if f.Until, err = Moment("until", w.Until, now); err != nil {
		return f, err
	}
	if !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return f, &Error{"since", fmt.Errorf("%q is not before until %q", w.Since, w.Until)}
	}
	if w.Host != "" {
		if f.Host, err = config.ParsePattern(w.Host); err != nil {
			return f, &Error{"host", err}
		}
	}
	if f.Decisions, err = Listed("decision", w.Decisions, policy.Outcomes); err != nil {
		return f, err
	}
	if f.Reasons, err = Listed("reason", w.Reasons, policy.Reasons); err != nil {
		return f, err
	}
	f.Vias, err = Listed("via", w.Vias, Vias)
	return f, err
}

// DayLayouts are the layouts of a day, and of a time on it.
var DayLayouts = []string{"2006-01-02", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02 15:04:05"}

// Moment reads a duration before now, such as 24h or 30d, or a moment in the zone of now. A day stands for its
// beginning. An empty text stands for the zero time.
func Moment(name, text string, now time.Time) (time.Time, error) {
	midnight := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location())
	switch text {
	case "":
		return time.Time{}, nil
	case "today":
		return midnight, nil
	case "yesterday":
		return midnight.AddDate(0, 0, -1), nil
	}
	if d, err := config.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range append(slices.Clip(DayLayouts), time.RFC3339) {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, &Error{name, fmt.Errorf("%q is no time; write 24h or 30d (ago), today, yesterday, 2026-11-22, "+
		"\"2026-11-22 14:00\" or 2026-11-22T14:00:00Z", text)}
}

// Step reads a duration of whole minutes.
func Step(name, text string) (time.Duration, error) {
	d, err := config.ParseDuration(text)
	if err != nil || d < time.Minute || d%time.Minute != 0 {
		return 0, &Error{name, fmt.Errorf("%q is not a number of whole minutes, such as 5m or 1h", text)}
	}
	return d, nil
}

// Listed returns the words, which must be in all.
func Listed[T ~string](name string, words []string, all []T) (found []T, err error) {
	for _, w := range words {
		word := T(strings.TrimSpace(w))
		if !slices.Contains(all, word) {
			return nil, &Error{name, notListed(w, all)}
		}
		if !slices.Contains(found, word) {
			found = append(found, word)
		}
	}
	return found, nil
}

func notListed[T ~string](word string, all []T) error {
	candidates := make(map[string]T, len(all)) // in snake case, which settings.Suggest expects
	names := make([]string, 0, len(all))
	for _, w := range all {
		name := strings.ReplaceAll(string(w), "-", "_")
		candidates[name] = w
		names = append(names, name)
	}
	text := fmt.Sprintf("%q is not one of %s", word, List(all))
	if near, ok := candidates[settings.Suggest(word, names)]; ok {
		text += fmt.Sprintf("; did you mean %s?", near)
	}
	return errors.New(text)
}

// List returns words with commas.
func List[T ~string](all []T) string {
	names := make([]string, len(all))
	for i, word := range all {
		names[i] = string(word)
	}
	return strings.Join(names, ", ")
}

// Topics are the plurals of the dimensions by which the most frequent values are asked for.
var Topics = []string{"hosts", "paths", "clients", "agents", "rules", "reasons"}

// Topic returns the dimension of one of Topics.
func Topic(name, word string) (audit.Dimension, error) {
	if _, err := Listed(name, []string{word}, Topics); err != nil {
		return "", err
	}
	return audit.Dimension(strings.TrimSuffix(word, "s")), nil
}
