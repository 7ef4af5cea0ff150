package admin

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
)

// Exemptions are the exemptions of the configuration, and those that operators have added while the proxy ran.
type Exemptions interface {
	// All returns those of the configuration, then the added ones, each kind in its order. Expired ones are among them.
	All() []Exemption
	// Parse checks a new exemption. The keys of entry are those of the configuration.
	Parse(entry map[string]string) (policy.Exemption, error)
	// Add puts e in force and stores it.
	Add(ctx context.Context, e policy.Exemption) (Exemption, error)
	// Remove ends the added exemption with an ID, and returns it. It returns false if there is no such exemption.
	Remove(ctx context.Context, id int64) (Exemption, bool, error)
	// OtherInstances returns how many instances share their pace with this one. They do not share added exemptions.
	OtherInstances() int
}

// The values of Exemption.Source.
const (
	SourceFile  = "file"  // the configuration
	SourceStore = "store" // added while the proxy ran
)

// maxExemptions bounds the added exemptions: each request is compared with all.
const maxExemptions = 1000

// Exemption is an exemption of the API.
type Exemption struct {
	ID      int64     `json:"id,omitempty"` // of an added one
	Source  string    `json:"source"`
	Effect  string    `json:"effect"` // deny or allow
	Host    string    `json:"host"`   // pattern
	Path    string    `json:"path,omitempty"`
	Client  string    `json:"client,omitempty"`
	Reason  string    `json:"reason"`
	Owner   string    `json:"owner"`
	Added   time.Time `json:"added,omitzero"`
	Until   time.Time `json:"until,omitzero"`
	Expired bool      `json:"expired"`
}

// NewExemption returns e, an exemption from a source, as the API shows it at now.
func NewExemption(e policy.Exemption, source string, now time.Time) Exemption {
	return Exemption{
		Source: source, Effect: e.Effect.String(), Host: e.Host, Path: e.Path, Client: e.Client,
		Reason: e.Reason, Owner: e.Owner, Until: e.Until, Expired: e.Expired(now),
	}
}

// ExemptionChange is the response to a change of the exemptions.
type ExemptionChange struct {
	Exemption
	Others int `json:"other_instances"` // that the change does not concern
}

// ExemptionList is the response of GET /exemptions.
type ExemptionList struct {
	Exemptions []Exemption `json:"exemptions"`
}

func (h *Handler) exemptionRoutes() []route {
	return []route{
		{pattern: "GET /exemptions", answer: h.listExemptions},
		{pattern: "POST /exemptions", answer: h.addExemption},
		{pattern: "DELETE /exemptions", answer: h.removeExemption},
	}
}

func (h *Handler) listExemptions(*http.Request) (any, error) {
	return ExemptionList{append([]Exemption{}, h.options.Exemptions.All()...)}, nil
}

// addExemption adds the exemption in the body, whose keys and values are those of the configuration.
func (h *Handler) addExemption(r *http.Request) (any, error) {
	var entry map[string]string
	if err := readBody(r, &entry); err != nil {
		return nil, err
	}
	shown, err := AddExemption(r.Context(), h.options.Exemptions, entry)
	return ExemptionChange{shown, h.options.Exemptions.OtherInstances()}, err
}

// AddExemption puts a new exemption in force. The keys and values of entry are those of the configuration. The error of a
// wrong entry has a line for each fault, "key: text"; StatusOf tells others apart.
func AddExemption(ctx context.Context, all Exemptions, entry map[string]string) (Exemption, error) {
	e, err := all.Parse(entry)
	if err != nil {
		return Exemption{}, &apiError{http.StatusBadRequest, err}
	}
	added := 0
	for _, other := range all.All() {
		if other.Source == SourceStore {
			added++
		}
	}
	if added >= maxExemptions {
		return Exemption{}, &apiError{http.StatusConflict, fmt.Errorf("%d exemptions were added, which is the maximum: remove some", added)}
	}
	return all.Add(ctx, e)
}

// removeExemption removes the exemption with the id in the query.
func (h *Handler) removeExemption(r *http.Request) (any, error) {
	removed, err := RemoveExemption(r.Context(), h.options.Exemptions, r.URL.Query().Get("id"))
	return ExemptionChange{removed, h.options.Exemptions.OtherInstances()}, err
}

// RemoveExemption ends the added exemption with an ID, in decimal.
func RemoveExemption(ctx context.Context, all Exemptions, id string) (Exemption, error) {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return Exemption{}, &apiError{http.StatusBadRequest, fmt.Errorf("the id %.40q is not a number", id)}
	}
	removed, found, err := all.Remove(ctx, n)
	if err == nil && !found {
		return Exemption{}, &apiError{http.StatusNotFound, fmt.Errorf("no exemption with the id %d was added", n)}
	}
	return removed, err
}
