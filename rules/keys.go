package rules

import (
	"bytes"
	"slices"
)

// parseField parses a line in a dialect. Its key is keyOther if this package does not read the record.
func (s *switches) parseField(line []byte) field {
	switch s.nul {
	case nulEnds:
		line, _, _ = bytes.Cut(line, []byte{0})
	case nulDelete:
		if bytes.IndexByte(line, 0) >= 0 {
			line = bytes.ReplaceAll(line, []byte{0}, nil)
		}
	}
	switch s.keys {
	case keysStrict:
		return strictField(line, s.comments)
	case keysDisallow:
		return onlyField(parseField(line), "user-agent", "disallow", "sitemap")
	case keysAnywhere:
		return fieldAnywhere(line)
	}
	return parseField(line)
}

// strictField parses a record with a colon.
func strictField(line []byte, c comments) field {
	i := bytes.IndexByte(line, ':')
	if i < 0 {
		return field{}
	}
	name, value := trimSpace(line[:i]), trimSpace(line[i+1:])
	if len(name) == 0 || name[0] == '#' {
		return field{}
	}
	if c == commentsAfterSpace {
		value = trimSpace(value[:commentAfterSpace(value)])
	}
	end := i + 1 + bytes.Index(line[i+1:], value) + len(value)
	if len(value) == 0 {
		end = i + 1
	}
	f := field{key: keyOf(name), text: trimSpace(line[:end]), nameLength: len(name), valueLength: len(value)}
	return onlyField(f, "user-agent", "useragent", "allow", "disallow", "sitemap")
}

// commentAfterSpace returns the offset of the white space before the first "#" that follows white space in a value.
func commentAfterSpace(value []byte) int {
	for i := 1; i < len(value); i++ {
		if value[i] == '#' && isSpace(value[i-1]) {
			return i - 1
		}
	}
	return len(value)
}

// onlyField turns a record of a group or a sitemap into another record if its key is not among names.
func onlyField(f field, names ...string) field {
	switch f.key {
	case keyUserAgent, keyAllow, keyDisallow, keySitemap:
		known := slices.ContainsFunc(names, func(name string) bool { return isName(f.name(), name) })
		if !known || bytes.IndexByte(f.text, ':') < 0 {
			f.key = keyOther
		}
	}
	return f
}

// fieldAnywhere parses the first key of a line that a colon follows immediately. Anything may precede it.
func fieldAnywhere(line []byte) field {
	line, _, _ = bytes.Cut(line, []byte{'#'})
	for i := 0; i < len(line); i++ {
		rest := line[i:]
		for _, k := range [...]struct {
			name string
			key  key
		}{
			{"allow:", keyAllow},
			{"disallow:", keyDisallow},
			{"user-agent:", keyUserAgent},
			{"useragent:", keyUserAgent},
			{"sitemap:", keySitemap},
			{"crawl-delay:", keyCrawlDelay},
		} {
			if n := len(k.name); len(rest) >= n && isName(rest[:n], k.name) {
				return scrubbed(k.key, rest, n-1)
			}
		}
	}
	f := parseField(line)
	if f.key >= keyUserAgent && f.key <= keySitemap {
		f.key = keyOther
	}
	return f
}

// scrubbed returns the record at the beginning of a line, without control characters in its value.
func scrubbed(k key, line []byte, colon int) field {
	value := line[colon+1:]
	if slices.ContainsFunc(value, isControl) {
		value = slices.DeleteFunc(bytes.Clone(value), isControl)
		line = slices.Concat(line[:colon+1], value)
	}
	text := trimSpace(line)
	return field{key: k, text: text, nameLength: colon, valueLength: len(trimSpace(text[colon+1:]))}
}

func isControl(c byte) bool { return c < ' ' || c == 0x7F }

// isName reports whether b is name, which is in lower case.
func isName(b []byte, name string) bool {
	if len(b) != len(name) {
		return false
	}
	for i, c := range b {
		if lowerASCII(c) != name[i] {
			return false
		}
	}
	return true
}
