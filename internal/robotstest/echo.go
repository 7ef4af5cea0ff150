package robotstest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"

	"github.com/coder/websocket"
)

// Echo is the JSON response of /echo: the request as received.
type Echo struct {
	Proto  string `json:"proto"`
	TLS    bool   `json:"tls"`
	Method string `json:"method"`
	Target string `json:"target"` // as sent
	Host   string `json:"host"`   // as sent
	// Header is sorted by name and, within a name, in the order sent, which is all that net/http keeps. It does not
	// contain Host and Transfer-Encoding.
	Header           []Field  `json:"header"`
	TransferEncoding []string `json:"transfer_encoding,omitempty"`
	Trailer          []Field  `json:"trailer,omitempty"`
	BodyLength       int64    `json:"body_length"`
	BodySHA256       string   `json:"body_sha256"`
	BodyError        string   `json:"body_error,omitempty"` // error that ended the body early, if any
}

// Field is one header field.
type Field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func serveEcho(w http.ResponseWriter, r *http.Request, _ string) {
	sum := sha256.New()
	n, err := io.Copy(sum, r.Body)
	echo := Echo{
		Proto:            r.Proto,
		TLS:              r.TLS != nil,
		Method:           r.Method,
		Target:           r.RequestURI,
		Host:             r.Host,
		Header:           fields(r.Header),
		TransferEncoding: r.TransferEncoding,
		Trailer:          fields(r.Trailer), // filled by reading the body
		BodyLength:       n,
		BodySHA256:       hex.EncodeToString(sum.Sum(nil)),
	}
	if err != nil {
		echo.BodyError = err.Error()
	}
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(echo)
}

func fields(header http.Header) []Field {
	all := []Field{}
	for _, name := range slices.Sorted(maps.Keys(header)) {
		for _, value := range header[name] {
			all = append(all, Field{Name: name, Value: value})
		}
	}
	return all
}

// maxMessage is the maximum size of a WebSocket message.
const maxMessage = 16 << 20

func serveWebSocket(w http.ResponseWriter, r *http.Request, _ string) {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true}) // accept any Origin
	if err != nil {
		return // Accept has responded
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(maxMessage)
	for {
		kind, message, err := conn.Read(r.Context())
		if err != nil {
			return
		}
		if err := conn.Write(r.Context(), kind, message); err != nil {
			return
		}
	}
}
