package dashboard

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	sessionCookie = "robotsproxy_session"
	sessionTime   = 12 * time.Hour
	maxSessions   = 1000 // at a time; the one that would end first gives way
)

// sessions are the browsers that have signed in. A session ends with its time, at sign-out, or with the process. Its
// cookie is a random ID, of which only the digest is kept.
type sessions struct {
	mu   sync.Mutex
	ends map[[sha256.Size]byte]time.Time
}

// begin begins a session and returns its cookie.
func (s *sessions) begin(now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ends == nil {
		s.ends = make(map[[sha256.Size]byte]time.Time)
	}
	if len(s.ends) >= maxSessions {
		s.dropFirst()
	}
	id := rand.Text()
	s.ends[sha256.Sum256([]byte(id))] = now.Add(sessionTime)
	return id
}

func (s *sessions) dropFirst() {
	var first [sha256.Size]byte
	for id, end := range s.ends {
		if s.ends[first].IsZero() || end.Before(s.ends[first]) {
			first = id
		}
	}
	delete(s.ends, first)
}

// has reports whether a cookie is that of a session.
func (s *sessions) has(cookie string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Before(s.ends[sha256.Sum256([]byte(cookie))])
}

func (s *sessions) end(cookie string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ends, sha256.Sum256([]byte(cookie)))
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
	return err == nil && h.sessions.has(c.Value, now)
}

// isLocal reports whether r comes from the loopback interface, under a name of it, and not through another proxy.
func isLocal(r *http.Request) bool {
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Forwarded-") || slices.Contains([]string{"Forwarded", "X-Real-Ip", "Via", "Cf-Connecting-Ip", "True-Client-Ip"}, name) {
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

// isForeign reports whether a page of another site made a browser send r.
func isForeign(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
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
	now := time.Now()
	http.SetCookie(w, &http.Cookie{
		Name: sessionCookie, Value: h.sessions.begin(now), Path: "/", Expires: now.Add(sessionTime),
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	})
	http.Redirect(w, r, next, http.StatusSeeOther)
}

func (h *Handler) signOut(w http.ResponseWriter, r *http.Request) {
	if c, err := r.Cookie(sessionCookie); err == nil {
		h.sessions.end(c.Value)
	}
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
