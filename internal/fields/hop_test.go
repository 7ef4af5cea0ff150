package fields

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCleanHeader(t *testing.T) {
	for _, row := range []struct {
		name      string
		in        http.Header
		webSocket bool
		want      http.Header
	}{
		{
			"9110 7.6.1/named in Connection",
			http.Header{"Connection": {"close, X-Secret", "x-more"}, "X-Secret": {"1"}, "X-More": {"2"}, "Accept": {"*/*"}},
			false,
			http.Header{"Accept": {"*/*"}},
		},
		{
			"9110 7.6.1/always",
			http.Header{"Keep-Alive": {"timeout=5"}, "Proxy-Connection": {"keep-alive"}, "Te": {"trailers, gzip"}, "Transfer-Encoding": {"x"}, "Upgrade": {"h2c"}, "Proxy-Authorization": {"Basic x"}},
			false,
			http.Header{},
		},
		{
			"Connection may not remove what belongs to the message",
			http.Header{"Connection": {"Host, Content-Length, Via"}, "Content-Length": {"3"}, "Via": {"1.1 x"}},
			false,
			http.Header{"Content-Length": {"3"}, "Via": {"1.1 x"}},
		},
		{
			"6455 4/WebSocket is asked for again",
			http.Header{"Connection": {"keep-alive, Upgrade"}, "Upgrade": {"WebSocket"}, "Sec-Websocket-Key": {"x"}},
			true,
			http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Key": {"x"}},
		},
		{
			"ours are removed, named in Connection or not",
			http.Header{"Connection": {"Robotsproxy-Rule"}, "Robotsproxy-Rule": {"x"}, "Robotsproxy-Reason": {"robots"}, "Robotsproxy": {"x"}},
			false,
			http.Header{"Robotsproxy": {"x"}},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			CleanHeader(row.in, row.webSocket)
			if diff := cmp.Diff(row.want, row.in); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
