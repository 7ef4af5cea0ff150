// The differential command compares verdicts of package rules with those of other parsers: Google's, whose source the
// reader fetches, WWW::RobotRules and protego, if they are installed. It asks about generated files, or the real ones of
// a folder, minimises each difference, and groups the differences by kind. It fails if there is one with Google's parser
// that docs/conformance.md does not list.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/robotsproxy/robotsproxy/rules"
)

func main() {
	google := flag.String("google", "", "the folder with the source of Google's parser")
	corpus := flag.String("corpus", "", "ask about the files of this folder, not generated ones")
	files := flag.Int("files", 20_000, "how many files to generate of each sort")
	seed := flag.Uint64("seed", 1, "of the generator")
	flag.Parse()
	listed, err := run(context.Background(), os.Stdout, *google, sources(*corpus, *files, *seed))
	if err != nil {
		fmt.Fprintln(os.Stderr, "differential:", err)
		os.Exit(2)
	}
	if !listed {
		os.Exit(1)
	}
}

// source is a name and its questions.
type source struct {
	name      string
	questions iter.Seq[question]
}

// sources returns the real files of a folder, or generated ones.
func sources(corpus string, files int, seed uint64) []source {
	if corpus != "" {
		return []source{{"real files", realFiles(corpus)}}
	}
	return []source{{"clean files", generated(clean, files, seed)}, {"wild files", generated(wild, files, seed)}}
}

func generated(one func(*rand.Rand) question, files int, seed uint64) iter.Seq[question] {
	return func(yield func(question) bool) {
		r := rand.New(rand.NewPCG(seed, 0))
		for i := 0; i < files && yield(one(r)); i++ {
		}
	}
}

// realFiles yields the files of a folder. It omits a file that cannot be read.
func realFiles(folder string) iter.Seq[question] {
	return func(yield func(question) bool) {
		filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			robots, err := os.ReadFile(path)
			if err == nil && !yield(real(robots)) {
				return fs.SkipAll
			}
			return err
		})
	}
}

// run compares all judges that there are. It returns whether all differences from Google's parser are listed.
func run(ctx context.Context, w io.Writer, google string, from []source) (listed bool, err error) {
	dir, err := os.MkdirTemp("", "differential")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	listed = true
	for _, p := range peers(ctx, w, google, dir) {
		for _, s := range from {
			c := comparison{peer: p, others: map[bool]int{}}
			if err := c.ask(s.questions); err != nil {
				return false, err
			}
			c.print(w, s.name)
			listed = listed && (!p.strict || c.listed())
		}
	}
	return listed, nil
}

// peer is a parser and the dialect to compare with it.
type peer struct {
	name    string
	dialect rules.Dialect
	judge   judge
	strict  bool // a difference that is not listed is a failure
}

// peers starts the parsers. It says which are not there.
func peers(ctx context.Context, w io.Writer, google, dir string) (found []peer) {
	start := func(name string, strict bool, dialects []rules.Dialect, command ...string) {
		judge, err := program(ctx, command[0], command[1:]...)
		if err != nil {
			fmt.Fprintf(w, "%s: skipped: %v\n", name, err)
			return
		}
		for _, d := range dialects {
			found = append(found, peer{name, d, judge, strict})
		}
	}
	if path, err := buildGoogle(ctx, google, dir); err != nil {
		fmt.Fprintf(w, "Google's parser: skipped: %v\n", err)
	} else {
		start("Google's parser", true, []rules.Dialect{rules.DialectGoogle, rules.DialectRFC9309}, path)
	}
	for _, p := range []struct {
		name, test string
		dialect    rules.Dialect
		command    []string
	}{
		{"WWW::RobotRules", "perl -MWWW::RobotRules -e1", rules.DialectWWWRobotRules, []string{"perl", "testdata/robotrules.pl"}},
		{"protego", "/usr/bin/python3 -c 'import protego'", rules.DialectRFC9309, []string{"/usr/bin/python3", "testdata/ask_protego.py"}},
	} {
		if err := exec.CommandContext(ctx, "sh", "-c", p.test+" 2>/dev/null").Run(); err != nil {
			fmt.Fprintf(w, "%s: skipped: it is not installed\n", p.name)
			continue
		}
		start(p.name, false, []rules.Dialect{p.dialect}, p.command...)
	}
	return found
}

// comparison counts the differences between a dialect and another parser by kind.
type comparison struct {
	peer
	verdicts int
	groups   []*group
	grouped  int          // how many differences are in groups
	others   map[bool]int // those that are not, by laxer
}

// mostGrouped is how many differences from a parser that may differ are minimised, which takes long.
const mostGrouped = 500

// group are the differences of one kind and direction.
type group struct {
	kind  kind
	laxer bool
	count int
	first difference // the shortest
}

// ask asks both judges.
func (c *comparison) ask(questions iter.Seq[question]) error {
	ours := dialect(c.dialect)
	for q := range questions {
		for _, agent := range q.agents {
			mine, err := ours(q.robots, agent, q.targets)
			if err != nil {
				return err
			}
			theirs, err := c.judge(q.robots, agent, q.targets)
			if err != nil {
				return err
			}
			for i, target := range q.targets {
				c.verdicts++
				if mine[i] == theirs[i] {
					continue
				}
				d := difference{q.robots, agent, target, mine[i]}
				if !c.strict && c.grouped == mostGrouped {
					c.others[d.laxer]++
					continue
				}
				if d, err = d.minimise(ours, c.judge); err != nil {
					return err
				}
				c.add(d)
			}
		}
	}
	return nil
}

// add counts a minimised difference.
func (c *comparison) add(d difference) {
	c.grouped++
	k := kindOf(d)
	i := slices.IndexFunc(c.groups, func(g *group) bool { return g.kind.name == k.name && g.laxer == d.laxer })
	if i < 0 {
		i = len(c.groups)
		c.groups = append(c.groups, &group{kind: k, laxer: d.laxer, first: d})
	}
	g := c.groups[i]
	g.count++
	if d.size() < g.first.size() {
		g.first = d
	}
}

// listed reports whether docs/conformance.md lists all kinds.
func (c *comparison) listed() bool {
	return !slices.ContainsFunc(c.groups, func(g *group) bool { return !g.kind.listed(c.dialect, g.laxer) })
}

// print prints the numbers, and the shortest difference of each kind.
func (c *comparison) print(w io.Writer, of string) {
	sums := maps.Clone(c.others)
	for _, g := range c.groups {
		sums[g.laxer] += g.count
	}
	fmt.Fprintf(w, "%v and %s, %s: %d verdicts, %d agreed, %d stricter, %d laxer\n",
		c.dialect, c.name, of, c.verdicts, c.verdicts-sums[false]-sums[true], sums[false], sums[true])
	if c.others[false]+c.others[true] > 0 {
		fmt.Fprintf(w, "\tthe first %d by kind:\n", mostGrouped)
	}
	slices.SortFunc(c.groups, func(a, b *group) int { return b.count - a.count })
	for _, g := range c.groups {
		direction, name := "stricter", cmp.Or(g.kind.name, "other")
		if g.laxer {
			direction = "laxer"
		}
		if c.strict && !g.kind.listed(c.dialect, g.laxer) {
			name += ", which is not listed"
		}
		fmt.Fprintf(w, "\t%s: %s: %d\n\t\t%.200q, %s, %q\n", direction, name, g.count, g.first.robots, g.first.agent, g.first.target)
	}
}
