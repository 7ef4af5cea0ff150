package settings

import (
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Comments returns the comment above each key of a YAML document, by the key. In the comment above a list, a line with
// a name that is indented by three spaces describes a key of the list's entries: clients[].name.
func Comments(document string) (map[string]string, error) {
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(document), &root); err != nil {
		return nil, err
	}
	comments := make(map[string]string)
	addComments(comments, root.Content[0], "")
	return comments, nil
}

func addComments(comments map[string]string, n *yaml.Node, key string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		k := Join(key, name.Value)
		addComment(comments, k, name.HeadComment)
		if value.Kind == yaml.MappingNode {
			addComments(comments, value, k)
		}
	}
}

// fieldLine matches the first line about a key of an entry. Its later lines are indented further.
var fieldLine = regexp.MustCompile(`^#   ([\w.]+)  +(\S.*)$`)

func addComment(comments map[string]string, key, comment string) {
	at := key
	for line := range strings.Lines(comment) {
		line = strings.TrimSuffix(line, "\n")
		if field := fieldLine.FindStringSubmatch(line); field != nil {
			at, line = Join(key+"[]", field[1]), field[2]
		} else if !strings.HasPrefix(line, "#    ") {
			at = key
		}
		text := strings.TrimSpace(strings.TrimPrefix(line, "#"))
		comments[at] = strings.TrimSpace(comments[at] + " " + text)
	}
}
