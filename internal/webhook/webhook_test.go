package webhook_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/robotsproxy/robotsproxy/internal/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quick tries four times.
var quick = webhook.Sender{
	Pauses: []time.Duration{time.Millisecond, time.Millisecond, time.Millisecond}, Timeout: 100 * time.Millisecond,
}

// receive returns the URL of a receiver, and the number of requests that it got.
func receive(t *testing.T, answer func(n int64, w http.ResponseWriter, r *http.Request)) (to string, n *atomic.Int64) {
	t.Helper()
	n = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(n.Add(1), w, r) }))
	t.Cleanup(s.Close)
	return s.URL + "/hook/s3cr3t", n
}

func TestSend(t *testing.T) {
	var got map[string]string
	to, n := receive(t, func(n int64, w http.ResponseWriter, r *http.Request) {
		if n < 3 {
			w.WriteHeader([]int{0, 503, 429}[n])
			return
		}
		if r.Method != http.MethodPost || r.URL.Path != "/hook/s3cr3t" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s of type %s", r.Method, r.URL, r.Header.Get("Content-Type"))
		}
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
	})
	if err := quick.Send(t.Context(), to, map[string]string{"host": "a.example"}); err != nil {
		t.Fatal(err)
	}
	if n.Load() != 3 || got["host"] != "a.example" {
		t.Errorf("%d requests, and the last has %v", n.Load(), got)
	}
}

// The errors do not have the URL, and the tries depend on the answer.
func TestSendFails(t *testing.T) {
	elsewhere, elsewhereGot := receive(t, func(int64, http.ResponseWriter, *http.Request) {})
	for name, test := range map[string]struct {
		answer func(n int64, w http.ResponseWriter, r *http.Request)
		tries  int64
		want   string
	}{
		"always 500": {func(_ int64, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, 4, "500"},
		"404":        {func(_ int64, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, 1, "404"},
		"a redirect": {func(_ int64, w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere, http.StatusTemporaryRedirect)
		}, 1, "307"},
		"it hangs": {func(_ int64, _ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // then the server notices that the client leaves
			<-r.Context().Done()
		}, 4, "deadline"},
		"it breaks": {func(int64, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 4, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			to, n := receive(t, test.answer)
			err := quick.Send(t.Context(), to, 1)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("the error is %v, want one with %s", err, test.want)
			}
			if n.Load() != test.tries {
				t.Errorf("%d tries, want %d", n.Load(), test.tries)
			}
		})
	}
	if n := elsewhereGot.Load(); n > 0 {
		t.Errorf("it followed %d redirects", n)
	}
}

func TestSendToNoServer(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	if err := quick.Send(t.Context(), s.URL, 1); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("the error is %v", err)
	}
}

// A context that ends ends the pause between two tries.
func TestSendIsCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	to, n := receive(t, func(_ int64, w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(500)
		cancel()
	})
	s := webhook.Sender{Pauses: []time.Duration{time.Hour}}
	if err := s.Send(ctx, to, 1); err == nil || n.Load() != 1 {
		t.Errorf("%v after %d tries", err, n.Load())
	}
}

func TestCheck(t *testing.T) {
	for text, good := range map[string]bool{
		"https://hooks.example/x?y": true, "http://127.0.0.1:8080/x": true, "http://[::1]/": true, "http://localhost/": true,
		"http://hooks.example/": false, "http://10.0.0.1/": false, "ftp://127.0.0.1/": false, "hooks.example/x": false, "https://": false,
	} {
		if err := webhook.Check(text); (err == nil) != good {
			t.Errorf("%s: %v", text, err)
		}
	}
}
