package store

import "testing"

// Long skips a test in short mode. Its time is not worth a run with the race detector, since shorter tests run the same
// code.
func Long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("a long test; make test runs it")
	}
}
