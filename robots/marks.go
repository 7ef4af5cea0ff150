package robots

import (
	"fmt"
	"strings"
)

// Marks are what is worth knowing about how an answer came, beside its state. They are kept as the words of Marks.String.
type Marks uint8

const (
	WebPage          Marks = 1 << iota // "html": a web page in the place of the file, a bot wall or a "not found" with status 200
	Unauthorized                       // "unauthorized": 401 or 403
	TooManyRedirects                   // "too-many-redirects": counts as unavailable (section 2.3.1.2)
	RedirectLoop                       // "redirect-loop": counts as unavailable
	Downgraded                         // "downgraded": a redirect led from https to http
	RedirectRefused                    // "redirect-refused": a redirect led to a page of another host that may not be fetched; Err says why
)

// wall is what a bot wall answers with. In the place of a good copy it does not count at once.
const wall = WebPage | Unauthorized

var markWords = []string{"html", "unauthorized", "too-many-redirects", "redirect-loop", "downgraded", "redirect-refused"} // in the order of their bits

// String returns the words for m, with commas between them; it is empty where there are none.
func (m Marks) String() string {
	var words []string
	for i, word := range markWords {
		if m&(1<<i) != 0 {
			words = append(words, word)
		}
	}
	return strings.Join(words, ",")
}

// ParseMarks reads what Marks.String returned. A word that is none is an error.
func ParseMarks(s string) (m Marks, err error) {
	if s == "" {
		return 0, nil
	}
	for word := range strings.SplitSeq(s, ",") {
		bit, err := parseMark(word)
		if err != nil {
			return 0, err
		}
		m |= bit
	}
	return m, nil
}

func parseMark(word string) (Marks, error) {
	for i, known := range markWords {
		if word == known {
			return 1 << i, nil
		}
	}
	return 0, fmt.Errorf("robots: %q is no mark", word)
}
