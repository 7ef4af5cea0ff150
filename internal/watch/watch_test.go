package watch

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

// newWatched returns the path of a file that is watched, and a channel with one element for each report.
func newWatched(t *testing.T) (path string, reports chan struct{}) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "a.yaml")
	write(t, path, "one")
	return path, watched(t, path)
}

func watched(t *testing.T, paths ...string) chan struct{} {
	t.Helper()
	reports := make(chan struct{}, 100)
	w := New(Options{Changed: func() { reports <- struct{}{} }})
	t.Cleanup(w.Close)
	w.Set(paths)
	return reports
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantReport(t *testing.T, reports chan struct{}) {
	t.Helper()
	select {
	case <-reports:
	case <-time.After(10 * time.Second):
		t.Fatal("no report")
	}
}

func wantNone(t *testing.T, reports chan struct{}) {
	t.Helper()
	select {
	case <-reports:
		t.Fatal("a report without a change")
	case <-time.After(4 * quiet):
	}
}

func TestChanges(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, path string){
		"written": func(t *testing.T, path string) { write(t, path, "two") },
		"replaced": func(t *testing.T, path string) {
			write(t, path+".new", "two")
			must(t, os.Rename(path+".new", path))
		},
		"replaced after a backup": func(t *testing.T, path string) {
			must(t, os.Rename(path, path+"~"))
			write(t, path, "two")
		},
		"removed": func(t *testing.T, path string) { must(t, os.Remove(path)) },
		"written in two steps": func(t *testing.T, path string) {
			write(t, path, "")
			time.Sleep(quiet / 3)
			write(t, path, "two")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, reports := newWatched(t)
			change(t, path)
			wantReport(t, reports)
			wantNone(t, reports)
			write(t, path, "three")
			wantReport(t, reports)
		})
	}
}

// A write to another file in the folder is no change, nor is a folder that is read.
func TestOtherFiles(t *testing.T) {
	t.Parallel()
	path, reports := newWatched(t)
	write(t, filepath.Join(filepath.Dir(path), "b"), "b")
	_, err := os.ReadFile(path)
	must(t, err)
	wantNone(t, reports)
}

// Kubernetes replaces the link ..data, through which the links of all files of a ConfigMap lead.
func TestConfigMap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	version := func(name, text string) {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		write(t, filepath.Join(dir, name, "a.yaml"), text)
		must(t, os.Symlink(name, filepath.Join(dir, "..data_tmp")))
		must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	version("..1", "one")
	path := filepath.Join(dir, "a.yaml")
	must(t, os.Symlink(filepath.Join("..data", "a.yaml"), path))
	reports := watched(t, path)
	for _, name := range []string{"..2", "..3"} {
		version(name, "other")
		wantReport(t, reports)
	}
	must(t, os.RemoveAll(filepath.Join(dir, "..1")))
	wantNone(t, reports)
}

// The target of a link may be in another folder.
func TestLinkedFile(t *testing.T) {
	t.Parallel()
	target := filepath.Join(t.TempDir(), "target")
	write(t, target, "one")
	path := filepath.Join(t.TempDir(), "a.yaml")
	must(t, os.Symlink(target, path))
	reports := watched(t, path)
	write(t, target, "two")
	wantReport(t, reports)
}

// Set replaces the files, also from Changed.
func TestSet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(t.TempDir(), "b")
	reports := make(chan struct{}, 10)
	var w *Watcher
	w = New(Options{Changed: func() {
		w.Set([]string{b})
		reports <- struct{}{}
	}})
	t.Cleanup(w.Close)
	w.Set([]string{a})
	write(t, a, "made")
	wantReport(t, reports)
	write(t, a, "more")
	wantNone(t, reports)
	write(t, b, "made")
	wantReport(t, reports)
}

// Without watches, the files are looked at, and the log says so once.
func TestWithoutWatches(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.yaml")
	write(t, path, "one")
	log, reports := polled(t, path, func() (*fsnotify.Watcher, error) { return nil, errors.New("too many open files") })
	write(t, path, "two")
	wantReport(t, reports)
	if text := log.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "too many open files") {
		t.Errorf("the log is %q", text)
	}
}

// A folder that is missing cannot be watched until it is there.
func TestMissingFolder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "missing", "a.yaml")
	log, reports := polled(t, path, fsnotify.NewWatcher)
	if !strings.Contains(log.String(), "level=WARN") {
		t.Errorf("the log is %q", log.String())
	}
	must(t, os.Mkdir(filepath.Dir(path), 0o700))
	write(t, path, "one")
	wantReport(t, reports)
	write(t, path, "two")
	wantReport(t, reports)
}

func polled(t *testing.T, path string, newEvents func() (*fsnotify.Watcher, error)) (*bytes.Buffer, chan struct{}) {
	t.Helper()
	log, reports := &bytes.Buffer{}, make(chan struct{}, 10)
	o := Options{Changed: func() { reports <- struct{}{} }, Logger: slog.New(slog.NewTextHandler(log, nil))}
	w := newWatcher(o, newEvents)
	t.Cleanup(w.Close)
	w.Set([]string{path})
	return log, reports
}
