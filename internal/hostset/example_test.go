package hostset_test

import (
	"fmt"

	"github.com/robotsproxy/robotsproxy/internal/hostset"
)

func Example() {
	deny, err := hostset.New([]string{"*.a.example", "b.example"})
	fmt.Println(deny.Match("www.a.example"))
	fmt.Println(deny.Match("a.example"))
	fmt.Println(deny.Len(), err)
	// Output:
	// *.a.example true
	//  false
	// 2 <nil>
}
