package admin

import (
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
)

// File is a robots.txt as the API shows it.
type File struct {
	Origin      string     `json:"origin"` // or the host or pattern of a file of the operator's
	State       string     `json:"state"`  // as robots.Snapshot.State says it; "error" where none could be had, with Error
	Marks       string     `json:"marks,omitempty"`
	Status      int        `json:"status,omitempty"`
	Redirects   []string   `json:"redirects,omitempty"`
	Fetched     time.Time  `json:"fetched,omitzero"`
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
	Redirects []string  `json:"redirects,omitempty"` // as it was first seen
	FirstSeen time.Time `json:"first_seen"`
	LastSeen  time.Time `json:"last_seen"`
}

// FileText is one text that the file has had, whole.
type FileText struct {
	Origin string `json:"origin"`
	FileVersion
	Body []byte `json:"body"` // base64
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

// file shows snap, which is of an origin or of a pattern of hosts.
func file(name string, snap *robots.Snapshot) File {
	f := File{
		Origin: name, State: snap.State(), Marks: snap.Marks.String(), Status: snap.Status, Redirects: snap.Redirects,
		Fetched: snap.Fetched, Expires: known(snap.Expires), NextRefresh: known(snap.Renewal()),
		SHA256: snap.SHA256, Size: len(snap.Body), Cause: snap.Cause, Since: known(snap.Since), Failures: snap.Failures,
	}
	if snap.Err != nil {
		f.Error = snap.Err.Error()
	}
	return f
}

// details shows snap with its text, and as yet without a past.
func details(name string, snap *robots.Snapshot) FileDetails {
	return FileDetails{File: file(name, snap), ContentType: snap.ContentType, Body: snap.Body, Versions: []FileVersion{}, Changes: []FileChange{}}
}

// noFile is in the place of a file that could not be had.
func noFile(o origin.Origin, err error) File {
	return File{Origin: o.String(), State: "error", Error: err.Error()}
}

func fileVersion(v robots.Version) FileVersion {
	return FileVersion{v.SHA256, v.Size, v.Status, v.Redirects, v.FirstSeen, v.LastSeen}
}

// known returns t, or nil where it is not set.
func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
