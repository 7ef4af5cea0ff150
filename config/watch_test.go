package config

import (
	"strings"
	"testing"
)

// A URL of a webhook that is refused, or shown, does not give away its path.
func TestWebhooks(t *testing.T) {
	const secret = "hunter2"
	for _, url := range []string{"http://hooks.example/" + secret, "hooks.example/" + secret, "ftp://127.0.0.1/" + secret} {
		_, _, faults := loadText(t, "watch: {webhook: \""+url+"\"}\n", Options{})
		if !strings.Contains(faults, "watch.webhook: found something else") || strings.Contains(faults, secret) {
			t.Errorf("watch.webhook %q: %s", url, faults)
		}
	}
	for url, shown := range map[string]string{
		"": "", "http://127.0.0.1:8080/" + secret: "http://127.0.0.1:8080/xxxxx",
		"https://u:" + secret + "@hooks.example/x?y=" + secret: "https://hooks.example/xxxxx",
	} {
		cfg, _, faults := loadText(t, "watch: {webhook: \""+url+"\"}\n", Options{})
		if faults != "" || cfg.Watch.Webhook != url {
			t.Errorf("watch.webhook %q: %s", url, faults)
			continue
		}
		for _, v := range cfg.Values() {
			if v.Key == "watch.webhook" && v.Text != shown {
				t.Errorf("%s is shown as %s, want %s", url, v.Text, shown)
			}
		}
	}
	_, _, faults := loadText(t, "watch: {webhook: \"https://h/\", webhook_file: /etc/hosts}\n", Options{})
	if !strings.Contains(faults, "watch.webhook_file: found one beside watch.webhook") {
		t.Error(faults)
	}
}
