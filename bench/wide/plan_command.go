//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// planCommand measures the command plan, which reads a list of the pages of all hosts, in the order of a crawl by rounds.
// Three hosts in ten are dead.
func (b *bench) planCommand() error {
	p := b.plan(plan{name: "plan", pages: 10, web: webOptions{hosts: 10_000, dead: third, robotsSize: 1000, shared: 0.5}})
	w, err := newWeb(p.web)
	if err != nil {
		return err
	}
	defer w.close()
	list, ca := filepath.Join(b.dir, "urls.txt"), filepath.Join(b.dir, "web.pem")
	if err := writeList(list, w, p.pages); err != nil {
		return err
	}
	if err := os.WriteFile(ca, w.ca.PEM(), 0o600); err != nil {
		return err
	}
	file := filepath.Join(b.dir, "plan.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, config, ca, b.config), 0o600); err != nil {
		return err
	}
	first, err := b.runPlan(w, list, file)
	if err != nil {
		return err
	}
	b.planGoals(w, "plan", first)
	again, err := b.runPlan(w, list, file, "--estimate")
	if err != nil {
		return err
	}
	b.planGoals(w, "plan --estimate", again)
	return nil
}

// writeList writes a list with the same number of pages of each host.
func writeList(path string, w *web, pages int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	out := bufio.NewWriter(f)
	for page := range pages {
		for i := range w.hosts {
			fmt.Fprintf(out, "http://%s/page/%d\n", w.authority(i), page)
		}
	}
	return out.Flush()
}

// planned is the cost of a run of the command plan, and what it said.
type planned struct {
	took   time.Duration
	memory int64 // the most, in bytes

	URLs, Allowed, Unknown int64
	Hosts                  []struct{}
}

func (b *bench) runPlan(w *web, list, config string, flags ...string) (p planned, err error) {
	args := append([]string{"plan", list, "--config", config, "--data-dir", filepath.Join(b.dir, "plan"), "--format", "json"}, flags...)
	cmd := exec.Command(b.program, args...)
	cmd.Env = append(cmd.Environ(), dnsEnv+"="+w.dns.addr())
	begun := time.Now()
	said, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return p, err
	}
	p.took = time.Since(begun)
	p.memory = cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	return p, json.Unmarshal(said, &p)
}

func (b *bench) planGoals(w *web, name string, p planned) {
	var most int32
	for i := range w.state {
		most = max(most, w.state[i].robots)
	}
	what := fmt.Sprintf("s for %d URLs of %d hosts", p.URLs, len(p.Hosts))
	b.goal(goal{run: name, what: what, got: []string{number(p.took.Seconds())}})
	b.goal(goal{run: name, what: "URLs that may be fetched; unknown", got: []string{count(p.Allowed) + "; " + count(p.Unknown)}})
	b.goal(goal{run: name, what: "peak memory, MiB", got: []string{number(mebi(p.memory))}})
	b.goal(goal{name, "requests for one robots.txt, most", []string{count(int64(most))}, "1", most == 1})
}
