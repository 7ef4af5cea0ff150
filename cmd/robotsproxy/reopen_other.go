//go:build !unix

package main

import "os"

// onReopen does nothing: this system has no such signal.
func onReopen(chan<- os.Signal) {}
