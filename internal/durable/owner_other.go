//go:build !unix

package durable

import "io/fs"

// ownerOf returns the ID of the user that owns a file, if known.
func ownerOf(fs.FileInfo) (user int, known bool) { return 0, false }

// keepOwner does nothing: files on this system have no Unix owner.
func keepOwner(string, fs.FileInfo) error { return nil }
