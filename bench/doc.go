// Package bench measures robotsproxy beside bare goproxy, the library that it is built on, in one run on one machine.
//
//	go test -bench . -run '^$' -benchtime 10s
//
// Both are processes of their own, with GOMAXPROCS=1 and pinned to the same processor; crawlers and origin are this
// process, on the other processors. The two take turns, a fraction of a second each, so that whatever else the machine
// does falls on both. robotsproxy has everything on: each request is judged by a robots.txt of 25 rules, goes through its
// host's lane and the egress guard, and is recorded in a file. goproxy does nothing but pass requests on.
//
// The figure that counts is the processor time that the proxy itself spends on a request, which Linux tells in
// /proc/PID/stat. Requests per second are shown too; where the proxy is not busy all of its time, they say how fast the
// crawlers are and not the proxy. Each ratio says how many times better robotsproxy is: 1.00 is as good as goproxy.
//
// The package is a module of its own, so that what is measured against never enters the proxy's go.mod. Its test sends a
// handful of requests each way and compares the answers. Neither asserts a time.
package bench
