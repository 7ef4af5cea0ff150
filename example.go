// Package robotsproxy holds the example configuration of the program in cmd/robotsproxy.
package robotsproxy

import _ "embed"

// ExampleConfig is config.example.yaml: every key with its default and its meaning.
//
//go:embed config.example.yaml
var ExampleConfig string
