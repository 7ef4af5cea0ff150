package fields

import (
	"strconv"
	"strings"
)

// AcceptWeight returns the largest weight in Accept, from 0 to 1, of a media type with kind in its name (RFC 9110
// section 12.5.1).
func AcceptWeight(accept []string, kind string) (most float64) {
	for _, v := range accept {
		for media := range strings.SplitSeq(strings.ToLower(v), ",") {
			name, parameters, _ := strings.Cut(media, ";")
			if strings.Contains(name, kind) {
				most = max(most, weight(parameters))
			}
		}
	}
	return most
}

// weight returns the q of a media type's parameters: 1 without one, and 0 if it is not a number.
func weight(parameters string) float64 {
	for parameter := range strings.SplitSeq(parameters, ";") {
		if name, value, _ := strings.Cut(strings.TrimSpace(parameter), "="); name == "q" {
			q, _ := strconv.ParseFloat(value, 64)
			return q
		}
	}
	return 1
}
