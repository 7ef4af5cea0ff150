package robots_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// toxin is a fault of a network, with the attributes that toxiproxy gives it.
type toxin struct {
	Type       string         `json:"type"`
	Stream     string         `json:"stream"`
	Attributes map[string]int `json:"attributes"`
}

// poisoned returns the address of a network on the way to upstream that has the faults.
func poisoned(t *testing.T, upstream string, toxins ...toxin) string {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	proxy := toxiproxy.NewProxy(server, "web", "127.0.0.1:0", upstream)
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		proxy.Toxics.ResetToxics(context.Background()) // or what waits in them would outlive the proxy
		proxy.Stop()
	})
	for i, fault := range toxins {
		text, err := json.Marshal(struct {
			Name string `json:"name"`
			toxin
		}{fmt.Sprint(i), fault})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(string(text))); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	return proxy.Listen
}

// TestToxicNetworks has the way to a sound origin be at fault.
func TestToxicNetworks(t *testing.T) {
	site := robotstest.New(t)
	site.SetRobots("", robotstest.Robots{Body: strings.Repeat("# "+strings.Repeat("-", 97)+"\n", 100) + file}) // 10 kB
	origin := fmt.Sprintf("127.0.0.1:%d", site.Port())
	down := func(kind string, attributes map[string]int) []toxin { return []toxin{{kind, "downstream", attributes}} }
	up := func(kind string, attributes map[string]int) []toxin { return []toxin{{kind, "upstream", attributes}} }
	const soon, hasty = ample, time.Second // how long the Fetcher waits
	for _, row := range []struct {
		name     string
		upstream string
		timeout  time.Duration
		toxins   []toxin
		want     string
	}{
		{"none", origin, soon, nil, "found 200 /open"},
		{"slow", origin, soon, down("latency", map[string]int{"latency": 50, "jitter": 40}), "found 200 /open"},
		{"slow on the way there", origin, soon, up("latency", map[string]int{"latency": 50}), "found 200 /open"},
		{"too slow", origin, hasty, down("latency", map[string]int{"latency": 60_000}), "unreachable 0 http_response_timeout"},
		{"narrow", origin, soon, down("bandwidth", map[string]int{"rate": 100}), "found 200 /open"},
		{"too narrow", origin, hasty, down("bandwidth", map[string]int{"rate": 1}), "unreachable 0 http_response_timeout"},
		{"in small pieces", origin, soon, down("slicer", map[string]int{"average_size": 500, "size_variation": 100, "delay": 10}), "found 200 /open"},
		{"closed late", origin, soon, down("slow_close", map[string]int{"delay": 100}), "found 200 /open"},
		{"reset at once", origin, soon, down("reset_peer", map[string]int{"timeout": 0}), "unreachable 0 connection_terminated"},
		{"reset on the way there", origin, soon, up("reset_peer", map[string]int{"timeout": 0}), "unreachable 0 connection_terminated"},
		{"reset later", origin, soon, down("reset_peer", map[string]int{"timeout": 50}), "unreachable 0 connection_terminated"},
		{"nothing comes through", origin, hasty, down("timeout", map[string]int{"timeout": 0}), "unreachable 0 http_response_timeout"},
		{"nothing comes through, and it is closed", origin, soon, down("timeout", map[string]int{"timeout": 50}), "unreachable 0 connection_terminated"},
		{"closed in the head", origin, soon, down("limit_data", map[string]int{"bytes": 20}), "unreachable 0 http_protocol_error"}, // net/http sees a bad field
		{"closed in the body", origin, soon, down("limit_data", map[string]int{"bytes": 5000}), "unreachable 0 http_response_incomplete"},
		{"nothing behind it", robotstest.Refusing(t), soon, nil, "unreachable 0 connection_terminated"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			transport := failing(t, site)
			f := newFetcherOver(t, transport, func(o *fetch.Options) { o.Timeout = row.timeout })
			snap := fetched(t, f, "http://"+poisoned(t, row.upstream, row.toxins...))
			if got := outline(snap); got != row.want {
				t.Errorf("Fetch = %s, want %s; the error: %v", got, row.want, snap.Err)
			}
		})
	}
}
