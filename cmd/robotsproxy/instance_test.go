package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// Only a refused connection means that no instance is running, not one that is closed or slow.
func TestInstanceThatBreaksOff(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer server.Close()
	for _, tt := range []struct {
		name, address, words string
		notRunning           bool
	}{
		{"it breaks off", server.Listener.Addr().String(), "asking robotsproxy", false},
		{"nobody listens", robotstest.Refusing(t), "no robotsproxy answers at", true},
	} {
		i := newInstance(url.URL{Scheme: "http", Host: tt.address}, "token")
		err := i.call(t.Context(), http.MethodPost, "/cache/refresh", nil, nil, nil)
		var exit *exitError
		notRunning := errors.As(err, &exit) && exit.code == exitNotRunning
		if err == nil || !strings.Contains(err.Error(), tt.words) || notRunning != tt.notRunning {
			t.Errorf("%s: %v, not running: %v; want %q, %v", tt.name, err, notRunning, tt.words, tt.notRunning)
		}
		if i.client.Timeout != 0 {
			t.Errorf("%s: the client waits %v, and a refresh of many origins may take longer", tt.name, i.client.Timeout)
		}
	}
}
