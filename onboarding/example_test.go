package onboarding_test

import (
	"fmt"
	"log"
	"net/http/httptest"
	"os"

	"github.com/robotsproxy/robotsproxy/certs"
	"github.com/robotsproxy/robotsproxy/onboarding"
)

func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ca, err := certs.Open(certs.Options{Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	handler := onboarding.Handler(ca)
	for _, path := range []string{"/", "/ca.pem", "/proxy.pac"} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		fmt.Println(w.Code, w.Header().Get("Content-Type"))
	}
	// Output:
	// 200 text/html; charset=utf-8
	// 200 application/x-x509-ca-cert
	// 200 application/x-ns-proxy-autoconfig
}
