package bench

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// proxyCPU is the processor that all proxies run on. It is set once, by divideProcessors.
var proxyCPU int

// divideProcessors takes the first processor that this process may use for the proxies, and keeps off it from then on.
// On a machine with one processor all share it.
func divideProcessors() error {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return os.NewSyscallError("sched_getaffinity", err)
	}
	for !set.IsSet(proxyCPU) {
		proxyCPU++
	}
	if set.Count() == 1 {
		return nil
	}
	set.Clear(proxyCPU)
	return restrict(&set)
}

// restrict keeps this process on set. A thread inherits its processors, so those that exist are all that need be told.
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

// startOn starts cmd on one processor. A process inherits the processors of the thread that starts it.
func startOn(cpu int, cmd *exec.Cmd) error {
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
