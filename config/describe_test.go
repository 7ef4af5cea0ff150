package config

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"github.com/robotsproxy/robotsproxy/policy"
)

// compileSchema returns the JSON Schema, as an editor reads it.
func compileSchema(t *testing.T) (*jsonschema.Schema, string) {
	t.Helper()
	schema, err := JSONSchema()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(schema)
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("config.json", document); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("config.json")
	if err != nil {
		t.Fatal(err)
	}
	return compiled, string(text)
}

// validate validates a YAML file as an editor does: it reads the file as JSON.
func validate(t *testing.T, s *jsonschema.Schema, file string) error {
	t.Helper()
	var v any
	if err := yaml.Unmarshal([]byte(file), &v); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(document)
}

func TestJSONSchema(t *testing.T) {
	s, _ := compileSchema(t)
	example, err := os.ReadFile(examplePath)
	if err != nil {
		t.Fatal(err)
	}
	uncommented := samples.ReplaceAllStringFunc(string(example), func(s string) string {
		_, entries, _ := strings.Cut(s, "\n")
		return regexp.MustCompile(`(?m)^#`).ReplaceAllString(entries, "")
	})
	for name, file := range map[string]string{
		"the example": string(example), "with its samples": uncommented, "an empty section": "robots:\n  ttl: 1h\nclients:\n",
	} {
		if err := validate(t, s, file); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, wrong := range []string{
		"robot: {}", "mode: enfroce", "refusal: {status: 600}", "refusal: {status: x}", "response_fields: 1",
		"clients: [{nam: a}]", "clients: {}", "egress: {ports: 80}", "hosts: [{mode: on}]",
	} {
		if validate(t, s, wrong) == nil {
			t.Errorf("%s is valid", wrong)
		}
	}
}

// Every key has a description.
func TestDescriptions(t *testing.T) {
	descriptions, err := comments()
	if err != nil {
		t.Fatal(err)
	}
	all := Config{Clients: make([]Client, 1), Hosts: make([]Host, 1), Exemptions: make([]policy.Exemption, 1)}
	for _, key := range schema.Keys(all) {
		if key = strings.ReplaceAll(key, "[0]", "[]"); descriptions[key] == "" {
			t.Errorf("config.example.yaml does not describe %s", key)
		}
	}
}

// A configuration that is printed is read as itself.
func TestYAML(t *testing.T) {
	cfg := mustLoad(t, `mode: off
robots: {ttl: 1h30m, dialect: google}
egress: {resolve: {a.example: 127.0.0.1, "*.b.example": "::1"}, ports: [80, any]}
clients:
  - {name: a, cidr: [127.0.0.1], mode: off, max_wait: 0s}
hosts:
  - {host: "*.b.example", delay: 5s}
exemptions:
  - {host: a.example, path: "/x%20*", effect: allow, reason: "a: b", owner: "#", until: 2027-06-30}
`, Options{})
	text, err := cfg.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again := mustLoad(t, string(text), Options{})
	if diff := cmp.Diff(*cfg, *again, compare); diff != "" {
		t.Errorf("printed as\n%s\nand read otherwise (-before +after):\n%s", text, diff)
	}
}
