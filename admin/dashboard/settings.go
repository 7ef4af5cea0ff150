package dashboard

import (
	"time"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/policy"
)

// Settings describe how the proxy runs.
type Settings struct {
	Values   []Setting
	File     string    // of the configuration; empty without one
	Reloaded time.Time // the last reload; zero: none since the start
	Changes  []admin.Change
	Fault    string // why the last reload changed nothing
	CAs      []CA
}

// Setting is a key of the configuration.
type Setting struct {
	Key, Text string
	Origin    string // "default", FILE:LINE:COLUMN, a variable or a flag
	Restart   bool   // a change needs a restart
}

// IsDefault reports whether nothing has set s.
func (s Setting) IsDefault() bool { return s.Origin == "default" }

// CA is a certificate that signs, or will sign, those of intercepted hosts.
type CA struct {
	Name, SHA256 string
	From         time.Time // when it begins to sign; zero if it does
	End          time.Time
}

// settingsPage is the data of settings.html.
type settingsPage struct {
	Settings
	All           bool // with the keys that have their default
	State         admin.State
	Now           time.Time
	Interventions []policy.Intervention
	Exemptions    []admin.Exemption
	Version       string
}

// settings shows the configuration in force, and what operators have ordered.
func (h *Handler) settings(v *view) error {
	p := settingsPage{All: v.URL.Query().Get("keys") == "all", State: h.options.State(), Now: v.now, Version: h.options.Version}
	if h.options.Settings != nil {
		p.Settings = h.options.Settings()
	}
	if h.options.Interventions != nil {
		p.Interventions = h.options.Interventions.Interventions()
	}
	if h.options.Exemptions != nil {
		p.Exemptions = h.options.Exemptions.All()
	}
	return v.render("Settings", "settings.html", p)
}
