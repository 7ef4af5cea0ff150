//go:build !unix

package certs

// chownLike does nothing: files on this system have no Unix owner.
func chownLike(string, string) error { return nil }
