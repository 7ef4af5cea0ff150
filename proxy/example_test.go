package proxy_test

import (
	"fmt"
	"net/netip"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/proxy"
)

// The guard refuses what is not a public address, unless it is allowed by name.
func ExampleEgress_Check() {
	metadata, _ := origin.Parse("http://169.254.169.254")
	lab, _ := origin.Parse("http://10.0.0.7:8080")
	guard := proxy.NewEgress(proxy.EgressOptions{Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	fmt.Println(proxy.Prohibited(guard.Check(metadata)), guard.Check(lab))
	// Output: true <nil>
}
