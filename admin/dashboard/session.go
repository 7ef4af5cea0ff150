package dashboard

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// A session is a cookie with the end of the session and its MAC under the token. So it survives a restart, and ends if
// the token changes.
const (
	sessionCookie = "robotsproxy_session"
	sessionTime   = 12 * time.Hour
)

// mac returns the MAC of the end of a session, in seconds since 1970.
func (h *Handler) mac(end string) string {
	m := hmac.New(sha256.New, h.token[:])
	m.Write([]byte("robotsproxy session until " + end))
	return hex.EncodeToString(m.Sum(nil))
}

// isToken compares digests of the same length, so the duration does not depend on the token.
func (h *Handler) isToken(given string) bool {
	sum := sha256.Sum256([]byte(strings.TrimSpace(given)))
	return subtle.ConstantTimeCompare(sum[:], h.token[:]) == 1
}

// signedIn reports whether r has the token, or the cookie of a session.
func (h *Handler) signedIn(r *http.Request, now time.Time) bool {
	if scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") && h.isToken(token) {
		return true
	}
	c, err := r.Cookie(sessionCookie)
	if err != nil {
		return false
	}
	end, sum, _ := strings.Cut(c.Value, ".")
	if !hmac.Equal([]byte(sum), []byte(h.mac(end))) {
		return false
	}
	seconds, err := strconv.ParseInt(end, 10, 64)
	return err == nil && now.Before(time.Unix(seconds, 0))
}

// isLocal reports whether r comes from the loopback interface, under a name of it, and not through another proxy.
func isLocal(r *http.Request) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"} {
		if r.Header.Get(name) != "" {
			return false
		}
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() {
		return false
	}
	u := url.URL{Host: r.Host}
	if strings.EqualFold(u.Hostname(), "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(u.Hostname())
	return err == nil && addr.Unmap().IsLoopback()
}

// readable returns a handler that calls next for readers, and asks others to sign in.
func (h *Handler) readable(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isLocal(r) || h.signedIn(r, time.Now()) {
			next.ServeHTTP(w, r)
			return
		}
		h.askToken(w, r, "From other machines these pages need the token.")
	})
}

// changing returns a handler that calls next for requests of this site with the token, and asks others to sign in.
func (h *Handler) changing(next http.Handler) http.Handler {
	return h.crossOrigin.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.signedIn(r, time.Now()) {
			next.ServeHTTP(w, r)
			return
		}
		why := "Changes need the token."
		if r.Method == http.MethodPost {
			why += " Nothing was changed: sign in, and send the form again."
		}
		h.askToken(w, r, why)
	}))
}

// signInPage is the data of signin.html.
type signInPage struct {
	Why   string
	Next  string // the path to show after it
	Wrong bool   // the token that was given
}

// askToken responds with the form in place of a page.
func (h *Handler) askToken(w http.ResponseWriter, r *http.Request, why string) {
	next := "/"
	switch {
	case r.Method == http.MethodPost:
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		next = ownPath(r.PostFormValue("next"))
	case r.URL.Path != "/live":
		next = r.URL.RequestURI()
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="robotsproxy"`)
	// A fragment would be put into the middle of a page.
	w.Header().Set("HX-Redirect", "/signin?next="+url.QueryEscape(next))
	h.show(w, r, http.StatusUnauthorized, "Sign in", "signin.html", signInPage{Why: why, Next: next})
}

func (h *Handler) signInForm(w http.ResponseWriter, r *http.Request) {
	h.show(w, r, http.StatusOK, "Sign in", "signin.html", signInPage{Next: ownPath(r.FormValue("next"))})
}

func (h *Handler) signIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	next := ownPath(r.PostFormValue("next"))
	if !h.isToken(r.PostFormValue("token")) {
		h.show(w, r, http.StatusUnauthorized, "Sign in", "signin.html", signInPage{Next: next, Wrong: true})
		return
	}
	end := time.Now().Add(sessionTime)
	text := strconv.FormatInt(end.Unix(), 10)
	http.SetCookie(w, &http.Cookie{
		Name: sessionCookie, Value: text + "." + h.mac(text), Path: "/", Expires: end,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	})
	http.Redirect(w, r, next, http.StatusSeeOther)
}

func (h *Handler) signOut(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, &http.Cookie{Name: sessionCookie, Path: "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// ownPath returns a path of this listener, or "/" if next is not one: a form must not lead to another site.
func ownPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Host != "" || u.Scheme != "" || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\r\n") {
		return "/"
	}
	return next
}

// maxForm is the maximum size of a form, in bytes.
const maxForm = 64 << 10
