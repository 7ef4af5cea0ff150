package main

import (
	"bytes"
	"sync"
	"testing"
)

// lockedBuffer collects the output of a program while a test reads it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) WriteString(s string) { _, _ = l.Write([]byte(s)) }

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// clientRecords returns the lines of an audit about clients' requests, without the proxy's requests for robots.txt.
func clientRecords(audit []byte) []byte {
	var kept []byte
	for line := range bytes.Lines(audit) {
		if !bytes.Contains(line, []byte(`"via":"robots"`)) {
			kept = append(kept, line...)
		}
	}
	return kept
}

// long skips a test in short mode. Its time is not worth a run with the race detector, since shorter tests run the same
// code.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("a long test; make test runs it")
	}
}
