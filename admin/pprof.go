package admin

import (
	"net/http"
	"net/http/pprof"
)

// serveProfiles adds the profiles of package net/http/pprof to mux. They all need the token: they show command lines
// and memory, and a profile of the CPU takes time.
func (h *Handler) serveProfiles(mux *http.ServeMux) {
	for path, handler := range map[string]http.HandlerFunc{
		"/debug/pprof/": pprof.Index, "/debug/pprof/cmdline": pprof.Cmdline, "/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol": pprof.Symbol, "/debug/pprof/trace": pprof.Trace,
	} {
		mux.Handle("GET "+path, h.Protected(handler))
	}
}
