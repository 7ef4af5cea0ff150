package admin

import (
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
)

// File describes a robots.txt file.
type File struct {
	Origin      string     `json:"origin"` // or the host or pattern of an operator's file
	State       string     `json:"state"`  // of robots.Snapshot.State, or "error" if it could not be read
	Flags       string     `json:"marks,omitempty"`
	Status      int        `json:"status,omitempty"`
	Redirects   []string   `json:"redirects,omitempty"`
	Fetched     time.Time  `json:"fetched,omitzero"`
	Expires     *time.Time `json:"expires,omitempty"`      // absent for an operator's file, which does not expire
	NextRefresh *time.Time `json:"next_refresh,omitempty"` // time of the next fetch, if the file is in use
	SHA256      string     `json:"sha256,omitempty"`
	Size        int        `json:"size"`
	Cause       string     `json:"cause,omitempty"` // error type of RFC 9209 section 2.3
	Error       string     `json:"error,omitempty"`
	Since       *time.Time `json:"since,omitempty"` // start of the failures
	Failures    int        `json:"failures,omitempty"`
}

// FileDetails is a robots.txt file with its text and history.
type FileDetails struct {
	File
	ContentType string        `json:"content_type,omitempty"`
	Body        []byte        `json:"body"` // base64
	Versions    []FileVersion `json:"versions"`
	Changes     []FileChange  `json:"changes"`
}

// FileVersion describes a past or current text of a file.
type FileVersion struct {
	SHA256    string    `json:"sha256"`
	Size      int       `json:"size"`
	Status    int       `json:"status"`
	Redirects []string  `json:"redirects,omitempty"` // as first seen
	FirstSeen time.Time `json:"first_seen"`
	LastSeen  time.Time `json:"last_seen"`
}

// FileText is a FileVersion with its text.
type FileText struct {
	Origin string `json:"origin"`
	FileVersion
	Body []byte `json:"body"` // base64
}

// FileChange is one change of a file's text or state.
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
	More  bool   `json:"more,omitempty"` // the list is truncated
}

// file returns the File of snap. The name is an origin, or the host or pattern of an operator's file.
func file(name string, snap *robots.Snapshot) File {
	f := File{
		Origin: name, State: snap.State(), Flags: snap.Flags.String(), Status: snap.Status, Redirects: audit.MaskedURLs(snap.Redirects),
		Fetched: snap.Fetched, Expires: known(snap.Expires), NextRefresh: known(snap.Renewal()),
		SHA256: snap.SHA256, Size: len(snap.Body), Cause: snap.Cause, Since: known(snap.Since), Failures: snap.Failures,
	}
	if snap.Err != nil {
		f.Error = snap.Err.Error()
	}
	return f
}

// details returns the FileDetails of snap, without history.
func details(name string, snap *robots.Snapshot) FileDetails {
	return FileDetails{File: file(name, snap), ContentType: snap.ContentType, Body: snap.Body, Versions: []FileVersion{}, Changes: []FileChange{}}
}

// noFile returns the File of o with the error err.
func noFile(o origin.Origin, err error) File {
	return File{Origin: o.String(), State: "error", Error: err.Error()}
}

func fileVersion(v robots.Version) FileVersion {
	return FileVersion{v.SHA256, v.Size, v.Status, audit.MaskedURLs(v.Redirects), v.FirstSeen, v.LastSeen}
}

// known returns &t, or nil if t is zero.
func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
