package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/robotsproxy/robotsproxy/rules"
)

// site is the origin of all files.
const site = "http://site.example"

// judge says which targets an agent may access by a file.
type judge func(robots []byte, agent string, targets []string) ([]bool, error)

// dialect is the judge of a dialect of package rules.
func dialect(d rules.Dialect) judge {
	return func(robots []byte, agent string, targets []string) ([]bool, error) {
		a := rules.Parse(robots, rules.Options{Dialect: d, RobotsURL: site + "/robots.txt"}).Agent(agent)
		allowed := make([]bool, len(targets))
		for i, target := range targets {
			allowed[i] = a.Verdict(target).Allowed
		}
		return allowed, nil
	}
}

// program starts a program that answers questions: see testdata/google.cc.
func program(ctx context.Context, name string, args ...string) (judge, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	var question []byte
	answers := bufio.NewReader(out)
	return func(robots []byte, agent string, targets []string) ([]bool, error) {
		question = appendText(question[:0], string(robots))
		question = appendText(question, agent)
		question = binary.LittleEndian.AppendUint32(question, uint32(len(targets)))
		for _, target := range targets {
			question = appendText(question, site+target)
		}
		if _, err := in.Write(question); err != nil {
			return nil, fmt.Errorf("asking %s: %w", name, err)
		}
		answer := make([]byte, len(targets))
		if _, err := io.ReadFull(answers, answer); err != nil {
			return nil, fmt.Errorf("reading the answer of %s to %.500q: %w", name, robots, err)
		}
		allowed := make([]bool, len(targets))
		for i, b := range answer {
			allowed[i] = b != 0
		}
		return allowed, nil
	}, nil
}

func appendText(dst []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint32(dst, uint32(len(s))), s...)
}

// errNoSource says where Google's parser is.
var errNoSource = errors.New("GOOGLE_ROBOTSTXT names no folder with the source of Google's parser: " +
	"git clone https://github.com/google/robotstxt")

// buildGoogle builds Google's parser from a folder with its source, and returns the path of the program.
func buildGoogle(ctx context.Context, source, dir string) (path string, err error) {
	if source == "" {
		return "", errNoSource
	}
	parser := filepath.Join(source, "robots.cc")
	if _, err := os.Stat(parser); err != nil {
		return "", errNoSource
	}
	path = filepath.Join(dir, "google")
	cmd := exec.CommandContext(ctx, "g++", "-std=c++17", "-O2", "-I", source, "-o", path, "testdata/google.cc", parser,
		"-labsl_strings", "-labsl_strings_internal", "-labsl_raw_logging_internal", "-labsl_throw_delegate", "-labsl_int128", "-labsl_base")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building Google's parser with g++ and libabsl-dev: %w\n%s", err, out)
	}
	return path, nil
}
