package audit

import "strings"

// hideJSON hides the values of credentials in JSON at one depth of encoding: {"token":"s3cr3t"}. Quotes may be single,
// and escaped in a JSON text that is itself a string of JSON.
func hideJSON(chars []char, depth uint8) {
	opened := -1 // the last quote
	for i := 0; i < len(chars); i++ {
		if !isQuote(chars[i], depth) {
			continue
		}
		value := i + 1 + spaces(chars[i+1:])
		if opened < 0 || chars[opened].c != chars[i].c || value == len(chars) || chars[value].c != ':' ||
			!isCredential(strings.TrimRight(text(chars[opened+1:i]), `\`)) {
			opened = i
			continue
		}
		value += 1 + spaces(chars[value+1:])
		end := value + valueLength(chars[value:], depth)
		hide(chars[value:end])
		opened, i = -1, end-1
	}
}

func isQuote(c char, depth uint8) bool { return (c.c == '"' || c.c == '\'') && c.depth <= depth }

func spaces(chars []char) (n int) {
	for n < len(chars) && strings.IndexByte(" \t\r\n+", chars[n].c) >= 0 {
		n++
	}
	return n
}

// valueLength returns the length of the JSON value that chars begins with, with all that stands between a string and the
// next value. A value without an end has all characters.
func valueLength(chars []char, depth uint8) int {
	begin, escapes := 0, backslashes(chars)
	if escapes < len(chars) && isQuote(chars[escapes], depth) {
		begin = stringLength(chars, escapes)
	}
	open := 0
	for i, c := range chars[begin:] {
		switch c.c {
		case '[', '{':
			open++
		case ']', '}':
			open--
		}
		if open < 0 || open == 0 && strings.IndexByte(",&", c.c) >= 0 {
			return begin + i
		}
	}
	return len(chars)
}

// stringLength returns the length of the string that chars begins with, whose quotes are escaped by some backslashes.
func stringLength(chars []char, escapes int) int {
	quote := chars[escapes].c
	for i := escapes + 1; i < len(chars); i++ {
		n := backslashes(chars[i:])
		if i += n; i < len(chars) && chars[i].c == quote && n <= escapes {
			return i + 1
		}
	}
	return len(chars)
}

func backslashes(chars []char) (n int) {
	for n < len(chars) && chars[n].c == '\\' {
		n++
	}
	return n
}
