package webhook_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/robotsproxy/robotsproxy/internal/webhook"
)

func Example() {
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Println(r.Method, r.URL.Path, string(body))
	}))
	defer receiver.Close()
	var s webhook.Sender
	err := s.Send(context.Background(), receiver.URL+"/hook", map[string]string{"host": "a.example"})
	fmt.Println(err)
	// Output:
	// POST /hook {"host":"a.example"}
	// <nil>
}
