package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
)

// normalise reads the target of r and rewrites r to exactly that, so that the proxy sends what it judges: the origin in
// canonical form, path and query unchanged, no userinfo, no fragment. It refuses a request that servers could read in
// two ways.
func (ex *exchange) normalise(r *http.Request) *refusal {
	if err := checkTarget(r); err != nil {
		return targetRefusal(err)
	}
	if err := checkFrames(r); err != nil {
		return targetRefusal(err)
	}
	if n := countFields(r.Header); n > maxFields {
		detail := fmt.Sprintf("The header has %d fields, and %d are allowed.", n, maxFields)
		return &refusal{Reason: policy.ReasonBadRequest, Status: http.StatusRequestHeaderFieldsTooLarge, Detail: detail}
	}
	o, err := ex.readOrigin(r)
	if err != nil {
		return targetRefusal(err)
	}
	ex.origin = o
	ex.rec.Scheme, ex.rec.Host, ex.rec.Port = o.Scheme(), o.Host(), o.Port()
	*r.URL = url.URL{
		Scheme: o.Scheme(), Host: o.Authority(),
		Path: r.URL.Path, RawPath: origin.RawPath(r.URL), RawQuery: r.URL.RawQuery, ForceQuery: r.URL.ForceQuery,
	}
	r.Host = r.URL.Host
	ex.target = r.URL.RequestURI()
	path, query, _ := strings.Cut(ex.target, "?")
	ex.rec.Path, ex.rec.Query = cut(ex.settings.Query.Path(path), 8192), cut(ex.settings.Query.Apply(query), 8192)
	if ex.server.via.In(r.Header) {
		return &refusal{Reason: policy.ReasonLoop, Detail: "This request has passed this proxy before."}
	}
	return nil
}

// maxFields limits the fields of a request header.
const maxFields = 200

func countFields(h http.Header) (n int) {
	for _, values := range h {
		n += len(values)
	}
	return n
}

// errMisdirected is wrapped by the error of a request that names another server than its tunnel.
var errMisdirected = errors.New("inside a tunnel every request is for the host that it was opened to")

func targetRefusal(err error) *refusal {
	reason := policy.ReasonBadRequest
	if errors.Is(err, errMisdirected) {
		reason = policy.ReasonMisdirected
	}
	return &refusal{Reason: reason, Detail: strings.TrimPrefix(err.Error(), "origin: "), Err: err}
}

// readOrigin returns the origin of r. Outside a tunnel it reads the absolute target and ignores Host (RFC 9112 section
// 3.2.2). Inside, it returns the origin of the tunnel, and the target and Host must agree with it. (net/http drops a
// Host beside an absolute target; http1 has checked it.)
func (ex *exchange) readOrigin(r *http.Request) (origin.Origin, error) {
	if ex.tunnel == nil {
		return origin.FromURL(r.URL)
	}
	want := ex.tunnel.origin(r)
	if r.URL.IsAbs() {
		got, err := origin.FromURL(r.URL)
		if err == nil && got != want {
			err = fmt.Errorf("%w: %s, not %s", errMisdirected, want, got)
		}
		return want, err
	}
	if r.Host == "" && !r.ProtoAtLeast(1, 1) {
		return want, nil // HTTP/1.0 has no Host
	}
	if err := checkHostField(r); err != nil {
		return want, err
	}
	if r.Host == want.Authority() {
		return want, nil // the usual form
	}
	return want, checkHost(r.Host, want)
}

// checkHost refuses a Host that names another server than want.
func checkHost(host string, want origin.Origin) error {
	name, port, err := origin.SplitAuthority(host)
	if err != nil {
		return err
	}
	got, err := origin.New(want.Scheme(), name, port)
	if err == nil && got != want {
		err = fmt.Errorf("%w: %s, not %s", errMisdirected, want, got)
	}
	return err
}

// checkHostField refuses an HTTP/2 request if its Host field differs from its :authority (RFC 9113 section 8.3.1), and
// removes the field. In HTTP/1.1 net/http removes it.
func checkHostField(r *http.Request) error {
	field, there := r.Header["Host"]
	delete(r.Header, "Host")
	if there && (len(field) != 1 || field[0] != r.Host) {
		return fmt.Errorf("%w: Host and :authority differ", errMisdirected)
	}
	return nil
}

// checkTarget refuses a target that a server could read in another way than the proxy.
func checkTarget(r *http.Request) error {
	switch {
	case r.Method == http.MethodConnect:
		return errors.New("CONNECT inside a tunnel is not understood here")
	case strings.Contains(r.RequestURI, "#"):
		return errors.New("a request's target has no fragment (#)")
	case r.URL.Path == "*" && !r.URL.IsAbs():
		return errors.New(`the target "*" names no path, so no rule can be found for it`)
	case r.URL.Path != "" && !strings.HasPrefix(r.URL.Path, "/"):
		return errors.New("the target has no path that begins with a slash")
	}
	return nil
}

// checkFrames refuses two faults of HTTP/2 that net/http accepts: a method that is not a token, and a content-length
// that is malformed, repeated or not the length of the body (RFC 9113 section 8.1.1). In HTTP/1.x http1 refuses them.
func checkFrames(r *http.Request) error {
	if r.ProtoMajor != 2 {
		return nil
	}
	if !httpguts.ValidHeaderFieldName(r.Method) {
		return errors.New("the method is no token (RFC 9110 section 9.1)")
	}
	length, there := r.Header["Content-Length"]
	if there && (len(length) != 1 || length[0] != strconv.FormatInt(r.ContentLength, 10)) {
		return errors.New("content-length is not that of the body (RFC 9113 section 8.1.1)")
	}
	return nil
}
