package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/robotsproxy/robotsproxy/rules"
)

func TestUsesOf(t *testing.T) {
	const robots = "Content-Signal: search=no\nUser-agent: a\nContent-Signal: search=yes, ai-train=no # since 2025\nContent-Usage: train-ai=n\n" +
		"Content-Usage:\t/free/\tsearch=y\nContent-Usage: /free/ train-ai=y\nContent-Signal: /f ai-train=yes\nAllow: /\nUser-agent: b\nDisallow: /x\n"
	for _, tt := range []struct{ agent, target, want string }{
		{"a", "/", "4 train-ai=n false; 3 search=yes, ai-train=no true; "},
		{"a", "/free/x", "5 search=y false; 6 train-ai=y false; 7 ai-train=yes true; "},
		{"a", "/f%72ee/x", "5 search=y false; 6 train-ai=y false; 7 ai-train=yes true; "},
		{"b", "/", ""},
		{"c", "/", ""},
	} {
		lines, ok := rules.Parse([]byte(robots), rules.Options{}).Agent(tt.agent).UsesOf(tt.target)
		got := ""
		for _, l := range lines {
			got += fmt.Sprintf("%d %s %t; ", l.Line, l.Preferences, l.Signal)
			if l.Group.Line != 2 || strings.Contains(l.Rule, "#") {
				t.Errorf("line %d is %q in the group of line %d", l.Line, l.Rule, l.Group.Line)
			}
		}
		if got != tt.want || !ok {
			t.Errorf("Agent(%q).UsesOf(%q) = %s%t, want %strue", tt.agent, tt.target, got, ok, tt.want)
		}
	}
}

func TestManyUses(t *testing.T) {
	body := "User-agent: *\n" + strings.Repeat("Content-Signal: search=yes\n", 1000)
	lines, ok := rules.Parse([]byte(body), rules.Options{}).Agent("a").UsesOf("/")
	if len(lines) != 16 || !ok {
		t.Errorf("%d lines, %t; want the first 16", len(lines), ok)
	}
	costly := "User-agent: *\n" + strings.Repeat("Content-Usage: /"+strings.Repeat("*a", 100)+"*b search=y\n", 2000)
	agent := rules.Parse([]byte(costly), rules.Options{}).Agent("a")
	if _, ok := agent.UsesOf("/" + strings.Repeat("a", 60<<10)); ok {
		t.Error("the look-up is not given up")
	}
}

func TestLicenses(t *testing.T) {
	const robots = "license: https://a.example/1.xml\nUser-agent: *\nLicense:\nDisallow: /x\nLICENSE : https://a.example/2.xml # new\n"
	got := rules.Parse([]byte(robots), rules.Options{}).Licenses()
	if want := []string{"https://a.example/1.xml", "https://a.example/2.xml"}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("Licenses() = %q, want %q", got, want)
	}
}
