package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/settings"
	"github.com/robotsproxy/robotsproxy/policy"
)

// maxExemptionText bounds the values of an exemption that is not in the file, in bytes: the records of the requests that
// it decides contain them.
const maxExemptionText = 500

// ParseExemption reads an exemption that is added to those of c at now. The keys of entry are those of an entry of
// exemptions in the file; an empty value counts as none. The checks are those of the file, and an exemption that has
// expired is an error. The error has a line for each problem.
func (c *Config) ParseExemption(entry map[string]string, now time.Time) (policy.Exemption, error) {
	given := make(map[string]string)
	for key, value := range entry {
		if len(value) > maxExemptionText {
			return policy.Exemption{}, fmt.Errorf("%s: found %d bytes, expected at most %d", key, len(value), maxExemptionText)
		}
		if value != "" {
			given[key] = value
		}
	}
	file, err := json.Marshal(map[string]any{"exemptions": []any{given}}) // JSON is YAML
	if err != nil {
		return policy.Exemption{}, err
	}
	l := newLoader()
	l.cfg.Clients, l.cfg.Auth = c.Clients, c.Auth
	l.ReadYAML("", file)
	l.checkExemptions(now)
	if err := entryError(l.Err(), l.Warnings()); err != nil {
		return policy.Exemption{}, err
	}
	return l.cfg.Exemptions[0], nil
}

// entryError returns the problems and warnings of the first exemption as one error, without their places.
func entryError(err error, warnings []settings.Warning) error {
	var problems settings.Problems
	errors.As(err, &problems)
	for _, w := range warnings {
		problems = append(problems, settings.Problem(w))
	}
	var lines []string
	for _, p := range problems {
		lines = append(lines, strings.TrimPrefix(p.Key, "exemptions[0].")+": "+p.Text)
	}
	if lines == nil {
		return nil
	}
	return errors.New(strings.Join(lines, "\n"))
}
