package audit

import (
	"slices"
	"strings"
)

// schemes are words before credentials, as in Authorization (RFC 9110 section 11.4).
var schemes = []string{"bearer", "basic", "token", "apikey"}

// longToken is the length of a word that is a token after a scheme whatever its characters are.
const longToken = 16

// tokenBegin begins each JSON Web Token (RFC 7519): it is "{\"" in base64.
const tokenBegin = "eyJ"

// hideTokens hides the tokens in a path or a query at one depth of encoding: JSON Web Tokens, and words after "Bearer" that
// do not look like prose.
func hideTokens(chars []char, depth uint8) {
	bearer := false
	for begin := 0; begin < len(chars); {
		end := begin + index(chars[begin:], " +\t&;?#/=,:()<>\"'", depth)
		word := text(chars[begin:end])
		if isWebToken(word) || bearer && hasTokenForm(word) {
			hide(chars[begin:end])
		}
		bearer = strings.EqualFold(word, "bearer") && end < len(chars) && strings.IndexByte(" +\t", chars[end].c) >= 0
		begin = end + 1
	}
}

// maskWords returns text without the words that are credentials: those after a scheme, those after the name of a
// credential and a colon ("api-key: s3cr3t"), and JSON Web Tokens (RFC 7519).
func maskWords(text string) string {
	var masked strings.Builder
	previous, named, kept := "", false, 0
	for begin := 0; begin < len(text); {
		end := begin + lengthBefore(text[begin:], " \t:=,;()<>\"'")
		word := text[begin:end]
		isValue := named && word != "" && !isScheme(word)
		if isValue {
			end = begin + lengthBefore(text[begin:], " \t,;()<>\"'")
		}
		if isValue || isToken(previous, word) {
			masked.WriteString(text[kept:begin] + cutValue)
			kept = end
		}
		if word != "" {
			previous = word
			named = strings.HasPrefix(text[end:], ":") && hasCredentialWord(fold(word))
		}
		begin = end + 1
	}
	if kept == 0 {
		return text
	}
	return masked.String() + text[kept:]
}

// lengthBefore returns the length of s before the first of some characters.
func lengthBefore(s, characters string) int {
	if i := strings.IndexAny(s, characters); i >= 0 {
		return i
	}
	return len(s)
}

// isToken reports whether word is a credential. After "Bearer" every word is one, and after the other schemes, which are
// words of prose too, a long one or one with letters and digits.
func isToken(previous, word string) bool {
	if isWebToken(word) {
		return true
	}
	for i, scheme := range schemes {
		if word != "" && strings.EqualFold(previous, scheme) {
			return i == 0 || hasTokenForm(word)
		}
	}
	return false
}

func isWebToken(word string) bool {
	return strings.HasPrefix(word, tokenBegin) && strings.Count(word, ".") == 2
}

// hasTokenForm reports whether word is long, or has letters and digits.
func hasTokenForm(word string) bool {
	return len(word) >= longToken || hasLetter(word) && strings.ContainsAny(word, "0123456789")
}

func isScheme(word string) bool {
	return slices.ContainsFunc(schemes, func(scheme string) bool { return strings.EqualFold(word, scheme) })
}

func hasLetter(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return 'a' <= r|0x20 && r|0x20 <= 'z' })
}
