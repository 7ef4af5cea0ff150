// Package bench compares robotsproxy with bare goproxy, the library that it uses, in one run on one machine.
//
//	go test -bench . -run '^$' -benchtime 10s
//
// Both proxies are separate processes with GOMAXPROCS=1 on the same processor. The crawlers and the origin are in this
// process, on the other processors. The two proxies alternate, each for a fraction of a second, so that other load on
// the machine affects both. robotsproxy runs with all its functions: each request is judged by a robots.txt of 25
// rules, passes its host's lane and the egress guard, and is recorded in a file. goproxy only forwards requests.
//
// The main result is the processor time that the proxy uses for a request, from /proc/PID/stat on Linux. The benchmark
// also shows requests per second; if the proxy is not busy all the time, they measure the crawlers instead. Each ratio
// says how many times better robotsproxy is: 1.00 is as good as goproxy.
//
// The package is a separate module, so that the proxies for comparison are not in the proxy's go.mod. Its test sends a
// few requests through each proxy and compares the responses. Neither test nor benchmark asserts a time.
//
// Command peers measures more proxies in more scenarios, and command wide crawls of very many hosts.
package bench
