package proxy

import (
	"testing"

	"github.com/robotsproxy/robotsproxy/policy"
)

// Clients that are not listed are distinguished by their network, and others by their name.
func TestShare(t *testing.T) {
	listed := &Client{Client: policy.Client{Name: "news"}}
	for _, row := range []struct {
		client       *Client
		remote, want string
	}{
		{local, "127.0.0.1:4000", "127.0.0.1"},
		{local, "127.0.0.1:4001", "127.0.0.1"},
		{local, "127.0.0.2:4000", "127.0.0.2"},
		{local, "[::ffff:127.0.0.2]:4000", "127.0.0.2"},
		{local, "[2001:db8:1:2::3]:4000", "2001:db8:1:2::"},
		{local, "[2001:db8:1:2:ff::4%eth0]:4000", "2001:db8:1:2::"},
		{listed, "127.0.0.1:4000", "news"},
		{nil, "127.0.0.1:4000", ""},
	} {
		if got := row.client.share(row.remote); got != row.want {
			t.Errorf("share(%q) of %+v = %q, want %q", row.remote, row.client, got, row.want)
		}
	}
}
