package settings

import (
	"fmt"
	"strings"
	"unicode"
)

// snake returns the key of a field: MinTTL is min_ttl, CAFile is ca_file.
func snake(name string) string {
	runes := []rune(name)
	var b strings.Builder
	for i, r := range runes {
		begins := i > 0 && unicode.IsUpper(r) &&
			(!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))
		if begins && runes[i-1] != '_' {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// Join returns the key of name in the section key: Join("robots", "ttl") is robots.ttl.
func Join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

// Item returns the key of an entry of the list key: Item("clients", 0) is clients[0].
func Item(key string, i int) string { return fmt.Sprintf("%s[%d]", key, i) }

// enclosing returns the key around key: clients for clients[0], clients[0] for clients[0].name, "" for clients.
func enclosing(key string) string { return key[:max(0, strings.LastIndexAny(key, ".["))] }
