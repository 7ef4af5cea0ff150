package dashboard

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/origin"
)

// exemptPage is the data of exempt.html.
type exemptPage struct {
	form
	Effects []choice
}

var effects = []choice{
	{Value: "allow", Text: "Allow", Hint: "what robots.txt disallows. The requests are still paced. It needs an end"},
	{Value: "deny", Text: "Refuse", Hint: "what robots.txt allows"},
}

// errNoExemptions is the error of a listener that belongs to no proxy.
var errNoExemptions = &fault{http.StatusNotFound, "This listener has no exemptions."}

// newExemption shows the form of an exemption.
func (h *Handler) newExemption(v *view) error {
	if h.options.Exemptions == nil {
		return errNoExemptions
	}
	f, err := newForm(v, "/settings")
	if err != nil {
		return err
	}
	return v.exemptForm(f, http.StatusOK)
}

func (v *view) exemptForm(f form, status int) error {
	effect := "allow"
	if f.Get("effect") == "deny" {
		effect = "deny"
	}
	v.show(v.w, v.Request, status, "New exemption", "exempt.html", exemptPage{f, choose(effects, effect)})
	return nil
}

// exemptionKeys are the keys of an exemption in the configuration, and the fields of the form.
var exemptionKeys = []string{"host", "path", "client", "effect", "reason", "owner", "until"}

// exempt puts the exemption of a form in force.
func (h *Handler) exempt(v *view) error {
	if h.options.Exemptions == nil {
		return errNoExemptions
	}
	f, err := newForm(v, "/settings")
	if err != nil {
		return err
	}
	if host, err := origin.Host(f.Get("host")); err == nil {
		f.Values.Set("host", host)
	}
	entry := make(map[string]string)
	for _, key := range exemptionKeys {
		entry[key] = f.Get(key)
	}
	added, err := admin.AddExemption(v.ctx(), h.options.Exemptions, entry)
	if err != nil {
		status := admin.StatusOf(err)
		if status == http.StatusBadRequest {
			err = &entryError{err}
		}
		f.note(err)
		return v.exemptForm(f, status)
	}
	text := fmt.Sprintf("The exemption holds: %s. %s", exemptionText(added), h.othersText())
	return v.done(f.Next, notice{Text: text, Undo: &undo{remove: strconv.FormatInt(added.ID, 10)}})
}

// exemptionText says what e does.
func exemptionText(e admin.Exemption) string {
	text := e.Effect + " " + e.Host + e.Path
	if e.Client != "" {
		text += " for " + e.Client
	}
	if !e.Until.IsZero() {
		text += " until " + e.Until.Local().Format("2 Jan 2006 15:04 MST")
	}
	return text
}

// removePage is the data of remove.html.
type removePage struct {
	form
	Exemption admin.Exemption
}

// removeForm asks whether to remove an exemption.
func (h *Handler) removeForm(v *view) error {
	if h.options.Exemptions == nil {
		return errNoExemptions
	}
	f, err := newForm(v, "/settings")
	if err != nil {
		return err
	}
	return v.showRemove(f, http.StatusOK)
}

func (v *view) showRemove(f form, status int) error {
	all := v.options.Exemptions.All()
	i := slices.IndexFunc(all, func(e admin.Exemption) bool { return e.ID != 0 && strconv.FormatInt(e.ID, 10) == f.Get("id") })
	if i < 0 {
		return &fault{http.StatusNotFound, fmt.Sprintf("No exemption with the id %.40q was added. It may have been removed.", f.Get("id"))}
	}
	v.show(v.w, v.Request, status, "Remove an exemption", "remove.html", removePage{f, all[i]})
	return nil
}

// removeExemption ends an exemption.
func (h *Handler) removeExemption(v *view) error {
	if h.options.Exemptions == nil {
		return errNoExemptions
	}
	f, err := newForm(v, "/settings")
	if err != nil {
		return err
	}
	e, err := admin.RemoveExemption(v.ctx(), h.options.Exemptions, f.Get("id"))
	if err != nil {
		return &fault{admin.StatusOf(err), err.Error()}
	}
	entry := map[string]string{"host": e.Host, "path": e.Path, "client": e.Client, "effect": e.Effect, "reason": e.Reason, "owner": e.Owner}
	if !e.Until.IsZero() {
		entry["until"] = e.Until.UTC().Format(time.RFC3339)
	}
	n := notice{Text: "The exemption was removed: " + exemptionText(e) + ". " + h.othersText()}
	if !e.Expired {
		n.Undo = &undo{exempt: entry}
	}
	return v.done(f.Next, n)
}
