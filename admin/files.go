package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/proof"
	"github.com/robotsproxy/robotsproxy/internal/auditquery"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
)

// Files gives access to the robots.txt files in force.
type Files interface {
	// Peek returns the cached file, or robots.ErrNoSnapshot.
	Peek(ctx context.Context, o origin.Origin) (*robots.Snapshot, error)
	// Refresh fetches the file now.
	Refresh(ctx context.Context, o origin.Origin) (*robots.Snapshot, error)
	// Purge removes the file from the cache.
	Purge(ctx context.Context, o origin.Origin) error
	// Own returns the operator's files for a canonical host, or all of them if host is empty.
	Own(host string) []OwnFile
}

// OwnFile is a robots.txt file that the operator provides. It replaces the site's file.
type OwnFile struct {
	Host     string // or pattern of hosts, as configured
	Snapshot *robots.Snapshot
}

// History gives access to stored files and their changes, which survive restarts. Lists have at most limit entries.
type History interface {
	// Origins returns the origins with a stored copy: those of host, or of all hosts if host is empty.
	Origins(ctx context.Context, host string, limit int) ([]origin.Origin, error)
	Versions(ctx context.Context, o origin.Origin, limit int) ([]robots.Version, error)
	Changes(ctx context.Context, o origin.Origin, limit int) ([]robots.Change, error)
	// Body returns the text of a version.
	Body(ctx context.Context, sha256 string) ([]byte, error)
}

// Limits for the lists in one response.
const (
	maxListed = 1000
	maxPast   = 20
)

func (h *Handler) fileRoutes() []route {
	return []route{
		{pattern: "GET /cache", answer: h.listFiles},
		{pattern: "GET /cache/file", answer: h.showFiles},
		{pattern: "GET /cache/version", answer: h.showVersion},
		{pattern: "GET /cache/changes", answer: h.listEffects},
		{pattern: "POST /cache/refresh", answer: h.refreshFiles},
		{pattern: "POST /cache/purge", answer: h.purgeFiles},
	}
}

// listFiles lists the cached files. A file that cannot be read is listed with its error, and does not hide others.
func (h *Handler) listFiles(r *http.Request) (any, error) {
	origins, err := h.options.History.Origins(r.Context(), "", maxListed+1)
	if err != nil {
		return nil, err
	}
	list := FileList{Files: []File{}, More: len(origins) > maxListed}
	for _, own := range h.options.Files.Own("") {
		list.Files = append(list.Files, file(own.Host, own.Snapshot))
	}
	for _, o := range origins[:min(len(origins), maxListed)] {
		switch snap, err := h.options.Files.Peek(r.Context(), o); {
		case r.Context().Err() != nil:
			return nil, r.Context().Err()
		case errors.Is(err, robots.ErrNoSnapshot), h.cache().isOwn(o): // purged since it was listed, or not in force
		case err != nil:
			list.Files = append(list.Files, noFile(o, err))
		default:
			list.Files = append(list.Files, file(o.String(), snap))
		}
	}
	return list, nil
}

func (h *Handler) showFiles(r *http.Request) (any, error) {
	if own, ok := h.cache().own(r.FormValue("host")); ok {
		return []FileDetails{details(own.Host, own.Snapshot)}, nil
	}
	origins, err := h.cache().kept(r.Context(), r.FormValue("host"))
	if err != nil {
		return nil, err
	}
	all := []FileDetails{}
	for _, o := range origins {
		d, err := h.detailsOf(r.Context(), o)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

func (h *Handler) detailsOf(ctx context.Context, o origin.Origin) (FileDetails, error) {
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
	d := details(o.String(), snap)
	for _, v := range versions {
		d.Versions = append(d.Versions, fileVersion(v))
	}
	for _, c := range changes {
		d.Changes = append(d.Changes, FileChange{c.Time, c.OldState, c.NewState, c.OldSHA256, c.NewSHA256})
	}
	return d, nil
}

// showVersion returns the latest text of an origin with the SHA-256 prefix in the request.
func (h *Handler) showVersion(r *http.Request) (any, error) {
	begin := strings.ToLower(r.FormValue("sha256"))
	if begin == "" {
		return nil, &apiError{http.StatusBadRequest, errors.New("name a version by the beginning of its SHA-256")}
	}
	origins, err := h.cache().named(r.Context(), r.FormValue("host"))
	if err != nil {
		return nil, err
	}
	for _, o := range origins {
		versions, err := h.options.History.Versions(r.Context(), o, maxListed)
		if err != nil {
			return nil, err
		}
		for _, v := range versions {
			if strings.HasPrefix(v.SHA256, begin) {
				body, err := h.options.History.Body(r.Context(), v.SHA256)
				return FileText{o.String(), fileVersion(v), body}, err
			}
		}
	}
	return nil, &apiError{http.StatusNotFound, fmt.Errorf("no version of %s is kept whose SHA-256 begins with %.64q",
		r.FormValue("host"), begin)}
}

// listEffects lists the changes of a host's files, with the recorded requests that they decide otherwise.
func (h *Handler) listEffects(r *http.Request) (any, error) {
	since, err := auditquery.Moment("since", r.FormValue("since"), time.Now().UTC())
	if err != nil {
		return nil, &apiError{http.StatusBadRequest, err}
	}
	ctx, end, err := h.begin(r.Context())
	if err != nil {
		return nil, err
	}
	defer end()
	effects, err := h.cache().Effects(ctx, h.options.Records, r.FormValue("host"), since)
	return effects, h.inTime(ctx, err)
}

func (h *Handler) refreshFiles(r *http.Request) (any, error) {
	return h.cache().Refresh(r.Context(), r.FormValue("host"))
}

func (h *Handler) purgeFiles(r *http.Request) (any, error) {
	purged, err := h.cache().Purge(r.Context(), r.FormValue("host"))
	if err != nil {
		return nil, err
	}
	return map[string][]string{"purged": purged}, nil
}

func (h *Handler) cache() Cache { return Cache{h.options.Files, h.options.History} }

// Cache are the kept robots.txt files, as operators name them: by a host, which means all stored origins of it, or by a
// URL.
type Cache struct {
	Files   Files
	History History
}

// Refresh fetches the files of all origins that name means now, even if some fail. An origin without a stored file must be
// given as a URL, since a host alone does not determine scheme and port.
func (c Cache) Refresh(ctx context.Context, name string) (FileList, error) {
	list := FileList{Files: []File{}}
	origins, err := c.named(ctx, name)
	if err == nil {
		err = c.refuseOwn(origins)
	}
	if err != nil {
		return list, err
	}
	for _, o := range origins {
		if snap, err := c.Files.Refresh(ctx, o); err != nil {
			list.Files = append(list.Files, noFile(o, err))
		} else {
			list.Files = append(list.Files, file(o.String(), snap))
		}
	}
	return list, nil
}

// Effects returns the changes of the files of all origins that name means, since a time: see proof.Effects. It leaves out
// those of texts that are not kept any more.
func (c Cache) Effects(ctx context.Context, records audit.Reader, name string, since time.Time) ([]*proof.Effect, error) {
	origins, err := c.named(ctx, name)
	if err != nil {
		return nil, err
	}
	all := []*proof.Effect{}
	for _, o := range origins {
		effects, err := proof.Effects(ctx, c.History, records, o, since)
		if err != nil && !errors.Is(err, audit.ErrNoFile) {
			return nil, err
		}
		all = append(all, effects...)
	}
	slices.SortStableFunc(all, func(a, b *proof.Effect) int { return a.Time.Compare(b.Time) })
	return all, nil
}

// Purge removes the files of all origins that name means from the cache, and returns the origins.
func (c Cache) Purge(ctx context.Context, name string) ([]string, error) {
	origins, err := c.kept(ctx, name)
	if err == nil {
		err = c.refuseOwn(origins)
	}
	if err != nil {
		return nil, err
	}
	purged := []string{}
	for _, o := range origins {
		if err := c.Files.Purge(ctx, o); err != nil {
			return nil, err
		}
		purged = append(purged, o.String())
	}
	return purged, nil
}

// own returns the operator's file for a host, or for a pattern as listed.
func (c Cache) own(name string) (OwnFile, bool) {
	files := c.Files.Own("")
	if host, err := origin.Host(name); err == nil {
		name, files = host, c.Files.Own(host)
	}
	i := slices.IndexFunc(files, func(f OwnFile) bool { return f.Host == name })
	if i < 0 {
		return OwnFile{}, false
	}
	return files[i], true
}

// isOwn reports whether an operator's file is in force for o.
func (c Cache) isOwn(o origin.Origin) bool { return len(c.Files.Own(o.Host())) > 0 }

// refuseOwn returns an error if an operator's file is in force for one of the origins: fetching cannot change it.
func (c Cache) refuseOwn(origins []origin.Origin) error {
	for _, o := range origins {
		if c.isOwn(o) {
			return &apiError{http.StatusConflict, fmt.Errorf("%s is judged by your own robots_file, which is read when "+
				"robotsproxy starts", o.Host())}
		}
	}
	return nil
}

// kept returns the origins that name means, or an error if one has no cached file.
func (c Cache) kept(ctx context.Context, name string) ([]origin.Origin, error) {
	origins, err := c.named(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, o := range origins {
		if _, err := c.Files.Peek(ctx, o); errors.Is(err, robots.ErrNoSnapshot) {
			return nil, nothingKept(o.String())
		}
	}
	return origins, nil
}

// named returns the origins that name means: that of a URL, or all stored origins of a host. If an operator's file is in
// force for the host, it applies to all origins of the host, and named returns one of them.
func (c Cache) named(ctx context.Context, name string) ([]origin.Origin, error) {
	if strings.Contains(name, "://") {
		o, err := origin.Parse(name)
		if err != nil {
			return nil, &apiError{http.StatusBadRequest, err}
		}
		return []origin.Origin{o}, nil
	}
	host, err := origin.Host(name)
	if err != nil {
		return nil, &apiError{http.StatusBadRequest, misnamed(name, err)}
	}
	if len(c.Files.Own(host)) > 0 {
		o, err := origin.New("https", host, 0)
		return []origin.Origin{o}, err
	}
	origins, err := c.History.Origins(ctx, host, maxListed)
	if err != nil {
		return nil, err
	}
	if len(origins) == 0 {
		return nil, nothingKept(host)
	}
	return origins, nil
}

// CheckName returns an error if name is neither a host nor an origin.
func CheckName(name string) error {
	if strings.Contains(name, "://") {
		_, err := origin.Parse(name)
		return err
	}
	if _, err := origin.Host(name); err != nil {
		return misnamed(name, err)
	}
	return nil
}

func misnamed(name string, err error) error {
	if _, fault := origin.Parse("http://" + name); fault == nil { // name has a port or a path
		return fmt.Errorf("%s is neither a host nor an origin: write http://%s or https://%s", name, name, name)
	}
	return fmt.Errorf("%w: name a host or an origin such as https://a.example", err)
}

func nothingKept(name string) error {
	err := fmt.Errorf("no robots.txt of %s is kept", name)
	if !strings.Contains(name, "://") {
		err = fmt.Errorf("%w; refresh https://%s fetches it", err, name)
	}
	return &apiError{http.StatusNotFound, err}
}
