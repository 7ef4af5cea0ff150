package seal

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/robotsproxy/robotsproxy/audit"
)

// Checkpoint is a signed statement about the tree. Its text has these lines, of which the first three are those of
// C2SP tlog-checkpoint:
//
//	robotsproxy/3f9a0c21                            the name of the key
//	48210                                           the number of leaves
//	j2mS0kFUz...                                    the root, in base64
//	ended-before 2026-11-23T02:00:00.123456Z        records that ended before it have leaves
//	pruned-before 0fk2v7q0m8000                     records with lesser IDs were pruned
//	dropped 12800                                   hashes with lesser numbers, from 0, may be removed: their records are pruned
//	erasures 2                                      the number of the last erasure with a leaf
//	ids 8h2Qp...                                    SHA-256 of the kinds and IDs of the leaves since the last checkpoint
type Checkpoint struct {
	Origin   string
	Size     int64
	Root     tlog.Hash
	Ended    time.Time
	Pruned   audit.ID
	Dropped  int64 // leaves, from the first on, of pruned records that the log may have removed
	Erasures int64
	IDs      tlog.Hash
	Note     string  // the text with its signature
	Prunes   []Prune // of a new checkpoint: those that it is the first to confirm; the note does not have them
}

func (c *Checkpoint) text() string {
	return fmt.Sprintf("%s\n%d\n%s\nended-before %s\npruned-before %s\ndropped %d\nerasures %d\nids %s\n",
		c.Origin, c.Size, c.Root, c.Ended.Format(time.RFC3339Nano), c.Pruned, c.Dropped, c.Erasures, c.IDs)
}

// OpenCheckpoint parses a note and checks that one of the keys signed it.
func OpenCheckpoint(text string, keys ...Verifier) (*Checkpoint, error) {
	verifiers := make([]note.Verifier, len(keys))
	for i, k := range keys {
		verifiers[i] = k.v
	}
	n, err := note.Open([]byte(text), note.VerifierList(verifiers...))
	var unverified *note.UnverifiedNoteError
	var invalid *note.InvalidSignatureError
	switch {
	case errors.As(err, &unverified):
		return nil, fmt.Errorf("it is signed by %s, and the key given is that of %s", signers(unverified.Note), names(keys))
	case errors.As(err, &invalid):
		return nil, errors.New("its signature is wrong")
	case err != nil:
		return nil, errors.New("it is not a signed note")
	}
	return parseCheckpoint(n.Text, text)
}

func parseUnverified(text string) (*Checkpoint, error) {
	n, err := note.Open([]byte(text), note.VerifierList())
	var unverified *note.UnverifiedNoteError
	if errors.As(err, &unverified) {
		n = unverified.Note
	} else if err != nil {
		return nil, fmt.Errorf("seal: the last checkpoint is damaged: %w", err)
	}
	return parseCheckpoint(n.Text, text)
}

func signers(n *note.Note) string {
	var list []string
	for _, s := range n.UnverifiedSigs {
		list = append(list, s.Name)
	}
	return strings.Join(list, " and ")
}

func names(keys []Verifier) string {
	var list []string
	for _, k := range keys {
		list = append(list, k.Name())
	}
	return strings.Join(list, " and ")
}

func parseCheckpoint(text, whole string) (c *Checkpoint, err error) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) < 3 {
		return nil, errors.New("it is a note, but no checkpoint")
	}
	c = &Checkpoint{Origin: lines[0], Note: whole}
	if c.Size, err = strconv.ParseInt(lines[1], 10, 64); err != nil || c.Size < 1 {
		return nil, fmt.Errorf("its size %q is wrong", lines[1])
	}
	if c.Root, err = tlog.ParseHash(lines[2]); err != nil {
		return nil, fmt.Errorf("its root %q is wrong", lines[2])
	}
	for _, line := range lines[3:] {
		name, value, _ := strings.Cut(line, " ")
		if err := c.extend(name, value); err != nil {
			return nil, fmt.Errorf("its line %q is wrong", line)
		}
	}
	return c, nil
}

// extend reads a line after the third. It ignores lines with other names, as C2SP asks.
func (c *Checkpoint) extend(name, value string) (err error) {
	switch name {
	case "ended-before":
		c.Ended, err = time.Parse(time.RFC3339Nano, value)
	case "pruned-before":
		c.Pruned, err = audit.ParseID(value)
	case "dropped":
		c.Dropped, err = strconv.ParseInt(value, 10, 64)
	case "erasures":
		c.Erasures, err = strconv.ParseInt(value, 10, 64)
	case "ids":
		var b []byte
		if b, err = base64.StdEncoding.DecodeString(value); err == nil && len(b) == tlog.HashSize {
			c.IDs = tlog.Hash(b)
		}
	}
	return err
}
