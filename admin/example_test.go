package admin_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
)

func Example() {
	dir, err := os.MkdirTemp("", "admin")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	token, created, err := admin.LoadToken(filepath.Join(dir, "admin-token"))
	fmt.Println(len(token), created, err)

	metrics := admin.NewMetrics()
	h, err := admin.New(admin.Options{Token: token, Metrics: metrics})
	if err != nil {
		fmt.Println(err)
		return
	}
	metrics.Observe(&audit.Record{Decision: policy.Deny, Reason: policy.ReasonRobots})

	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest("GET", "http://localhost:3129/healthz", nil))
	fmt.Print(answer.Code, " ", answer.Body)
	// Output:
	// 64 true <nil>
	// 200 ok
}
