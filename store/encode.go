package store

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/textproto"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// micros returns t as stored in the tables, in microseconds. The zero time is 0.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func timeOf(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}

// isomorphic returns a URL from a Location field, which may contain any bytes, as text for JSON. It writes each byte as
// the code point of its number, which the Infra standard calls "isomorphic decode". ASCII is unchanged.
func isomorphic(octets string) string {
	if strings.IndexFunc(octets, notASCII) < 0 {
		return octets
	}
	points := make([]rune, len(octets))
	for i := range len(octets) {
		points[i] = rune(octets[i])
	}
	return string(points)
}

// octets is the inverse of isomorphic.
func octets(text string) string {
	if strings.IndexFunc(text, notASCII) < 0 {
		return text
	}
	back := make([]byte, 0, len(text))
	for _, point := range text {
		back = append(back, byte(point))
	}
	return string(back)
}

func notASCII(r rune) bool { return r >= utf8.RuneSelf }

func listText(list []string) string {
	if len(list) == 0 {
		return "[]"
	}
	text, _ := json.Marshal(each(list, isomorphic)) // no list of strings is an error
	return string(text)
}

func parseList(text string) ([]string, error) {
	if text == "" || text == "[]" {
		return nil, nil
	}
	var list []string
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("%w: a list of redirects: %w", errDamaged, err)
	}
	return each(list, octets), nil
}

func each[T any](list []T, f func(T) T) []T {
	out := make([]T, len(list))
	for i, s := range list {
		out[i] = f(s)
	}
	return out
}

// checkFields returns an error unless lines are the lines of a header.
func checkFields(lines string) error {
	_, err := textproto.NewReader(bufio.NewReader(strings.NewReader(lines + "\r\n"))).ReadMIMEHeader()
	if err != nil {
		return fmt.Errorf("%w: header fields: %w", errDamaged, err)
	}
	return nil
}

func parseFlags(words string) (fetch.Flags, error) {
	flags, err := fetch.ParseFlags(words)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return flags, nil
}
