package config

import (
	"strings"
	"testing"
)

func TestRedisAddresses(t *testing.T) {
	for _, url := range []string{
		"", "redis://h", "rediss://user:pass@h:6379/2", "unix:///run/redis.sock?db=1",
		"redis://h:26379/0?master_name=main&addr=g:26379", "redis://h?addr=g:6379&addr=i:6379",
	} {
		cfg, _, faults := loadText(t, "redis: {url: \""+url+"\"}\n", Options{})
		if faults != "" || cfg.Redis.URL != url {
			t.Errorf("redis.url %q: %s", url, faults)
		}
	}
}

// An address that is refused, or shown, does not give away its passwords.
func TestRedisPasswordsAreNotShown(t *testing.T) {
	const secret = "hunter2"
	for _, url := range []string{"http://u:" + secret + "@h", "redis://u:" + secret + "@h:port", "u:" + secret + "@h:6379", "redis://u:" + secret + "%zz@h"} {
		_, _, faults := loadText(t, "redis: {url: \""+url+"\"}\n", Options{})
		if !strings.Contains(faults, "redis.url: found something else") || strings.Contains(faults, secret) {
			t.Errorf("redis.url %q: %s", url, faults)
		}
	}
	cfg, _, faults := loadText(t, "redis: {url: \"redis://u:"+secret+"@h/0?master_name=m&password="+secret+"\"}\n", Options{})
	if faults != "" {
		t.Fatal(faults)
	}
	for _, v := range cfg.Values() {
		if strings.Contains(v.Text, secret) {
			t.Errorf("%s is shown as %s", v.Key, v.Text)
		}
	}
}

func TestRedisFaults(t *testing.T) {
	for text, want := range map[string]string{
		"redis: {url: \"redis://h\", url_file: /etc/hosts}\n": "redis.url_file: found one beside redis.url",
		"redis: {url_file: nowhere}\n":                        "redis.url_file: expected a file that can be read",
		"redis: {prefix: \"a{b\"}\n":                          "redis.prefix: found \"a{b\", expected a prefix of keys",
		"redis: {on_down: hope}\n":                            "redis.on_down: found \"hope\", expected spread, refuse or local",
	} {
		if _, _, faults := loadText(t, text, Options{}); !strings.Contains(faults, want) {
			t.Errorf("%s: %s, want %s", text, faults, want)
		}
	}
}
