// Package watch reports that files have changed.
//
//	w := watch.New(watch.Options{Changed: reload, Logger: log})
//	defer w.Close()
//	w.Set([]string{"/etc/program.yaml"})
//
// It watches the folders of the files and not the files, so that it sees a file that is replaced: by a rename, as
// editors and configuration management do; by a new target of a symbolic link, as in a ConfigMap of Kubernetes; or
// after it was missing. It reports once after several events in a row, since many programs write a file in two steps.
//
// If the system has no more watches, and on file systems without events, it looks at the files from time to time.
package watch

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Options of a Watcher.
type Options struct {
	// Changed is called after files have changed, by one goroutine. It may call Set. Required.
	Changed func()

	// Logger gets a warning if there are no watches. If nil, nothing is logged.
	Logger *slog.Logger
}

const (
	quiet    = 300 * time.Millisecond // without events, before files count as complete
	patience = 3 * time.Second        // for quiet
	poll     = 2 * time.Second        // between looks without watches
	safety   = 30 * time.Second       // between looks with watches: some file systems have no events
)

// Watcher watches files. Its methods may be called by many goroutines at once.
type Watcher struct {
	options Options
	events  *fsnotify.Watcher // nil if there are no watches
	quit    chan struct{}
	ended   chan struct{}

	mu      sync.Mutex // guards the fields below
	files   map[string]fs.FileInfo
	names   map[string]bool // of the files, and of those to which they lead
	warned  bool            // that there are no watches
	polling bool            // a folder is not watched
}

// New returns a Watcher of no files. The caller must call Close.
func New(o Options) *Watcher { return newWatcher(o, fsnotify.NewWatcher) }

func newWatcher(o Options, newEvents func() (*fsnotify.Watcher, error)) *Watcher {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	w := &Watcher{options: o, quit: make(chan struct{}), ended: make(chan struct{}), files: map[string]fs.FileInfo{}}
	events, err := newEvents()
	if err != nil {
		w.warn(err)
	} else {
		w.events = events
	}
	go w.run()
	return w
}

// Set replaces the files. A file may be missing. A change since the last Set of a file that stays is reported.
func (w *Watcher) Set(paths []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	files := make(map[string]fs.FileInfo, len(paths))
	for _, path := range paths {
		path = absolute(path)
		info, known := w.files[path]
		if !known {
			info = look(path)
		}
		files[path] = info
	}
	w.files = files
	w.watchFoldersLocked()
}

// Close ends the Watcher. It waits for a call of Changed.
func (w *Watcher) Close() {
	close(w.quit)
	<-w.ended
	if w.events != nil {
		w.events.Close()
	}
}

// absolute returns path even if the working folder has been removed: then no file is found in it.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// look returns the state of the file at path, for same, or nil if there is no file.
func look(path string) fs.FileInfo {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	return info
}

func same(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// withTarget returns path and the path of the file to which it leads.
func withTarget(path string) []string {
	target, err := filepath.EvalSymlinks(path)
	if err != nil || target == path {
		return []string{path}
	}
	return []string{path, target}
}

// watchFoldersLocked watches the folders of all files, those too that were missing, and no others.
func (w *Watcher) watchFoldersLocked() {
	if w.events == nil {
		return
	}
	w.polling = false
	w.names = make(map[string]bool)
	wanted := make(map[string]bool)
	for path := range w.files {
		for _, name := range withTarget(path) {
			w.names[name], wanted[filepath.Dir(name)] = true, true
		}
	}
	for folder := range wanted {
		if err := w.events.Add(folder); err != nil {
			w.polling = true
			w.warnLocked(err)
		}
	}
	for _, folder := range w.events.WatchList() {
		if !wanted[folder] {
			_ = w.events.Remove(folder) // it may have been removed
		}
	}
}

func (w *Watcher) warn(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.warnLocked(err)
}

// warnLocked logs once that there are no watches.
func (w *Watcher) warnLocked(err error) {
	if w.warned {
		return
	}
	w.warned = true
	w.options.Logger.Warn("changes of files are not reported by the system; the files are looked at every 2 s instead. "+
		"On Linux, raise fs.inotify.max_user_instances and max_user_watches", "err", err)
}

// run waits for events and reports changes.
func (w *Watcher) run() {
	defer close(w.ended)
	var events chan fsnotify.Event
	var faults chan error
	if w.events != nil {
		events, faults = w.events.Events, w.events.Errors
	}
	var began time.Time // of the events that are not reported yet; zero: none
	timer := time.NewTimer(w.interval())
	defer timer.Stop()
	for {
		select {
		case <-w.quit:
			return
		case e := <-events:
			if !w.concerns(e) {
				continue
			}
		case <-faults: // events were lost
		case <-timer.C:
			began = time.Time{}
			if w.changed() {
				w.options.Changed()
			}
			timer.Reset(w.interval())
			continue
		}
		if began.IsZero() {
			began = time.Now()
		}
		timer.Reset(min(quiet, patience-time.Since(began)))
	}
}

// interval returns the time to the next look without events.
func (w *Watcher) interval() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.events == nil || w.polling {
		return poll
	}
	return safety
}

// concerns reports whether e may have changed a file. A write to another file has not: records may be written in the
// same folder all the time.
func (w *Watcher) concerns(e fsnotify.Event) bool {
	if e.Op&^(fsnotify.Write|fsnotify.Chmod) != 0 {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.names[e.Name]
}

// changed reports whether files have changed since the last call, and watches the folders that are there now.
func (w *Watcher) changed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := false
	for path, before := range w.files {
		now := look(path)
		changed = changed || !same(before, now)
		w.files[path] = now
	}
	w.watchFoldersLocked()
	return changed
}
