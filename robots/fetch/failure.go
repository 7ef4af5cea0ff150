package fetch

import (
	"compress/flate"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptrace"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
)

// ErrorType returns the error type (RFC 9209 section 2.3) of an error of an http.RoundTripper. For unknown errors it is
// destination_unavailable. An error may have a method ProxyErrorType() string that returns its type.
func ErrorType(err error) string {
	for _, classify := range []func(error) string{
		ownType, setupType, dnsType, tlsType, dialType, codingType, exchangeType, textType,
	} {
		if t := classify(err); t != "" {
			return t
		}
	}
	return "destination_unavailable"
}

// ErrorText returns a description of err for clients, without addresses: of the certificate, or else of errorType, a
// type of RFC 9209. An error may have a method ClientText(string) string that takes this text and returns another.
func ErrorText(errorType string, err error) string {
	text := strings.ReplaceAll(errorType, "_", " ")
	if fault := certificateFault(err); fault != "" {
		text = fault
	}
	var own interface{ ClientText(string) string }
	if errors.As(err, &own) {
		text = own.ClientText(text)
	}
	return text
}

func certificateFault(err error) string {
	var (
		invalid  x509.CertificateInvalidError
		hostname x509.HostnameError
		unknown  x509.UnknownAuthorityError
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "its certificate has expired or is not valid yet"
	case errors.As(err, &hostname):
		return "its certificate is for another host"
	case errors.As(err, &unknown):
		return "its certificate is signed by an unknown authority"
	}
	return ""
}

func ownType(err error) string {
	var typed interface{ ProxyErrorType() string }
	if errors.As(err, &typed) {
		return typed.ProxyErrorType()
	}
	return ""
}

// errResolving and errConnecting name the step that the timeout of a fetch interrupted.
var (
	errResolving  = errors.New("looking up the address")
	errConnecting = errors.New("connecting")
)

// progress records the steps of a request. The error of net/http for a context that ends does not name the step:
// without progress, an origin that accepts no connection would look like one that is slow to answer.
type progress struct{ resolving, connected atomic.Bool }

func (p *progress) watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		DNSStart: func(httptrace.DNSStartInfo) { p.resolving.Store(true) },
		// Without an address, no connection is tried.
		DNSDone: func(done httptrace.DNSDoneInfo) { p.resolving.Store(done.Err != nil) },
		GotConn: func(httptrace.GotConnInfo) { p.connected.Store(true) },
	})
}

func (p *progress) explain(err error) error {
	switch {
	case p.connected.Load() || !errors.Is(err, context.DeadlineExceeded):
		return err
	case p.resolving.Load():
		return fmt.Errorf("%w: %w", errResolving, err)
	default:
		return fmt.Errorf("%w: %w", errConnecting, err)
	}
}

func setupType(err error) string {
	switch {
	case errors.Is(err, errResolving):
		return "dns_timeout"
	case errors.Is(err, errConnecting), strings.Contains(err.Error(), "TLS handshake timeout"):
		return "connection_timeout"
	}
	return ""
}

func dnsType(err error) string {
	var dns *net.DNSError
	switch {
	case !errors.As(err, &dns):
		return ""
	case dns.IsTimeout:
		return "dns_timeout"
	default:
		return "dns_error"
	}
}

func tlsType(err error) string {
	var (
		verify   *tls.CertificateVerificationError
		unknown  x509.UnknownAuthorityError
		hostname x509.HostnameError
		invalid  x509.CertificateInvalidError
		alert    tls.AlertError
		record   tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &verify), errors.As(err, &unknown), errors.As(err, &hostname), errors.As(err, &invalid):
		return "tls_certificate_error"
	case errors.As(err, &alert), strings.Contains(err.Error(), "remote error: tls:"):
		return "tls_alert_received"
	case errors.As(err, &record), strings.Contains(err.Error(), "tls:"),
		strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "tls_protocol_error"
	}
	return ""
}

// causeRefused is the error type of a refused connection (RFC 9209 section 2.3.7).
const causeRefused = "connection_refused"

func dialType(err error) string {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "dial" {
		return ""
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return causeRefused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "destination_ip_unroutable"
	case op.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return "connection_timeout"
	}
	return ""
}

func codingType(err error) string {
	var corrupt flate.CorruptInputError
	if errors.Is(err, errCoding) || errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) ||
		errors.As(err, &corrupt) {
		return "http_response_content_coding"
	}
	return ""
}

// exchangeType returns the type of an error on an open connection.
func exchangeType(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		return "http_response_timeout"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF):
		return "connection_terminated"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "http_response_incomplete"
	}
	return ""
}

// textType recognizes errors of net/http by their text, since they have no exported type.
func textType(err error) string {
	text := err.Error()
	for _, known := range []struct{ part, name string }{
		{"server response headers exceeded", "http_response_header_section_size"},
		{"response header list larger", "http_response_header_section_size"},
		{"server closed idle connection", "connection_terminated"},
		{"client connection lost", "connection_terminated"},
		{"GOAWAY", "connection_terminated"},
		{"connection reset", "connection_terminated"},
		{"chunk", "http_response_transfer_coding"},
		{"transfer encoding", "http_response_transfer_coding"},
		{"malformed", "http_protocol_error"},
		{"Content-Length", "http_protocol_error"},
		{"too many 1xx", "http_protocol_error"},
		{"changed the protocol", "http_upgrade_failed"},
		{"stream error", "http_protocol_error"},
		{"connection error", "http_protocol_error"},
		{"http2:", "http_protocol_error"},
	} {
		if strings.Contains(text, known.part) {
			return known.name
		}
	}
	return ""
}
