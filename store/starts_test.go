package store

import (
	"path/filepath"
	"sync"
	"testing"
)

// Processes that share a file count each start once.
func TestStartsAreCounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	const processes, starts = 4, 25
	var mu sync.Mutex
	seen := make(map[int64]bool)
	var all sync.WaitGroup
	for range processes {
		s, err := Open(Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		all.Go(func() {
			for range starts {
				before, err := s.CountStart(t.Context())
				mu.Lock()
				if err != nil || seen[before] || before < 0 || before >= processes*starts {
					t.Errorf("CountStart = %d, %v; want a new one below %d", before, err, processes*starts)
				}
				seen[before] = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
}
