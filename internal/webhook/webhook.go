// Package webhook posts JSON to a URL, and tries again if that fails.
//
//	var s webhook.Sender
//	err := s.Send(ctx, "https://hooks.example.org/robots", report)
//
// It connects directly: it reads no proxy variables, and follows no redirect. Its errors do not have the URL, which may be
// a secret.
package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"
)

// Sender posts to webhooks. The zero value can be used, by many goroutines at once.
type Sender struct {
	Pauses  []time.Duration // between the tries; if nil, 2 s, 10 s and 60 s
	Timeout time.Duration   // of one try; if zero, 10 s
}

// Check returns an error unless text is a URL to which a Sender posts: https, or http on this machine.
func Check(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "":
		return errors.New("it is not a URL")
	case u.Scheme == "https", u.Scheme == "http" && isLoopback(u.Hostname()):
		return nil
	}
	return errors.New("it is neither an https URL nor an http URL of this machine")
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

var client = &http.Client{
	Transport: &http.Transport{
		DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext, TLSHandshakeTimeout: 10 * time.Second,
		DisableKeepAlives: true, // messages are rare
	},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// Send posts v as JSON until the answer is 2xx. It returns the error of the last try. It does not try again after a
// status that another try would not change: 3xx, or 4xx but 408 and 429.
func (s *Sender) Send(ctx context.Context, to string, v any) error {
	if err := Check(to); err != nil {
		return err
	}
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding the message: %w", err)
	}
	pauses := s.Pauses
	if pauses == nil {
		pauses = []time.Duration{2 * time.Second, 10 * time.Second, time.Minute}
	}
	for _, pause := range pauses {
		final, err := s.post(ctx, to, body)
		if err == nil || final {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
	_, err = s.post(ctx, to, body)
	return err
}

// post posts once. If final, another try would not help.
func (s *Sender) post(ctx context.Context, to string, body []byte) (final bool, err error) {
	timeout := s.Timeout
	if timeout == 0 {
		timeout = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return true, withoutURL(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "robotsproxy")
	resp, err := client.Do(req)
	if err != nil {
		return false, withoutURL(err)
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the receiver can write its answer
	switch code := resp.StatusCode; {
	case code/100 == 2:
		return true, nil
	case code/100 == 5, code == http.StatusRequestTimeout, code == http.StatusTooManyRequests:
		return false, fmt.Errorf("it answered %d", code)
	default:
		return true, fmt.Errorf("it answered %d", code)
	}
}

// withoutURL returns the cause of an error of net/http, which has the URL.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
