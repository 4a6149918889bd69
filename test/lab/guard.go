package lab

import (
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
)

// envGuard turns this program into the guard of the lab in the folder that it names.
const envGuard = "ODUFLOW_LAB_GUARD"

const dismissal = "dismissed\n"

// guard is a process that tears the lab down when the process that made it is gone.
//
// It runs this very program again (a test binary or `lab`), holds one end of a pipe and waits. The
// other end closes with its owner, also on SIGKILL; only the dismissal read before says that
// nothing is left to do.
type guard struct {
	once sync.Once
	pipe *os.File
	cmd  *exec.Cmd
}

// Every program that imports the lab must be able to become its guard.
func init() {
	dir := os.Getenv(envGuard)
	if dir == "" {
		return
	}
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	said, _ := io.ReadAll(os.Stdin)
	if string(said) == dismissal {
		os.Exit(0)
	}
	if err := teardown(dir, nil); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

func startGuard(dir string) (*guard, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	// The running file itself: go test has its binary removed, and a path could be gone or replaced.
	cmd := exec.Command("/proc/self/exe") // it must outlive every context
	cmd.Args[0] = "oduflow-lab-guard"
	cmd.Dir = "/"
	cmd.Env = []string{envGuard + "=" + dir, EnvKeep + "=" + os.Getenv(EnvKeep), "PATH=" + daemonPath}
	cmd.Stdin = reader
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // out of reach of a terminal's Ctrl-C
	err = cmd.Start()
	_ = reader.Close()
	if err != nil {
		_ = writer.Close()
		return nil, err
	}
	return &guard{pipe: writer, cmd: cmd}, nil
}

// dismiss ends the guard without a teardown. A nil guard is one of a lab that was attached to.
func (g *guard) dismiss() {
	if g == nil {
		return
	}
	g.once.Do(func() {
		_, _ = io.WriteString(g.pipe, dismissal)
		_ = g.pipe.Close()
		_ = g.cmd.Wait()
	})
}
