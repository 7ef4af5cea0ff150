package dashboard

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/policy"
)

// notice says on the next page what a change has done, and how to undo it.
type notice struct {
	ID   string
	Text string
	Undo *undo // nil if the change can not be undone
	made time.Time
}

// undo is what undoes a change.
type undo struct {
	by     string
	lift   string                  // host or pattern; empty: nothing
	begin  []admin.NewIntervention // after the lift
	remove string                  // ID of an exemption; empty: none
	exempt map[string]string       // an exemption; nil: none
}

const (
	noticeCookie = "robotsproxy_notice"
	noticeTime   = 15 * time.Minute // after which a change can not be undone by its notice
	maxNotices   = 200
)

// notices are those of the last changes. The zero value is ready.
type notices struct {
	mu   sync.Mutex
	kept map[string]notice
}

// put keeps n, and returns its ID.
func (ns *notices) put(n notice) string {
	n.ID, n.made = rand.Text(), time.Now()
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if ns.kept == nil {
		ns.kept = make(map[string]notice)
	}
	oldest := n
	for id, old := range ns.kept {
		if n.made.Sub(old.made) > noticeTime {
			delete(ns.kept, id)
		} else if old.made.Before(oldest.made) {
			oldest = old
		}
	}
	if len(ns.kept) >= maxNotices {
		delete(ns.kept, oldest.ID)
	}
	ns.kept[n.ID] = n
	return n.ID
}

// get returns the notice with an ID.
func (ns *notices) get(id string) (notice, bool) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	n, ok := ns.kept[id]
	return n, ok && time.Since(n.made) <= noticeTime
}

// take returns the notice with an ID, once.
func (ns *notices) take(id string) (notice, bool) {
	n, ok := ns.get(id)
	ns.mu.Lock()
	defer ns.mu.Unlock()
	delete(ns.kept, id)
	return n, ok
}

// done leads to a path, and shows n on the page.
func (v *view) done(next string, n notice) error {
	http.SetCookie(v.w, &http.Cookie{
		Name: noticeCookie, Value: v.notices.put(n), Path: "/", MaxAge: int(noticeTime / time.Second), HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	http.Redirect(v.w, v.Request, next, http.StatusSeeOther)
	return errAnswered
}

// shownNotice returns the notice for the page that answers r, once.
func (h *Handler) shownNotice(w http.ResponseWriter, r *http.Request) *notice {
	c, err := r.Cookie(noticeCookie)
	if err != nil {
		return nil
	}
	http.SetCookie(w, &http.Cookie{Name: noticeCookie, Path: "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	n, ok := h.notices.get(c.Value)
	if !ok {
		return nil
	}
	return &n
}

// undo undoes the change of a notice.
func (h *Handler) undo(v *view) error {
	f, err := newForm(v, "/settings")
	if err != nil {
		return err
	}
	n, ok := h.notices.take(f.Get("notice"))
	if !ok || n.Undo == nil {
		return &fault{http.StatusNotFound, "This change can not be undone here any more. The page Settings lists what is in force, and ends it."}
	}
	text, err := h.apply(v, n.Undo)
	if err != nil {
		return &fault{admin.StatusOf(err), "The change was not undone, or only in part: " + err.Error()}
	}
	return v.done(f.Next, notice{Text: "Undone. " + text})
}

// apply makes the changes of u, and says what they have done.
func (h *Handler) apply(v *view, u *undo) (string, error) {
	var said []string
	if u.lift != "" {
		_, effect, err := admin.Lift(v.ctx(), h.options.Interventions, u.lift, false, u.by+": undone")
		if err != nil {
			return "", err
		}
		said = append(said, effectText(effect))
	}
	for _, n := range u.begin {
		if !n.Until.IsZero() && !n.Until.After(v.now) {
			continue // it would have ended
		}
		_, effect, err := admin.Intervene(v.ctx(), h.options.Interventions, n)
		if err != nil {
			return "", err
		}
		said = append(said, effectText(effect))
	}
	if u.remove != "" {
		if _, err := admin.RemoveExemption(v.ctx(), h.options.Exemptions, u.remove); err != nil {
			return "", err
		}
		said = append(said, h.othersText())
	}
	if u.exempt != nil {
		if _, err := admin.AddExemption(v.ctx(), h.options.Exemptions, u.exempt); err != nil {
			return "", err
		}
		said = append(said, h.othersText())
	}
	if len(said) == 0 {
		return "", nil
	}
	return said[len(said)-1], nil
}

// effectText says what a change of the interventions has done, and on how many instances.
func effectText(e admin.InterventionEffect) string {
	var parts []string
	for _, part := range []struct {
		n    int
		text string
	}{{e.Answered, "waiting requests were answered"}, {e.Tunnels, "tunnels were closed"}, {e.WebSockets, "WebSockets were closed"}} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s.", number(part.n), part.text))
		}
	}
	switch {
	case e.Instances.Error != "":
		parts = append(parts, "Other instances could not be asked: "+e.Instances.Error+".")
	case e.Instances.Acknowledged < e.Instances.Total:
		parts = append(parts, fmt.Sprintf("%d of %d instances confirmed it; not yet: %s.", e.Instances.Acknowledged, e.Instances.Total, strings.Join(e.Instances.Missing, ", ")))
	case e.Instances.Total > 1:
		parts = append(parts, fmt.Sprintf("All %d instances confirmed it.", e.Instances.Total))
	default:
		parts = append(parts, "This instance confirmed it.")
	}
	if e.NotStored != "" {
		parts = append(parts, "A restart forgets it, since it could not be stored: "+e.NotStored+".")
	}
	return strings.Join(parts, " ")
}

// othersText says on how many instances a change of the exemptions holds.
func (h *Handler) othersText() string {
	if n := h.options.Exemptions.OtherInstances(); n > 0 {
		return fmt.Sprintf("This holds on 1 of %d instances: make the change on each of the others.", n+1)
	}
	return "This instance confirmed it."
}

// again returns i as a new intervention.
func again(i policy.Intervention) admin.NewIntervention {
	return admin.NewIntervention{Kind: i.Kind, Host: i.Host, Delay: i.Delay.Seconds(), Reason: i.Reason, By: i.By, Until: i.Until}
}
