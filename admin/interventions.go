package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
)

// Interventions are what the operator orders while the proxy runs.
type Interventions interface {
	// Interventions returns those that are in force.
	Interventions() []policy.Intervention
	// Intervene puts i in force, in place of that of the same kind and host.
	Intervene(ctx context.Context, i policy.Intervention) (InterventionEffect, error)
	// Lift ends the interventions of these hosts or patterns. who says who lifts them, and why.
	Lift(ctx context.Context, hosts []string, who string) (InterventionEffect, error)
}

// maxInterventions bounds the interventions that are in force: each request is compared with all.
const maxInterventions = 1000

// InterventionEffect is what a change of the interventions has done.
type InterventionEffect struct {
	Instances  InstanceCount `json:"instances"`
	Answered   int           `json:"answered_requests"`    // that waited for a host which was stopped
	Tunnels    int           `json:"closed_tunnels"`       // raw tunnels
	WebSockets int           `json:"closed_websockets"`    //
	NotStored  string        `json:"not_stored,omitempty"` // why the change does not survive a restart
}

// InstanceCount says on how many instances of the proxy a change is in force.
type InstanceCount struct {
	Total        int      `json:"total"`
	Acknowledged int      `json:"acknowledged"`
	Missing      []string `json:"missing,omitempty"` // those that may not obey it yet, and since when they are silent
	Error        string   `json:"error,omitempty"`   // why the others could not be asked
}

// Intervention is an intervention of the API.
type Intervention struct {
	Kind   policy.InterventionKind `json:"kind"`
	Host   string                  `json:"host"`
	Delay  float64                 `json:"delay_seconds,omitempty"`
	Reason string                  `json:"reason"`
	By     string                  `json:"by"`
	Since  time.Time               `json:"since"`
	Until  time.Time               `json:"until,omitzero"`
}

// InterventionList is the response of GET /interventions.
type InterventionList struct {
	Interventions []Intervention `json:"interventions"`
}

// NewIntervention is the body of POST /interventions. Until and For exclude each other.
type NewIntervention struct {
	Kind   policy.InterventionKind `json:"kind"`
	Host   string                  `json:"host"`
	Delay  float64                 `json:"delay_seconds,omitempty"`
	Reason string                  `json:"reason"`
	By     string                  `json:"by"`
	Until  time.Time               `json:"until,omitzero"`
	For    float64                 `json:"for_seconds,omitempty"`
}

// InterventionChange is the response to a change of the interventions.
type InterventionChange struct {
	Interventions []Intervention `json:"interventions"` // that began, or that were lifted
	InterventionEffect
}

func (h *Handler) interventionRoutes() []route {
	return []route{
		{pattern: "GET /interventions", answer: h.listInterventions},
		{pattern: "POST /interventions", answer: h.intervene},
		{pattern: "DELETE /interventions", answer: h.liftInterventions},
	}
}

func (h *Handler) listInterventions(*http.Request) (any, error) {
	return InterventionList{shown(h.options.Interventions.Interventions())}, nil
}

// shown returns interventions as the API shows them, those of one host together.
func shown(all []policy.Intervention) []Intervention {
	list := []Intervention{}
	for _, i := range all {
		list = append(list, Intervention{i.Kind, i.Host, inSeconds(i.Delay), i.Reason, i.By, i.Since, i.Until})
	}
	slices.SortStableFunc(list, func(a, b Intervention) int { return cmp.Compare(a.Host, b.Host) })
	return list
}

func (h *Handler) intervene(r *http.Request) (any, error) {
	var n NewIntervention
	if err := readBody(r, &n); err != nil {
		return nil, err
	}
	i, effect, err := Intervene(r.Context(), h.options.Interventions, n)
	if err != nil {
		return nil, err
	}
	return InterventionChange{shown([]policy.Intervention{i}), effect}, nil
}

// Intervene puts n in force from now on. The error of a wrong n is a policy.FieldError; StatusOf tells others apart.
func Intervene(ctx context.Context, in Interventions, n NewIntervention) (i policy.Intervention, effect InterventionEffect, err error) {
	if i, err = n.intervention(time.Now()); err != nil {
		return i, effect, &apiError{http.StatusBadRequest, err}
	}
	if n := len(in.Interventions()); n >= maxInterventions {
		return i, effect, &apiError{http.StatusConflict, fmt.Errorf("%d interventions are in force, which is the maximum: "+
			"lift some, or use a pattern", n)}
	}
	effect, err = in.Intervene(ctx, i)
	return i, effect, err
}

// intervention returns n as it begins now.
func (n *NewIntervention) intervention(now time.Time) (policy.Intervention, error) {
	i := policy.Intervention{Kind: n.Kind, Host: n.Host, Reason: n.Reason, By: n.By, Since: now, Until: n.Until}
	var err error
	if i.Delay, err = seconds("delay_seconds", n.Delay); err != nil {
		return i, &policy.FieldError{Field: "delay", Err: err}
	}
	length, err := seconds("for_seconds", n.For)
	switch {
	case err != nil:
	case n.For < 0:
		err = fmt.Errorf("for_seconds is %v, and must be above 0", n.For)
	case n.For > 0 && !n.Until.IsZero():
		err = errors.New("until and for_seconds exclude each other")
	case n.For > 0:
		i.Until = now.Add(length)
	}
	if err == nil && i.Expired(now) {
		err = fmt.Errorf("the end, %s, is in the past", i.Until.Format(time.RFC3339))
	}
	if err != nil {
		return i, &policy.FieldError{Field: "until", Err: err}
	}
	return i, i.Check()
}

// seconds returns a duration of the API.
func seconds(name string, s float64) (time.Duration, error) {
	const most = math.MaxInt64 / float64(time.Second)
	if math.Abs(s) >= most {
		return 0, fmt.Errorf("%s is more than 292 years", name)
	}
	return time.Duration(s * float64(time.Second)), nil
}

// liftInterventions ends the interventions of one host or pattern; of all hosts; or, if the request names none, of the
// only host that has any.
func (h *Handler) liftInterventions(r *http.Request) (any, error) {
	who := strings.Trim(r.FormValue("by")+": "+r.FormValue("reason"), ": ")
	lifted, effect, err := Lift(r.Context(), h.options.Interventions, r.FormValue("host"), r.FormValue("all") == "true", who)
	if err != nil {
		return nil, err
	}
	return InterventionChange{shown(lifted), effect}, nil
}

// Lift ends the interventions of a host or pattern, or of every one, or if host is empty, of the only one that has any.
// who says who lifts them, and why. It returns the interventions that were lifted.
func Lift(ctx context.Context, in Interventions, host string, every bool, who string) ([]policy.Intervention, InterventionEffect, error) {
	all := in.Interventions()
	hosts, err := toLift(all, host, every)
	if err != nil {
		return nil, InterventionEffect{}, err
	}
	lifted := slices.DeleteFunc(all, func(i policy.Intervention) bool { return !slices.Contains(hosts, i.Host) })
	effect, err := in.Lift(ctx, hosts, who)
	return lifted, effect, err
}

// toLift returns the patterns of the interventions in all to lift.
func toLift(all []policy.Intervention, host string, every bool) ([]string, error) {
	var hosts []string
	for _, i := range all {
		if !slices.Contains(hosts, i.Host) {
			hosts = append(hosts, i.Host)
		}
	}
	slices.Sort(hosts)
	switch {
	case every && host != "":
		return nil, &apiError{http.StatusBadRequest, errors.New("host and all exclude each other")}
	case host != "" && slices.Contains(hosts, host):
		return []string{host}, nil
	case host != "":
		return nil, &apiError{http.StatusNotFound, notIntervened(host, hosts)}
	case len(hosts) == 0:
		return nil, &apiError{http.StatusNotFound, errors.New("no intervention is in force")}
	case !every && len(hosts) > 1:
		const most = 5
		names := strings.Join(hosts[:min(len(hosts), most)], ", ")
		if len(hosts) > most {
			names += ", and others"
		}
		return nil, &apiError{http.StatusBadRequest, fmt.Errorf("%d hosts have interventions (%s): "+
			"name one, or --all", len(hosts), names)}
	}
	return hosts, nil
}

// notIntervened returns the error for a host without interventions. It names the patterns that match the host.
func notIntervened(host string, patterns []string) error {
	for _, pattern := range patterns {
		if policy.MatchHost(pattern, host) {
			return fmt.Errorf("%s has no intervention of its own; that of %s matches it", host, pattern)
		}
	}
	return fmt.Errorf("%s has no intervention", host)
}
