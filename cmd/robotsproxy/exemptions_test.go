package main

import (
	"log/slog"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/redistest"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
)

// Exemptions that are added and removed at once, beside a reload, all take effect, and the store agrees with the policy.
func TestExemptionsAtOnce(t *testing.T) {
	cfg := config.Default()
	cfg.DataDir = t.TempDir()
	c, err := newComponents(&cfg, slog.New(slog.DiscardHandler), observer{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	x := c.exemptions
	go x.reportExpired(t.Context())
	deny := policy.Exemption{Host: "a.example", Effect: policy.EffectDeny, Reason: "r", Owner: "o"}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			soon := deny
			soon.Until = time.Now().Add(time.Millisecond)
			for _, e := range []policy.Exemption{deny, soon} {
				added, err := x.Add(t.Context(), e)
				if err != nil {
					t.Error(err)
					return
				}
				x.All()
				if removed, found, err := x.Remove(t.Context(), added.ID); err != nil || !found || removed.ID != added.ID {
					t.Errorf("Remove(%d) = %+v, %t, %v", added.ID, removed, found, err)
				}
			}
			if _, err := x.Add(t.Context(), deny); err != nil {
				t.Error(err)
			}
		})
	}
	all.Go(func() {
		next := cfg
		next.Mode = policy.Report
		if _, err := c.reload(&next); err != nil {
			t.Error(err)
		}
	})
	all.Wait()
	stored, err := c.state.Exemptions(t.Context())
	if err != nil || len(stored) != 8 || len(x.All()) != 8 {
		t.Fatalf("%d exemptions are stored, and %d in force; %v; want 8", len(stored), len(x.All()), err)
	}
	o, err := origin.Parse("http://a.example")
	if err != nil {
		t.Fatal(err)
	}
	request := policy.Request{Origin: o, Target: "/"}
	if _, denied := c.control.policy().Denied(request, time.Now()); !denied {
		t.Error("the policy does not have the exemptions")
	}
	for _, e := range stored {
		if _, _, err := x.Remove(t.Context(), e.ID); err != nil {
			t.Error(err)
		}
	}
	if _, denied := c.control.policy().Denied(request, time.Now()); denied {
		t.Error("the policy has exemptions that were removed")
	}
}

// An exemption that is added concerns one instance, and the command says so.
func TestExemptionOfOneInstance(t *testing.T) {
	f := newFleet(t, 2, redisConfig(redistest.Start(t), "spread"))
	add := func(s *server) string {
		t.Helper()
		cmd := exec.Command(binaryPath, "exempt", "add", "a.example/page/2", "--effect", "deny", "--reason", "r", "--owner", "o",
			"--data-dir", s.dir, "--admin", "http://"+s.admin)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	settle(t, "the instances know each other", func() bool {
		return strings.Contains(add(f.instances[0]), "That is so on 1 of 2 instances: call each of the others with --admin URL.\n")
	})
	for i, want := range []int{http.StatusForbidden, http.StatusOK} {
		if resp := f.get(f.through(i), "a.example", "/page/2"); resp.StatusCode != want {
			t.Errorf("instance %d answers %s, want %d", i, resp.Status, want)
		}
	}
}
