// Package lab has the parts that the comparisons share: a CA, bare goproxy, tunnels, the build of robotsproxy, and the
// processors, processor time and memory of processes on Linux.
package lab
