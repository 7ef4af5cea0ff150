package rules_test

import (
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/rules"
)

const chrome = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36"

func TestProductToken(t *testing.T) {
	tests := []struct{ header, want string }{
		{"NewsBot", "NewsBot"},
		{"NewsBot/1.0 (+x)", "NewsBot"},
		{"NewsBot/1.0 (+https://news.example/bot) Library/2.0", "NewsBot"},
		{"News_Bot-Images/1.0", "News_Bot-Images"},
		{"Foobot Version 1.0", "Foobot"},
		{"MJ12bot/v1.4.8", "MJ12bot"},
		{"008/0.83", "008"},
		{"python-requests/2.31.0", "python-requests"},
		{"curl/8.5.0", "curl"},
		{"Scrapy/2.11.0 (+https://scrapy.org)", "Scrapy"},
		{"Mozilla/5.0 (compatible; ExampleBot/0.1; https://www.example.com/bot.html)", "ExampleBot"},
		{"Mozilla/5.0 (compatible; AdsBot-Google-Mobile; +http://www.google.com/mobile/adsbot.html)", "AdsBot-Google-Mobile"},
		{"Mozilla/5.0 (X11; Device) Frame/1 (compatible; NewsBot)", "NewsBot"},
		{"Mozilla/5.0 (compatible; MSIE 9.0; Tablet PC) NewsBot/1", "NewsBot"},
		{"Mozilla/5.0 (compatible; Yahoo! Slurp; http://help.example/slurp)", "Yahoo"},
		{"Mozilla/5.0 (Linux; Android 6.0.1; Nexus 5X Build/MMB29P) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Mobile Safari/537.36 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", "Googlebot"},
		{"Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; +https://openai.com/gptbot)", "GPTBot"},
		{"Mozilla/5.0 (NewsBot/2.1; +https://news.example)", "NewsBot"},
		{"Mozilla/5.0 (compatible; Львів-bot/1.1)", "Львів-bot"},
		{"Googlebot-News (Googlebot)", "Googlebot-News"},
		{"DuckDuckBot/1.0; (+http://duckduckgo.example)", "DuckDuckBot"},
		{"Mozilla/5.0 info@news.example NewsBot/1", "NewsBot"},
		{"Mozilla/5.0 (NewsBot/2) Library/1", "Library"},
		{"Mozilla/5.0 (x; (y) NewsBot/1) Library/2", "Library"},
		{") Library/1 (NewsBot/1)", "Library"},
		{"(x)) Library/1 (NewsBot/1)", "Library"},
		{"Mozilla/5.0 (x) NewsBot of all", "NewsBot"},
		{"Mozilla/5.0 (x NewsBot of all)", ""},
		{"Mozilla", "Mozilla"},
		{chrome, ""},
		{"Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:126.0) Gecko/20100101 Firefox/126.0", ""},
		{"Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Mobile/15E148 Safari/604.1", ""},
		{"+https://news.example/bot", ""},
		{"", ""},
		{" ", ""},
		{"((;;))", ""},
	}
	for _, tt := range tests {
		if got := rules.ProductToken(tt.header); got != tt.want {
			t.Errorf("ProductToken(%q) = %q, want %q", tt.header, got, tt.want)
		}
	}
}

func TestAgentToken(t *testing.T) {
	const robots = "User-agent: Googlebot\nUser-agent: Googlebot-News\nUser-agent: MJ12bot\nUser-agent: slurp\n" +
		"User-agent: Chrome\nUser-agent: ÉTÉbot\nUser-agent: sogou web spider\nUser-agent: bot\nDisallow: /\n"
	tests := []struct{ name, agent, want string }{
		{"2.2.1/token", "GoogleBot", "googlebot"},
		{"2.2.1/token with version", "Googlebot/2.1 (+http://www.google.com/bot.html)", "googlebot"},
		{"2.2.1/the longest that is named", "Googlebot-News (Googlebot)", "googlebot-news"},
		{"2.2.1/wherever it stands", "Googlebot (compatible; Googlebot-News)", "googlebot-news"},
		{"2.2.1/one that is not named is passed over", "Googlebot-Image (Googlebot)", "googlebot"},
		{"2.2.1/in a comment", "Mozilla/5.0 (compatible; MJ12bot/v1.4.8; http://mj12bot.com/)", "mj12bot"},
		{"2.2.1/before a semicolon", "Mozilla/5.0 (compatible; Yahoo! Slurp; http://help.example)", "slurp"},
		{"2.2.1/several words", "Sogou web spider/4.0(+http://www.sogou.example)", "sogou"},
		{"2.2.1/other scripts in any case", "étébot/2", "étébot"},
		{"2.2.1/part of a token", "Googlebots", "*"},
		{"2.2.1/a browser is no crawler", chrome, "*"},
		{"2.2.1/but its name can be asked for", "chrome", "chrome"},
		{"2.2.1/a host is no token", "X/1 (+https://bot/info)", "*"},
		{"2.2.1/everyone", "*", "*"},
		{"2.2.1/no header", "", "*"},
		{"2.2.1/longer than any token", strings.Repeat("x", 1000), "*"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			set := rules.Parse([]byte(robots+"User-agent: *\nDisallow: /\n"), rules.Options{})
			if got := set.Agent(tt.agent).Token(); got != tt.want {
				t.Errorf("Agent(%q).Token() = %q, want %q", tt.agent, got, tt.want)
			}
			set = rules.Parse([]byte(robots), rules.Options{})
			if got := set.Agent(tt.agent).Token(); got != strings.TrimPrefix(tt.want, "*") {
				t.Errorf("without *: Agent(%q).Token() = %q, want %q", tt.agent, got, strings.TrimPrefix(tt.want, "*"))
			}
		})
	}
}
