package lab

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// CPU returns the processor time that a process has used, in user and in kernel mode.
func CPU(pid int) (time.Duration, error) {
	fields, err := stat(pid)
	if err != nil {
		return 0, err
	}
	return parseCPU(fields)
}

// stat returns the fields of /proc/PID/stat from the third on (proc_pid_stat(5)). The second is a name in brackets that
// may contain anything.
func stat(pid int) ([]string, error) {
	name := fmt.Sprintf("/proc/%d/stat", pid)
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return nil, fmt.Errorf("%s has too few fields: %q", name, text)
	}
	return fields, nil
}

// parseCPU adds utime and stime, the 14th and 15th field, in ticks of 10 ms.
func parseCPU(fields []string) (time.Duration, error) {
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond, err
}

// Tree returns a process and its descendants.
func Tree(pid int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	children := make(map[int][]int)
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue // not a process
		}
		fields, err := stat(child)
		if err != nil {
			continue // it has ended
		}
		if parent, err := strconv.Atoi(fields[1]); err == nil {
			children[parent] = append(children[parent], child)
		}
	}
	tree := []int{pid}
	for i := 0; i < len(tree); i++ { // tree grows
		tree = append(tree, children[tree[i]]...)
	}
	return tree, nil
}

var (
	peak     = regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB$`)
	resident = regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`)
)

// PeakMemory returns the most resident memory that a process has had, in bytes.
func PeakMemory(pid int) (int64, error) { return memory(pid, peak) }

// Memory returns the resident memory of a process, in bytes.
func Memory(pid int) (int64, error) { return memory(pid, resident) }

func memory(pid int, of *regexp.Regexp) (int64, error) {
	name := fmt.Sprintf("/proc/%d/status", pid)
	status, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	m := of.FindSubmatch(status)
	if m == nil {
		return 0, fmt.Errorf("%s has nothing like %s", name, of)
	}
	n, err := strconv.ParseInt(string(m[1]), 10, 64)
	return n << 10, err
}
