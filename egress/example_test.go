package egress_test

import (
	"fmt"
	"net/netip"

	"github.com/robotsproxy/robotsproxy/egress"
	"github.com/robotsproxy/robotsproxy/origin"
)

// The guard prohibits private and special addresses, unless Allow lists them.
func ExampleGuard_Check() {
	metadata, _ := origin.Parse("http://169.254.169.254")
	lab, _ := origin.Parse("http://10.0.0.7:8080")
	guard := egress.New(egress.Options{Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	fmt.Println(egress.Prohibited(guard.Check(metadata)), guard.Check(lab))
	// Output: true <nil>
}
