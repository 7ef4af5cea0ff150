package store_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/store"
)

// numbered is the n-th save of a child: a text of its own for one of a few origins, so that rows are made, replaced and
// grown, and a change with it.
func numbered(n int) (*robots.Snapshot, *robots.Change) {
	o, err := origin.Parse(fmt.Sprintf("http://h%d.example", n%7))
	if err != nil {
		panic(err)
	}
	body := fmt.Sprintf("# %d\n%*s", n, n%9000, "")
	snap := found(o, body, dawn.Add(time.Duration(n)*time.Second))
	return snap, &robots.Change{Origin: o, Time: snap.Fetched, NewSHA256: snap.SHA256, OldState: "found", NewState: "found"}
}

// saveForever is the child: it says the number of each save that has returned, and prunes while it goes.
func saveForever(path string) {
	s, err := store.Open(store.Options{Path: path})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for n := 1; ; n++ {
		snap, change := numbered(n)
		if err := s.Save(context.Background(), snap, change); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(n)
		if n%100 == 0 {
			if _, err := s.Prune(context.Background(), snap.Fetched.Add(-150*time.Second)); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
		}
	}
}

// A process is killed in the middle of saving, again and again. What it said was saved is there, and the file is sound.
func TestKilled(t *testing.T) {
	for round := range 6 {
		path := filepath.Join(t.TempDir(), "state.db")
		last := killAfter(t, path, 40+130*round)
		s := open(t, path)
		if got := ask(t, s, "PRAGMA integrity_check"); got != "ok" {
			t.Errorf("integrity_check after %d saves: %s", last, got)
		}
		if broken, err := s.Ask(context.Background(), "SELECT count(*) FROM pragma_foreign_key_check"); broken != "0" || err != nil {
			t.Errorf("foreign_key_check after %d saves: %s rows, %v", last, broken, err)
		}
		for n := last; n > max(0, last-7); n-- {
			checkSaved(t, s, n)
		}
	}
}

// killAfter starts a child, kills it when it has said n, and returns the last number that it said.
func killAfter(t *testing.T, path string, n int) (last int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self)
	child.Env = append(os.Environ(), childPath+"="+path)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if last, err = strconv.Atoi(lines.Text()); err != nil {
			t.Errorf("the child says: %s", lines.Text())
		}
		if last == n {
			_ = child.Process.Kill() // and go on reading: what it had said before it died counts
		}
	}
	_ = child.Wait() // it was killed
	if last < n {
		t.Errorf("the child said %d at last, want %d or more", last, n)
	}
	return last
}

// checkSaved wants save n, or a later one of the same origin that was not acknowledged any more.
func checkSaved(t *testing.T, s *store.State, n int) {
	t.Helper()
	want, change := numbered(n)
	got := load(t, s, want.Origin)
	if later, _ := numbered(n + 7); got.SHA256 == later.SHA256 {
		return
	}
	if diff := differ(got, want); diff != "" {
		t.Errorf("save %d (-want +got):\n%s", n, diff)
	}
	if versions, err := s.Versions(context.Background(), want.Origin, 1); err != nil || len(versions) != 1 || versions[0].SHA256 != want.SHA256 {
		t.Errorf("the latest version of save %d = %v, %v; want %s", n, versions, err, want.SHA256)
	}
	if changes, err := s.Changes(context.Background(), want.Origin, 1); err != nil || len(changes) != 1 || changes[0] != *change {
		t.Errorf("the latest change of save %d = %v, %v; want %v", n, changes, err, *change)
	}
}

// Two processes save into one file, and both are kept.
func TestTwoProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	done := make(chan int)
	go func() { done <- killAfter(t, path, 300) }()
	mine := 0
	for running := true; running; mine++ {
		save(t, s, found(mustOrigin(t, fmt.Sprintf("https://mine%d.example", mine)), file, dawn.AddDate(1, 0, 0)), nil)
		select {
		case last := <-done:
			checkSaved(t, s, last)
			running = false
		default:
		}
	}
	origins, err := s.Origins(context.Background(), "", 1<<30)
	if len(origins) != mine+7 || err != nil {
		t.Errorf("Origins = %d, %v; want %d of this process and 7 of the other", len(origins), err, mine)
	}
}
