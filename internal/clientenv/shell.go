package clientenv

import (
	"fmt"
	"strings"
)

// Shells are the shells that Assignment knows.
func Shells() []string { return []string{"sh", "fish", "pwsh"} }

// Assignment returns the function that writes the exported assignment of a Variable in the syntax of shell, one of
// Shells. The value is quoted, so that the shell evaluates no part of it.
func Assignment(shell string) (func(Variable) string, error) {
	switch shell {
	case "sh":
		return func(v Variable) string { return "export " + v.Name + "=" + Quote(v.Value) }, nil
	case "fish":
		escape := strings.NewReplacer(`\`, `\\`, "'", `\'`)
		return func(v Variable) string { return "set -gx " + v.Name + " '" + escape.Replace(v.Value) + "'" }, nil
	case "pwsh":
		return func(v Variable) string {
			return "$env:" + v.Name + " = '" + strings.ReplaceAll(v.Value, "'", "''") + "'"
		}, nil
	}
	return nil, fmt.Errorf("unknown shell %q; known are sh, fish and pwsh", shell)
}

// Quote returns s as one word of a POSIX shell.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
