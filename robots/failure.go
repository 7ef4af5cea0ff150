package robots

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

// ErrorType returns the error type of RFC 9209 section 2.3 for an error of a transport, or destination_unavailable if it knows
// no better one. An error may say its type itself, with a method ProxyErrorType() string.
func ErrorType(err error) string {
	for _, classify := range []func(error) string{ownType, setupType, dnsType, tlsType, dialType, codingType, exchangeType, textType} {
		if t := classify(err); t != "" {
			return t
		}
	}
	return "destination_unavailable"
}

// ErrorText describes err for a client, without addresses: the fault of a certificate, or in words its error type, which is one
// of RFC 9209. An error may describe itself, with a method ClientText(string) string that takes this text and returns another.
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

// errResolving and errConnecting say what had not ended when a fetch ran out of time.
var (
	errResolving  = errors.New("looking up the address")
	errConnecting = errors.New("connecting")
)

// progress is how far a request has come. net/http does not say where it ends with its context: an origin that takes no
// connection would look like one that is slow to answer.
type progress struct{ resolving, connected atomic.Bool }

func (p *progress) watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		DNSStart: func(httptrace.DNSStartInfo) { p.resolving.Store(true) },
		DNSDone:  func(done httptrace.DNSDoneInfo) { p.resolving.Store(done.Err != nil) }, // without an address there is nothing to connect to
		GotConn:  func(httptrace.GotConnInfo) { p.connected.Store(true) },
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
	case errors.As(err, &record), strings.Contains(err.Error(), "tls:"), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "tls_protocol_error"
	}
	return ""
}

func dialType(err error) string {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "dial" {
		return ""
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection_refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "destination_ip_unroutable"
	case op.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return "connection_timeout"
	}
	return ""
}

func codingType(err error) string {
	var corrupt flate.CorruptInputError
	if errors.Is(err, errCoding) || errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.As(err, &corrupt) {
		return "http_response_content_coding"
	}
	return ""
}

// exchangeType is for what goes wrong once there is a connection.
func exchangeType(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "http_response_timeout"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF):
		return "connection_terminated"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "http_response_incomplete"
	}
	return ""
}

// textType knows errors of net/http that have no type of their own.
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
