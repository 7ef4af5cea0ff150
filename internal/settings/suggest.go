package settings

import "strings"

// Suggest returns the candidate that word was probably meant to be, or "". Candidates are in snake case. Other
// spellings of the same name (minTTL, min-ttl) count as equal; apart from that, Suggest accepts one edit in three
// letters.
func Suggest(word string, candidates []string) string {
	const longest = 64 // bounds the time for a word that is much longer than any key
	if len(word) > longest {
		return ""
	}
	word = snake(strings.ReplaceAll(word, "-", "_"))
	best, fewest := "", max(1, len(word)/3)+1
	for _, c := range candidates {
		if d := distance(word, c); d < fewest {
			best, fewest = c, d
		}
	}
	return best
}

// distance returns the optimal string alignment distance: the number of letters to add, drop, change, or swap with
// their neighbour to get from a to b.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(last[j]+1, row[j-1]+1, change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
