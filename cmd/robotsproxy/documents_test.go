package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// documents returns the Markdown files for users, and their names from the root of the repository.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := make(map[string]string)
	for _, pattern := range []string{"README.md", "docs/*.md"} {
		paths, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("no documents match %s: %v", pattern, err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			texts[strings.TrimPrefix(filepath.ToSlash(path), "../../")] = string(text)
		}
	}
	return texts
}

// block is a fenced block of a document.
type block struct {
	line     int    // of its first line
	language string // after the fence
	text     string
	notes    []string // the HTML comments before it
}

// readBlocks returns the fenced blocks of a document, and the text beside them.
func readBlocks(document string) (blocks []block, rest string) {
	var inside, commented bool
	var notes, prose []string
	for number, line := range strings.Split(document, "\n") {
		last := len(blocks) - 1
		switch {
		case strings.HasPrefix(line, "```") && inside:
			inside = false
		case strings.HasPrefix(line, "```"):
			inside = true
			blocks = append(blocks, block{line: number + 2, language: strings.TrimPrefix(line, "```"), notes: notes})
			notes = nil
		case inside:
			blocks[last].text += line + "\n"
		case commented:
			notes[len(notes)-1] += "\n" + strings.TrimSuffix(line, "-->")
			commented = !strings.HasSuffix(line, "-->")
		case strings.HasPrefix(line, "<!--"):
			notes = append(notes, strings.TrimSuffix(strings.TrimPrefix(line, "<!--"), "-->"))
			commented = !strings.HasSuffix(line, "-->")
		case line != "":
			notes, prose = nil, append(prose, line)
		}
	}
	return blocks, strings.Join(prose, "\n")
}

// commands returns the lines of b to type: all lines of sh, and those after a prompt of console.
func (b block) commands() string {
	switch b.language {
	case "sh":
		return b.text
	case "console":
		var typed strings.Builder
		for line := range strings.Lines(b.text) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				typed.WriteString(command)
			}
		}
		return typed.String()
	}
	return ""
}

// noted returns the rest of the comment before b that begins with word.
func (b block) noted(word string) (rest string, found bool) {
	for _, note := range b.notes {
		if rest, found = strings.CutPrefix(strings.TrimSpace(note), word); found {
			return rest, true
		}
	}
	return "", false
}

var (
	codeSpan    = regexp.MustCompile("`([^`\n]+)`")
	programLine = regexp.MustCompile(`(?:^|[\s"'(|])robotsproxy((?: -{0,2}[a-z][^\s;)&#]*)(?: [^\s|;)&#]+)*)`)
	otherOutput = regexp.MustCompile(`\$\([^r)][^)]*\)`) // of another program
	prompted    = regexp.MustCompile(`(?m)^(?:    )?(?:\$ )?robotsproxy ([a-z-]+)`)
)

// Each command line of robotsproxy in a document has commands and flags that exist. Command lines are in blocks of the
// languages sh and console, which TestSessions runs, and in code spans.
func TestCommandsOfDocuments(t *testing.T) {
	checked := 0
	for name, text := range documents(t) {
		blocks, rest := readBlocks(text)
		var lines []string
		for _, b := range blocks {
			commands := b.commands()
			lines = append(lines, strings.Split(strings.ReplaceAll(commands, "\\\n", " "), "\n")...)
			if commands != "" {
				continue
			}
			misplaced(t, fmt.Sprintf("%s:%d", name, b.line), b.text)
		}
		misplaced(t, name, rest)
		for _, match := range codeSpan.FindAllStringSubmatch(rest, -1) {
			lines = append(lines, match[1])
		}
		for _, line := range lines {
			for _, match := range programLine.FindAllStringSubmatch(otherOutput.ReplaceAllString(line, "X"), -1) {
				checked++
				checkCommandLine(t, name, strings.Fields(match[1]))
			}
		}
	}
	if checked < 50 {
		t.Errorf("%d command lines were found", checked)
	}
}

// misplaced fails the test if a line of text, which is in no sh or console block, is a command line.
func misplaced(t *testing.T, place, text string) {
	t.Helper()
	for _, match := range prompted.FindAllStringSubmatch(text, -1) {
		if subcommand(newRoot(stdio{}), match[1]) != nil {
			t.Errorf("%s: a command is in a block that is neither sh nor console: %s", place, match[0])
		}
	}
}

// checkCommandLine checks the words after robotsproxy. A word may name alternatives: ls|show.
func checkCommandLine(t *testing.T, document string, words []string) {
	t.Helper()
	root := newRoot(stdio{})
	root.InitDefaultHelpCmd()
	root.InitDefaultHelpFlag()
	root.InitDefaultVersionFlag()
	root.InitDefaultCompletionCmd()
	commands := []*cobra.Command{root}
	for _, word := range words {
		word = strings.Trim(word, `"'.,[]`)
		if word == "--" {
			return
		}
		if strings.HasPrefix(word, "-") {
			checkFlag(t, document, commands, word, words)
			continue
		}
		last := commands[len(commands)-1]
		if !last.HasSubCommands() {
			continue
		}
		commands = nil
		for name := range strings.SplitSeq(word, "|") {
			if next := subcommand(last, name); next != nil {
				commands = append(commands, next)
			}
		}
		if len(commands) == 0 && !last.Runnable() || last == root && len(commands) == 0 {
			t.Errorf("%s: robotsproxy %s: there is no command %s", document, strings.Join(words, " "), word)
			return
		}
		if len(commands) == 0 {
			commands = []*cobra.Command{last}
		}
	}
}

func subcommand(of *cobra.Command, name string) *cobra.Command {
	all := of.Commands()
	if i := slices.IndexFunc(all, func(c *cobra.Command) bool { return c.Name() == name || c.HasAlias(name) }); i >= 0 {
		return all[i]
	}
	return nil
}

// checkFlag fails the test unless each of commands has the flag word.
func checkFlag(t *testing.T, document string, commands []*cobra.Command, word string, words []string) {
	t.Helper()
	name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
	for _, c := range commands {
		c.InitDefaultHelpFlag()
		var flag *pflag.Flag
		if strings.HasPrefix(word, "--") {
			flag = c.Flag(name)
		} else if flag = c.Flags().ShorthandLookup(name[:1]); flag == nil {
			flag = c.InheritedFlags().ShorthandLookup(name[:1])
		}
		if flag == nil {
			t.Errorf("%s: robotsproxy %s: %s has no flag %s", document, strings.Join(words, " "), c.CommandPath(), word)
		}
	}
}
