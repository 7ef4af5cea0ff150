package main

import (
	"context"
	"net/http"
	"time"

	"github.com/robotsproxy/robotsproxy/admin/dashboard"
	"github.com/robotsproxy/robotsproxy/certs"
	"github.com/robotsproxy/robotsproxy/onboarding"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
)

// newDashboard returns the pages of the admin listener.
func (s *service) newDashboard(token string) (*dashboard.Handler, error) {
	return dashboard.New(dashboard.Options{
		Token: token, Version: buildVersion(), Records: s.components.kept, Live: &s.live, State: s.state,
		Store: string(s.cfg.Audit.Store), Interventions: s.components.interventions, Exemptions: s.components.exemptions,
		Files: s.components.files, History: s.components.history(),
		Proxy: s.proxyFor, Lane: judge{s.components}.lane, Judge: judge{s.components}, Settings: s.settings,
	})
}

// proxyFor returns the URL of the proxy for the machine that sent r to the admin listener.
func (s *service) proxyFor(r *http.Request) (scheme, address string) {
	scheme = "http"
	if hasTLS(s.cfg) {
		scheme = "https"
	}
	return scheme, onboarding.ProxyAddress(s.proxyListener.Addr())(r)
}

// judge judges as the components do.
type judge struct{ *components }

func (j judge) Policy() *policy.Policy { return j.control.policy() }

func (j judge) Snapshot(ctx context.Context, o origin.Origin) (*robots.Snapshot, error) {
	return j.files.Snapshot(ctx, o, robots.Asker{})
}

// Wait predicts the wait of a request to host: the pause of its lane, and the Delays of the requests that wait already.
func (j judge) Wait(host string, delay time.Duration) time.Duration {
	key, ok := j.lastLane(j.control.config(), host)
	if !ok {
		return 0
	}
	lane, ok := j.limiter.Peek(key)
	if !ok {
		return 0
	}
	now := time.Now()
	delay = max(delay, lane.Floor)
	wait := time.Duration(lane.Waiting+lane.InFlight) * (delay + lane.Took)
	if lane.InFlight == 0 && !lane.Last.IsZero() {
		wait += max(0, lane.Last.Add(delay).Sub(now))
	}
	return max(wait, lane.PausedUntil.Sub(now)).Truncate(100 * time.Millisecond)
}

// lane returns the queue of a host.
func (j judge) lane(host string) dashboard.Lane {
	key, ok := j.lastLane(j.control.config(), host)
	if !ok {
		return dashboard.Lane{}
	}
	v, _ := j.limiter.Peek(key)
	floor := max(v.Floor, j.control.policy().Floor(host, time.Now()))
	return dashboard.Lane{Waiting: v.Waiting, InFlight: v.InFlight, Floor: floor, PausedUntil: v.PausedUntil, PauseSource: string(v.PauseSource)}
}

// settings returns how the proxy runs.
func (s *service) settings() dashboard.Settings {
	all := dashboard.Settings{File: s.configFile}
	for _, v := range s.components.control.config().Values() {
		all.Values = append(all.Values, dashboard.Setting{Key: v.Key, Text: v.Text, Origin: v.Origin.String(), Restart: v.Restart})
	}
	if last := s.last.Load(); last != nil {
		all.Reloaded, all.Changes = last.at, adminChanges(last.changes)
		if last.err != nil {
			all.Fault = last.err.Error()
		}
	}
	signing, err := s.components.ca.CAs()
	if err != nil {
		s.log.Warn("the dashboard shows no CA", "err", err)
	}
	for _, c := range signing {
		if c.Role != certs.Previous {
			all.CAs = append(all.CAs, dashboard.CA{
				Name: c.Certificate.Subject.CommonName, SHA256: certs.Fingerprint(c.Certificate), From: c.From, End: c.Certificate.NotAfter,
			})
		}
	}
	return all
}
