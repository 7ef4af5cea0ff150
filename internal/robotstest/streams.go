package robotstest

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// noise is repeated in bytes and endless bodies. Its length is prime, so that tests detect a piece of a round number of
// bytes that is lost, duplicated or moved.
var noise = func() []byte {
	source, octets := rand.NewPCG(1, 2), make([]byte, 65521)
	for i := range octets {
		octets[i] = byte(source.Uint64())
	}
	return octets
}()

// Bytes returns the body of /bytes/N, which is also the beginning of /endless. It is not compressible.
func Bytes(n int) []byte {
	body := make([]byte, n)
	for i := 0; i < n; i += len(noise) {
		copy(body[i:], noise)
	}
	return body
}

func serveBytes(w http.ResponseWriter, r *http.Request, rest string) {
	left, err := strconv.ParseInt(rest, 10, 64)
	if err != nil || left < 0 {
		http.Error(w, "the path is /bytes/N", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", rest)
	if r.Method == http.MethodHead {
		return
	}
	for left > 0 && err == nil {
		var n int
		n, err = w.Write(noise[:min(left, int64(len(noise)))])
		left -= int64(n)
	}
}

// Endless responds with a body that ends when the client disconnects.
func Endless(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/octet-stream")
	if r.Method == http.MethodHead {
		return
	}
	for {
		if _, err := w.Write(noise); err != nil {
			return
		}
	}
}

func serveStream(w http.ResponseWriter, r *http.Request, rest string) {
	n, err := strconv.Atoi(rest)
	every, bad := interval(r, 0)
	if err != nil || bad != nil {
		http.Error(w, "the target is /stream/N?every=DURATION", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	repeat(w, r, n, every, func(i int) string { return fmt.Sprintf("line %d\n", i) })
}

func serveEvents(w http.ResponseWriter, r *http.Request, _ string) {
	servePieces(w, r, "text/event-stream", func(i int) string { return fmt.Sprintf("data: %d\n\n", i) })
}

func serveNDJSON(w http.ResponseWriter, r *http.Request, _ string) {
	servePieces(w, r, "application/x-ndjson", func(i int) string { return fmt.Sprintf("{\"n\":%d}\n", i) })
}

func servePieces(w http.ResponseWriter, r *http.Request, contentType string, piece func(i int) string) {
	n, err := number(r.URL.Query(), "n", 5)
	every, bad := interval(r, 20*time.Millisecond)
	if err != nil || bad != nil {
		http.Error(w, "the query is n=N&every=DURATION", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", contentType)
	repeat(w, r, n, every, piece)
}

func serveDrip(w http.ResponseWriter, r *http.Request, _ string) {
	n, err := number(r.URL.Query(), "n", 10)
	every, bad := interval(r, 20*time.Millisecond)
	if err != nil || bad != nil || n < 0 {
		http.Error(w, "the query is n=N&every=DURATION", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(n))
	repeat(w, r, n, every, func(int) string { return "." })
}

// repeat sends n pieces, numbered from 1, at intervals of every. It flushes each piece.
func repeat(w http.ResponseWriter, r *http.Request, n int, every time.Duration, piece func(i int) string) {
	for i := 1; i <= n; i++ {
		if i > 1 && !pause(r, every) {
			return
		}
		write(w, piece(i))
		if http.NewResponseController(w).Flush() != nil {
			return
		}
	}
}

// interval parses the parameter "every" of the query, with a default.
func interval(r *http.Request, otherwise time.Duration) (time.Duration, error) {
	query := r.URL.Query()
	if !query.Has("every") {
		return otherwise, nil
	}
	return time.ParseDuration(query.Get("every"))
}
