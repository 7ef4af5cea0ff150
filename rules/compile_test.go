package rules

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestBlocks checks that groups share a block if and only if they have the same agents, and that a token has each of
// its blocks once. The cost of merging groups (2.2.1) depends on it; verdicts do not.
func TestBlocks(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 21))
	for range 300 {
		var body strings.Builder
		var names []string // of each group, its agents in order
		for range 1 + random.IntN(12) {
			var agents []string
			for range random.IntN(4) {
				agents = append(agents, string(rune('a'+random.IntN(3))))
			}
			body.WriteString("User-agent: !\n")
			slices.Sort(agents)
			agents = slices.Compact(agents)
			for _, agent := range agents {
				fmt.Fprintf(&body, "User-agent: %s\n", agent)
			}
			body.WriteString("Disallow: /\n")
			names = append(names, strings.Join(agents, ","))
		}
		checkBlocks(t, body.String(), names)
	}
}

func checkBlocks(t *testing.T, body string, names []string) {
	t.Helper()
	p := new(parser)
	p.reset(DialectRFC9309, "")
	lines := lineReader{rest: []byte(body)}
	for lines.next() {
		p.line(lines.number, lines.line)
	}
	set := p.compile()
	blockOf, count := set.partition(p.agents)
	if len(blockOf) != len(names) {
		t.Fatalf("%d groups, want %d in\n%s", len(blockOf), len(names), body)
	}
	for i := range names {
		for j := range names {
			if same := names[i] == names[j]; same != (blockOf[i] == blockOf[j]) || names[i] == "" && blockOf[i] != 0 {
				t.Fatalf("groups %d (%s) and %d (%s) have blocks %d and %d in\n%s", i, names[i], j, names[j], blockOf[i], blockOf[j], body)
			}
		}
	}
	if most := int(slices.Max(blockOf)) + 1; count != max(most, 1) {
		t.Fatalf("%d blocks, want %d in\n%s", count, most, body)
	}
	for i := range len(set.tokens) - 1 {
		held := slices.Clone(set.held[set.tokens[i].held:set.tokens[i+1].held])
		slices.Sort(held)
		if len(held) == 0 || len(slices.Compact(slices.Clone(held))) != len(held) {
			t.Fatalf("token %q is held to the blocks %v in\n%s", set.text(set.tokens[i].name), held, body)
		}
	}
}
