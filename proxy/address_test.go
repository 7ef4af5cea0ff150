package proxy

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/egress"
	"github.com/robotsproxy/robotsproxy/internal/dnstest"
	"github.com/robotsproxy/robotsproxy/policy"
)

// newAddressRig returns a rig that paces by address, with a Crawl-delay of 1000 s for all hosts and no patience, and
// the server that resolves their names.
func newAddressRig(t *testing.T, change func(*Options)) (*rig, *dnstest.Server) {
	t.Helper()
	names := dnstest.New(t)
	r := newRig(t, func(o *Options) {
		o.Guard = egress.New(egress.Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, Resolver: names.Resolver()})
		transport := egress.NewTransport(egress.TransportOptions{Guard: o.Guard})
		t.Cleanup(transport.CloseIdleConnections)
		o.Transport, o.Pace.Addr = transport, egress.NewAddresses(o.Guard).Of
		o.Snapshots, o.MaxWait = fixed("User-agent: *\nDisallow:\nCrawl-delay: 1000\n"), -1
		if change != nil {
			change(o)
		}
	})
	return r, names
}

// ask returns the status and the reason of a response to a GET of a page of host.
func (r *rig) ask(host string) string {
	r.t.Helper()
	resp, _ := r.get(r.client(true), fmt.Sprintf("http://%s/page/1", net.JoinHostPort(host, strconv.Itoa(r.site.Port()))))
	return fmt.Sprintf("%d %s", resp.StatusCode, resp.Header.Get("Robotsproxy-Reason"))
}

// TestHostsAtOneAddressShareALane paces by address: two names of one address share a lane, and so does the address
// itself.
func TestHostsAtOneAddressShareALane(t *testing.T) {
	r, names := newAddressRig(t, nil)
	names.Set("a.example", []string{"127.0.0.1"})
	names.Set("b.example", []string{"127.0.0.1"})
	for _, row := range []struct{ host, want string }{{"a.example", "200 "}, {"b.example", "429 pace"}, {"127.0.0.1", "429 pace"}} {
		if got := r.ask(row.host); got != row.want {
			t.Errorf("%s: %s, want %s", row.host, got, row.want)
		}
	}
	if got := r.site.Requests(); len(got) != 1 {
		t.Errorf("the site got %v, want one request", got)
	}
}

// TestHostsAtOneAddressAreReported reckons by address in mode report.
func TestHostsAtOneAddressAreReported(t *testing.T) {
	r, names := newAddressRig(t, nil)
	r.change(func(o *Options) { o.Policy = r.newPolicy(policy.Options{Mode: policy.Report}) })
	names.Set("a.example", []string{"127.0.0.1"})
	names.Set("b.example", []string{"127.0.0.1"})
	r.ask("a.example")
	if got := r.ask("b.example"); got != "200 " {
		t.Errorf("b.example: %s, want 200", got)
	}
	if rec := r.last(2); rec.Decision != policy.WouldThrottle {
		t.Errorf("the second request is recorded as %s, want %s", rec.Decision, policy.WouldThrottle)
	}
}

// TestAddressOfTheLaneIsDialled has a name change its address after the look-up for the lane: the request goes to the
// address by which it was paced, on both ways to an origin.
func TestAddressOfTheLaneIsDialled(t *testing.T) {
	for _, raw := range []bool{false, true} {
		t.Run(fmt.Sprint("raw tunnel ", raw), func(t *testing.T) {
			r, names := newAddressRig(t, nil)
			names.Set("a.example", []string{"127.0.0.1"}, []string{"127.0.0.2"}) // the second is prohibited
			if raw {
				r.change(func(o *Options) { o.Policy = r.newPolicy(policy.Options{Interception: policy.Tunnel}) })
				resp, conn, _ := r.connect(r.site.Port(), "", "")
				conn.Close()
				if resp.StatusCode != 200 {
					t.Errorf("CONNECT is answered %s, want 200", resp.Status)
				}
			} else if got := r.ask("a.example"); got != "200 " {
				t.Errorf("a.example: %s, want 200", got)
			}
			if rec := r.last(1); rec.UpstreamAddr != fmt.Sprintf("127.0.0.1:%d", r.site.Port()) {
				t.Errorf("the record has the address %s, want 127.0.0.1", rec.UpstreamAddr)
			}
			if n := names.Questions("a.example"); n != 1 {
				t.Errorf("the name was resolved %d times, want once", n)
			}
		})
	}
}

// TestNameWithTwoAddresses has a name whose first address is prohibited.
func TestNameWithTwoAddresses(t *testing.T) {
	r, names := newAddressRig(t, nil)
	names.Set("a.example", []string{"127.0.0.2", "127.0.0.1"})
	for i, want := range []string{"200 ", "429 pace"} {
		if got := r.ask("a.example"); got != want {
			t.Errorf("request %d: %s, want %s", i, got, want)
		}
	}
}

// TestNameWithoutAPermittedAddress is refused as if the dial had failed, and takes no place in a lane.
func TestNameWithoutAPermittedAddress(t *testing.T) {
	r, names := newAddressRig(t, nil)
	names.Set("prohibited.example", []string{"127.0.0.2"})
	for host, want := range map[string]string{"prohibited.example": "403 egress", "unknown.example": "502 upstream"} {
		if got := r.ask(host); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
	if got := r.limiter.Stats(); got.Granted != 0 {
		t.Errorf("%d places were taken, want 0", got.Granted)
	}
}

// TestStopOfOneHostAtAnAddress stops one of two hosts at an address.
func TestStopOfOneHostAtAnAddress(t *testing.T) {
	r, names := newAddressRig(t, nil)
	names.Set("a.example", []string{"127.0.0.1"})
	names.Set("b.example", []string{"127.0.0.1"})
	r.stop(policy.Options{}, time.Time{})
	for _, row := range []struct{ host, want string }{{"a.example", "503 stopped"}, {"b.example", "200 "}} {
		if got := r.ask(row.host); got != row.want {
			t.Errorf("%s: %s, want %s", row.host, got, row.want)
		}
	}
}

// TestPauseOfAnAddress has one of two hosts at an address push back: both are paused.
func TestPauseOfAnAddress(t *testing.T) {
	r, names := newAddressRig(t, func(o *Options) { o.Snapshots = fixed("") })
	r.site.SetPage("a.example", "/page/1", answering(http.StatusServiceUnavailable, "Retry-After", "600"))
	names.Set("a.example", []string{"127.0.0.1"})
	names.Set("b.example", []string{"127.0.0.1"})
	r.ask("a.example")
	if got := r.ask("b.example"); got != "429 backoff" {
		t.Errorf("b.example: %s, want 429 backoff", got)
	}
}
