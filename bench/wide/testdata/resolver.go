package main

import (
	"context"
	"net"
	"os"
)

// init sends all questions of this program to the DNS server at ROBOTSPROXY_BENCH_DNS. The file is a part of the builds
// that bench/wide makes, and of no other: the resolver of Go has no setting for a port.
func init() {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", os.Getenv("ROBOTSPROXY_BENCH_DNS"))
	}}
}
