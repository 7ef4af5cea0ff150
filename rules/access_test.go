package rules_test

import (
	"testing"

	"github.com/robotsproxy/robotsproxy/rules"
)

// TestAccess checks the meaning of statuses at the limits of their classes. The columns are in the order of
// rules.Dialects: "-" is none, "+" all, "r" the rules, "?" unknown.
func TestAccess(t *testing.T) {
	for status, want := range map[int]string{
		199: "+++++??",
		200: "rrrrrrr",
		299: "rrrrrrr",
		300: "+++++??",
		400: "+++++??",
		401: "++--+--",
		403: "++--+--",
		404: "+++++++",
		410: "+++++??",
		428: "+++++??",
		429: "--+++??",
		430: "+++++??",
		499: "+++++??",
		500: "--+++??",
		503: "--+++??",
	} {
		got := ""
		for _, d := range rules.Dialects() {
			got += map[rules.Access]string{
				rules.AccessNone: "-", rules.AccessAll: "+", rules.AccessRules: "r", rules.AccessUnknown: "?",
			}[d.Access(status)]
		}
		if got != want {
			t.Errorf("Access(%d) is %s, want %s in %v", status, got, want, rules.Dialects())
		}
	}
}
