package dashboard

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/robotsproxy/robotsproxy/admin"
)

// errNoFiles is the error of a listener that belongs to no proxy.
var errNoFiles = &fault{http.StatusNotFound, "This listener has no robots.txt files."}

// filePage is the data of purge.html.
type filePage struct{ form }

// refresh fetches the robots.txt files that the field "host" names, now.
func (h *Handler) refresh(v *view) error {
	f, err := h.fileForm(v)
	if err != nil {
		return err
	}
	list, err := h.cache().Refresh(v.ctx(), f.Get("host"))
	if err != nil {
		return &fault{admin.StatusOf(err), err.Error()}
	}
	var said []string
	for _, file := range list.Files[:min(len(list.Files), maxOrigins)] {
		text := file.Origin + "/robots.txt is " + file.State
		if file.Status != 0 {
			text += fmt.Sprintf(", status %d", file.Status)
		}
		if file.Error != "" {
			text += " (" + file.Error + ")"
		}
		said = append(said, text)
	}
	return v.done(f.Next, notice{Text: "Fetched now: " + strings.Join(said, "; ") + "."})
}

// purgeForm asks whether to remove the files of a host.
func (h *Handler) purgeForm(v *view) error {
	f, err := h.fileForm(v)
	if err != nil {
		return err
	}
	return v.render("Purge a robots.txt", "purge.html", filePage{f})
}

// purge removes the robots.txt files that the field "host" names from the cache.
func (h *Handler) purge(v *view) error {
	f, err := h.fileForm(v)
	if err != nil {
		return err
	}
	purged, err := h.cache().Purge(v.ctx(), f.Get("host"))
	if err != nil {
		return &fault{admin.StatusOf(err), err.Error()}
	}
	return v.done(f.Next, notice{Text: "Removed from the cache: the robots.txt of " + strings.Join(purged[:min(len(purged), maxOrigins)], ", ") + ". The next request fetches it."})
}

func (h *Handler) cache() admin.Cache {
	return admin.Cache{Files: h.options.Files, History: h.options.History}
}

// fileForm returns the form about the files of a host.
func (h *Handler) fileForm(v *view) (form, error) {
	if h.options.Files == nil {
		return form{}, errNoFiles
	}
	return newForm(v, "/hosts")
}
