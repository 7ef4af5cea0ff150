package lab

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// DivideProcessors returns the first processor that this process may use. It is for the proxies: this process keeps off
// it from then on. On a machine with one processor all share it.
func DivideProcessors() (proxyCPU int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return 0, os.NewSyscallError("sched_getaffinity", err)
	}
	for !set.IsSet(proxyCPU) {
		proxyCPU++
	}
	if set.Count() == 1 {
		return proxyCPU, nil
	}
	set.Clear(proxyCPU)
	return proxyCPU, restrict(&set)
}

// restrict keeps this process on set. A thread inherits its processors, so those that exist are the only ones to change.
func restrict(set *unix.CPUSet) error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, task := range tasks {
		id, err := strconv.Atoi(task.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(id, set); err != nil && !errors.Is(err, unix.ESRCH) { // it may have ended
			return os.NewSyscallError("sched_setaffinity", err)
		}
	}
	return nil
}

// StartOn starts cmd on one processor. A process inherits the processors of the thread that starts it.
func StartOn(cpu int, cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return os.NewSyscallError("sched_getaffinity", err)
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return os.NewSyscallError("sched_setaffinity", err)
	}
	err := cmd.Start()
	return errors.Join(err, os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinity(0, &before)))
}
