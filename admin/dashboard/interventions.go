package dashboard

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
)

// orderPage is the data of intervene.html.
type orderPage struct {
	form
	Kinds   []choice
	Lengths []choice
}

// choice is one value of a field.
type choice struct {
	Value, Text, Hint string
	Chosen            bool
}

// kinds are the kinds of interventions.
var kinds = []choice{
	{Value: string(policy.Stop), Text: "Stop", Hint: "refuse every request, also those that wait, and close tunnels"},
	{Value: string(policy.Slow), Text: "Slow", Hint: "leave a longer Delay between two requests"},
	{Value: string(policy.Bypass), Text: "Bypass", Hint: "refuse and delay nothing, and only report it"},
}

// lifetimes are the usual lengths of interventions.
var lifetimes = []choice{
	{Value: "600", Text: "10 minutes"},
	{Value: "3600", Text: "1 hour"},
	{Value: "28800", Text: "8 hours"},
	{Value: "86400", Text: "1 day"},
	{Value: "604800", Text: "1 week"},
	{Value: "0", Text: "until it is lifted"},
}

// choose returns choices, of which the one with a value is chosen.
func choose(all []choice, value string) []choice {
	all = slices.Clone(all)
	for i := range all {
		all[i].Chosen = all[i].Value == value
	}
	return all
}

// errNoInterventions is the error of a listener that belongs to no proxy.
var errNoInterventions = &fault{http.StatusNotFound, "This listener has no interventions."}

// newIntervention shows the form of an intervention.
func (h *Handler) newIntervention(v *view) error {
	if h.options.Interventions == nil {
		return errNoInterventions
	}
	f, err := newForm(v, "/settings")
	if err != nil {
		return err
	}
	return v.orderForm(f, http.StatusOK)
}

func (v *view) orderForm(f form, status int) error {
	kind := f.Get("kind")
	if !slices.ContainsFunc(kinds, func(c choice) bool { return c.Value == kind }) {
		kind = string(policy.Stop)
	}
	length := f.Get("for_seconds")
	if !slices.ContainsFunc(lifetimes, func(c choice) bool { return c.Value == length }) {
		length = "3600"
	}
	v.show(v.w, v.Request, status, "New intervention", "intervene.html", orderPage{f, choose(kinds, kind), choose(lifetimes, length)})
	return nil
}

// intervene puts the intervention of a form in force.
func (h *Handler) intervene(v *view) error {
	if h.options.Interventions == nil {
		return errNoInterventions
	}
	f, err := newForm(v, "/settings")
	if err != nil {
		return err
	}
	n := admin.NewIntervention{Kind: policy.InterventionKind(f.Get("kind")), Host: f.Get("host"), Reason: f.Get("reason"), By: f.Get("by")}
	if host, err := origin.Host(n.Host); err == nil {
		n.Host = host
	}
	if n.Kind == policy.Slow {
		n.Delay = f.seconds("delay_seconds")
	}
	n.For = f.seconds("for_seconds")
	if !f.require("host", "reason", "by") {
		return v.orderForm(f, http.StatusBadRequest)
	}
	before := h.ofPattern(n.Host)
	i, effect, err := admin.Intervene(v.ctx(), h.options.Interventions, n)
	if err != nil {
		return v.orderForm(f, f.note(err))
	}
	u := &undo{by: i.By}
	same := func(old policy.Intervention) bool { return old.Kind == i.Kind }
	if !slices.ContainsFunc(before, same) {
		u.lift = i.Host
	} else {
		before = slices.DeleteFunc(before, func(old policy.Intervention) bool { return !same(old) })
	}
	for _, old := range before {
		u.begin = append(u.begin, again(old))
	}
	return v.done(f.Next, notice{Text: fmt.Sprintf("%s %s. %s", hostName(i.Host), began(i), effectText(effect)), Undo: u})
}

// seconds returns the number in a field, or 0 with a fault.
func (f form) seconds(name string) float64 {
	if f.Get(name) == "" {
		return 0
	}
	n, err := strconv.ParseFloat(f.Get(name), 64)
	if err != nil || math.IsNaN(n) {
		f.Faults[name] = "This is not a number of seconds."
	}
	return n
}

// ofPattern returns the interventions of a host or pattern.
func (h *Handler) ofPattern(host string) []policy.Intervention {
	return slices.DeleteFunc(h.options.Interventions.Interventions(), func(i policy.Intervention) bool { return i.Host != host })
}

// began says what i does.
func began(i policy.Intervention) string {
	text := map[policy.InterventionKind]string{policy.Stop: "is stopped", policy.Bypass: "is bypassed"}[i.Kind]
	if i.Kind == policy.Slow {
		text = "is slowed to a request each " + duration(i.Delay)
	}
	if !i.Until.IsZero() {
		text += " until " + i.Until.Local().Format("2 Jan 15:04 MST")
	}
	return text
}

// liftPage is the data of lift.html.
type liftPage struct {
	form
	All []policy.Intervention // that are lifted
}

// liftForm asks who lifts the interventions of a host, and why.
func (h *Handler) liftForm(v *view) error {
	if h.options.Interventions == nil {
		return errNoInterventions
	}
	f, err := newForm(v, "/settings")
	if err != nil {
		return err
	}
	return v.showLift(f, http.StatusOK)
}

func (v *view) showLift(f form, status int) error {
	all := v.ofPattern(f.Get("host"))
	if len(all) == 0 {
		return &fault{http.StatusNotFound, fmt.Sprintf("No intervention is in force for %.100q. It has ended, or was lifted.", f.Get("host"))}
	}
	v.show(v.w, v.Request, status, "End an intervention", "lift.html", liftPage{f, all})
	return nil
}

// lift ends the interventions of a host.
func (h *Handler) lift(v *view) error {
	if h.options.Interventions == nil {
		return errNoInterventions
	}
	f, err := newForm(v, "/settings")
	if err != nil {
		return err
	}
	if !f.require("host", "reason", "by") {
		return v.showLift(f, http.StatusBadRequest)
	}
	lifted, effect, err := admin.Lift(v.ctx(), h.options.Interventions, f.Get("host"), false, f.Get("by")+": "+f.Get("reason"))
	if err != nil {
		return &fault{admin.StatusOf(err), err.Error()}
	}
	u := &undo{by: f.Get("by")}
	for _, i := range lifted {
		u.begin = append(u.begin, again(i))
	}
	return v.done(f.Next, notice{Text: hostName(f.Get("host")) + " has no intervention of its own any more. " + effectText(effect), Undo: u})
}
