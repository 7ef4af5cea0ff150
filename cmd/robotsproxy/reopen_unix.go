//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// onReopen makes c receive the signal after which the file of the records is reopened.
func onReopen(c chan<- os.Signal) { signal.Notify(c, syscall.SIGUSR1) }
