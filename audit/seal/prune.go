package seal

import (
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
)

// Prune is the record of a pruning of old records. A Log keeps it from before the first of them is removed.
type Prune struct {
	Time    time.Time `json:"time"`    // when it began
	Before  time.Time `json:"before"`  // records that arrived before this were pruned
	Records int64     `json:"records"` // that it has removed so far
	Why     string    `json:"why"`
}

// recorded returns the ID before which records were pruned, as prunes say.
func recorded(prunes []Prune) (before audit.ID) {
	for _, p := range prunes {
		before = max(before, audit.IDAt(p.Before))
	}
	return before
}
