package config

import (
	"github.com/robotsproxy/robotsproxy"
	"github.com/robotsproxy/robotsproxy/internal/settings"
)

// YAML returns c as a file that Load reads as c, but with passwords masked.
func (c *Config) YAML() ([]byte, error) { return schema.YAML(*c, c.origins) }

// comments returns the comments of config.example.yaml.
func comments() (map[string]string, error) { return settings.Comments(robotsproxy.ExampleConfig) }

// JSONSchema returns the JSON Schema of configuration files, for editors. The descriptions are those of
// config.example.yaml.
func JSONSchema() (map[string]any, error) {
	descriptions, err := comments()
	if err != nil {
		return nil, err
	}
	return schema.JSONSchema("The configuration of robotsproxy", Default(), descriptions), nil
}
