package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
)

// Files are the robots.txt files that are in force.
type Files interface {
	Peek(ctx context.Context, o origin.Origin) (*robots.Snapshot, error)    // what is kept; robots.ErrNoSnapshot
	Refresh(ctx context.Context, o origin.Origin) (*robots.Snapshot, error) // asks the origin now
	Purge(ctx context.Context, o origin.Origin) error                       // forgets it
}

// History is what the files were, over restarts. Lists are cut at limit.
type History interface {
	Origins(ctx context.Context, host string, limit int) ([]origin.Origin, error) // with a copy that is kept; of every host where host is empty
	Versions(ctx context.Context, o origin.Origin, limit int) ([]robots.Version, error)
	Changes(ctx context.Context, o origin.Origin, limit int) ([]robots.Change, error)
}

// File is a robots.txt as the API shows it.
type File struct {
	Origin      string     `json:"origin"`
	State       string     `json:"state"`
	Marks       string     `json:"marks,omitempty"`
	Status      int        `json:"status,omitempty"`
	Redirects   []string   `json:"redirects,omitempty"`
	Fetched     time.Time  `json:"fetched"`
	Expires     *time.Time `json:"expires,omitempty"`      // none: a file of the operator's, which does not
	NextRefresh *time.Time `json:"next_refresh,omitempty"` // when it is asked for again if it is in use
	SHA256      string     `json:"sha256,omitempty"`
	Size        int        `json:"size"`
	Cause       string     `json:"cause,omitempty"` // of RFC 9209 section 2.3
	Error       string     `json:"error,omitempty"`
	Since       *time.Time `json:"since,omitempty"` // of the trouble
	Failures    int        `json:"failures,omitempty"`
}

// FileDetails is one robots.txt with its text and its past.
type FileDetails struct {
	File
	ContentType string        `json:"content_type,omitempty"`
	Body        []byte        `json:"body"` // base64
	Versions    []FileVersion `json:"versions"`
	Changes     []FileChange  `json:"changes"`
}

// FileVersion is one text that the file has had.
type FileVersion struct {
	SHA256    string    `json:"sha256"`
	Size      int       `json:"size"`
	Status    int       `json:"status"`
	FirstSeen time.Time `json:"first_seen"`
	LastSeen  time.Time `json:"last_seen"`
}

// FileChange is one change of the text or of its state.
type FileChange struct {
	Time      time.Time `json:"time"`
	OldState  string    `json:"old_state"`
	NewState  string    `json:"new_state"`
	OldSHA256 string    `json:"old_sha256,omitempty"`
	NewSHA256 string    `json:"new_sha256,omitempty"`
}

// FileList is a list of files.
type FileList struct {
	Files []File `json:"files"`
	More  bool   `json:"more,omitempty"` // the list is cut
}

// Bounds of what one answer lists.
const (
	maxListed = 1000
	maxPast   = 20
)

func (h *Handler) fileRoutes(mux *http.ServeMux) {
	for pattern, answer := range map[string]func(*http.Request) (any, error){
		"GET /api/cache":          h.listFiles,
		"GET /api/cache/file":     h.showFiles,
		"POST /api/cache/refresh": h.refreshFiles,
		"POST /api/cache/purge":   h.purgeFiles,
	} {
		mux.Handle(pattern, h.Protected(asJSON(answer)))
	}
}

// statusError is an error that the client is told with its own status.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string { return e.err.Error() }

// asJSON answers with what answer returns. A fault is one line of text: 404 where nothing is there, 400 where the
// question is wrong.
func asJSON(answer func(*http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, err := answer(r)
		if err != nil {
			var known *statusError
			if !errors.As(err, &known) {
				known = &statusError{http.StatusInternalServerError, err}
			}
			http.Error(w, known.Error(), known.status)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v) // what fails is the connection, and the client sees that
	})
}

func (h *Handler) listFiles(r *http.Request) (any, error) {
	origins, err := h.options.History.Origins(r.Context(), "", maxListed+1)
	if err != nil {
		return nil, err
	}
	list := FileList{Files: []File{}, More: len(origins) > maxListed}
	for _, o := range origins[:min(len(origins), maxListed)] {
		snap, err := h.options.Files.Peek(r.Context(), o)
		if errors.Is(err, robots.ErrNoSnapshot) {
			continue // purged since it was listed
		}
		if err != nil {
			return nil, err
		}
		list.Files = append(list.Files, file(o, snap))
	}
	return list, nil
}

func (h *Handler) showFiles(r *http.Request) (any, error) {
	origins, err := h.kept(r)
	if err != nil {
		return nil, err
	}
	all := []FileDetails{}
	for _, o := range origins {
		d, err := h.details(r.Context(), o)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

func (h *Handler) details(ctx context.Context, o origin.Origin) (FileDetails, error) {
	snap, err := h.options.Files.Peek(ctx, o)
	if errors.Is(err, robots.ErrNoSnapshot) {
		return FileDetails{}, nothingKept(o.String())
	}
	if err != nil {
		return FileDetails{}, err
	}
	versions, err := h.options.History.Versions(ctx, o, maxPast)
	if err != nil {
		return FileDetails{}, err
	}
	changes, err := h.options.History.Changes(ctx, o, maxPast)
	if err != nil {
		return FileDetails{}, err
	}
	d := FileDetails{
		File: file(o, snap), ContentType: snap.ContentType, Body: snap.Body,
		Versions: make([]FileVersion, len(versions)), Changes: make([]FileChange, len(changes)),
	}
	for i, v := range versions {
		d.Versions[i] = FileVersion{v.SHA256, v.Size, v.Status, v.FirstSeen, v.LastSeen}
	}
	for i, c := range changes {
		d.Changes[i] = FileChange{c.Time, c.OldState, c.NewState, c.OldSHA256, c.NewSHA256}
	}
	return d, nil
}

// refreshFiles asks the origins now. An origin that was never asked has to be named in full: of a host alone nobody knows
// the scheme and the port.
func (h *Handler) refreshFiles(r *http.Request) (any, error) {
	origins, err := h.named(r)
	if err != nil {
		return nil, err
	}
	list := FileList{Files: []File{}}
	for _, o := range origins {
		snap, err := h.options.Files.Refresh(r.Context(), o)
		if err != nil {
			return nil, &statusError{http.StatusBadGateway, err}
		}
		list.Files = append(list.Files, file(o, snap))
	}
	return list, nil
}

func (h *Handler) purgeFiles(r *http.Request) (any, error) {
	origins, err := h.kept(r)
	if err != nil {
		return nil, err
	}
	purged := []string{}
	for _, o := range origins {
		if err := h.options.Files.Purge(r.Context(), o); err != nil {
			return nil, err
		}
		purged = append(purged, o.String())
	}
	return map[string][]string{"purged": purged}, nil
}

// kept returns the origins that a request names and of which something is kept.
func (h *Handler) kept(r *http.Request) ([]origin.Origin, error) {
	origins, err := h.named(r)
	if err != nil {
		return nil, err
	}
	for _, o := range origins {
		if _, err := h.options.Files.Peek(r.Context(), o); errors.Is(err, robots.ErrNoSnapshot) {
			return nil, nothingKept(o.String())
		}
	}
	return origins, nil
}

// named returns the origins that a request is about: one URL, or all that are kept of a host.
func (h *Handler) named(r *http.Request) ([]origin.Origin, error) {
	name := r.FormValue("host")
	if strings.Contains(name, "://") {
		o, err := origin.Parse(name)
		if err != nil {
			return nil, &statusError{http.StatusBadRequest, err}
		}
		return []origin.Origin{o}, nil
	}
	host, err := origin.Host(name)
	if err != nil {
		return nil, &statusError{http.StatusBadRequest, fmt.Errorf("%w: name a host or an origin such as https://a.example", err)}
	}
	origins, err := h.options.History.Origins(r.Context(), host, maxListed)
	if err != nil {
		return nil, err
	}
	if len(origins) == 0 {
		return nil, nothingKept(host)
	}
	return origins, nil
}

func nothingKept(name string) error {
	err := fmt.Errorf("no robots.txt of %s is kept", name)
	if !strings.Contains(name, "://") {
		err = fmt.Errorf("%w; refresh https://%s fetches it", err, name)
	}
	return &statusError{http.StatusNotFound, err}
}

func file(o origin.Origin, snap *robots.Snapshot) File {
	f := File{
		Origin: o.String(), State: snap.State(), Marks: snap.Marks.String(), Status: snap.Status, Redirects: snap.Redirects,
		Fetched: snap.Fetched, Expires: known(snap.Expires), NextRefresh: known(snap.Renewal()),
		SHA256: snap.SHA256, Size: len(snap.Body), Cause: snap.Cause, Since: known(snap.Since), Failures: snap.Failures,
	}
	if snap.Err != nil {
		f.Error = snap.Err.Error()
	}
	return f
}

// known returns t, or nil where it is not set.
func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
