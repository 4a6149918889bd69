package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The parts that a lab has besides its minions, whose part is their ID.
const (
	partMaster  = "master"
	partAPI     = "api"
	partMasterd = "masterd"
	partCommand = "command"
)

const daemonPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// graceful is how long a part gets between SIGTERM and SIGKILL.
const graceful = 10 * time.Second

// child is a daemon that this process started.
type child struct {
	ended chan struct{} // closed when it was waited for
	state string        // how it ended, to be read after ended
}

// StartMaster starts salt-master and returns when it takes requests, its bus can be joined and the
// key for masterd's login is there.
func (l *Lab) StartMaster(ctx context.Context) error {
	// What an earlier master left behind would look like readiness.
	busSocket := filepath.Join(l.SockDir(), "master_event_pub.ipc")
	for _, stale := range []string{busSocket, l.KeyFile()} {
		if err := os.Remove(stale); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	// As in the packages: started by root, it changes to `user` by itself.
	return l.start(ctx, partMaster, l.Caller, []string{l.VenvBin("salt-master"), "-c", l.MasterConfigDir()}, func() bool {
		_, err := os.Stat(l.KeyFile())
		return err == nil && answers("unix", busSocket) && answers("tcp", l.tcp(l.Ports.Ret)) && answers("tcp", l.tcp(l.Ports.Publish))
	})
}

// StartMinion starts minion i and returns when it is ready for jobs, for which it needs the master.
func (l *Lab) StartMinion(ctx context.Context, i int) error {
	return l.startMinion(ctx, l.Minions[i-1], l.MinionDir(i))
}

func (l *Lab) startMinion(ctx context.Context, part string, m MinionDir) error {
	var before int64
	if info, err := os.Stat(m.Log); err == nil {
		before = info.Size()
	}
	return l.start(ctx, part, l.Caller, []string{l.VenvBin("salt-minion"), "-c", m.Config}, func() bool {
		return logSays(m.Log, before, "Minion is ready to receive requests!")
	})
}

// StartAPI starts salt-api and returns when it takes connections.
func (l *Lab) StartAPI(ctx context.Context) error {
	return l.start(ctx, partAPI, l.Master, []string{l.VenvBin("salt-api"), "-c", l.MasterConfigDir()}, func() bool {
		return answers("tcp", l.tcp(l.Ports.API))
	})
}

// StopMaster ends salt-master with SIGTERM, and with SIGKILL where that isn't enough.
func (l *Lab) StopMaster(ctx context.Context) error { return l.stop(ctx, partMaster) }

// KillMaster ends salt-master with SIGKILL, all of its processes.
func (l *Lab) KillMaster() error { return l.signal(partMaster, syscall.SIGKILL) }

// StopMinion ends minion i with SIGTERM. What its jobs started may go on, as with the packages'
// KillMode=process.
func (l *Lab) StopMinion(ctx context.Context, i int) error { return l.stop(ctx, l.Minions[i-1]) }

// KillMinion ends minion i and its jobs with SIGKILL. What the jobs started goes on.
func (l *Lab) KillMinion(i int) error { return l.signal(l.Minions[i-1], syscall.SIGKILL) }

// PauseMinion stops minion i where it stands: it keeps its connections and answers nothing.
func (l *Lab) PauseMinion(i int) error { return l.signal(l.Minions[i-1], syscall.SIGSTOP) }

// ResumeMinion lets a paused minion go on.
func (l *Lab) ResumeMinion(i int) error { return l.signal(l.Minions[i-1], syscall.SIGCONT) }

// StopAPI ends salt-api.
func (l *Lab) StopAPI(ctx context.Context) error { return l.stop(ctx, partAPI) }

// Processes lists the processes of a part ("master", "minion-1", "api", "masterd"), or all of the
// lab's for "".
func (l *Lab) Processes(part string) []Process {
	var sessions []session
	if part == "" {
		sessions = l.sessions()
	} else if s, ok := l.session(part); ok {
		sessions = []session{s}
	}
	var found []Process
	for _, p := range members(snapshot(l.Dir), l.Dir, sessions) {
		if part == "" || p.Part == part || (len(sessions) > 0 && p.Session == sessions[0].ID) {
			found = append(found, p)
		}
	}
	return found
}

func (l *Lab) session(part string) (session, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.Parts[part]
	return s, ok
}

func (l *Lab) tcp(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

// start runs a daemon in a session of its own and waits until ready says so.
func (l *Lab) start(ctx context.Context, part string, as Account, argv []string, ready func() bool) error {
	if running := l.daemon(part); len(running) > 0 {
		return fmt.Errorf("%s runs already:%s", part, describe(running))
	}
	if err := l.forget(part); err != nil {
		return err
	}
	out, err := os.OpenFile(l.OutPath(part), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644) // tests of other users read it
	if err != nil {
		return err
	}
	cmd := exec.Command(argv[0], argv[1:]...) // a daemon outlives the context of its start
	cmd.Dir = "/"
	cmd.Env = l.environ(part, as)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: as.credential()}
	err = cmd.Start()
	_ = out.Close()
	if err != nil {
		return fmt.Errorf("start %s: %w", part, err)
	}
	c := &child{ended: make(chan struct{})}
	started, _ := readProcess(cmd.Process.Pid, l.Dir)
	go func() {
		c.state = fmt.Sprint(cmd.Wait())
		if cmd.ProcessState != nil {
			c.state = cmd.ProcessState.String()
		}
		close(c.ended)
	}()
	l.mu.Lock()
	l.procs[part] = c
	l.Parts[part] = session{ID: cmd.Process.Pid, Start: started.Start}
	l.mu.Unlock()
	if err := l.save(); err != nil {
		return err
	}
	err = Poll(ctx, func() (bool, error) {
		select {
		case <-c.ended:
			return false, fmt.Errorf("it ended: %s", c.state)
		default:
			return ready(), nil
		}
	})
	if err != nil {
		return fmt.Errorf("%s did not get ready: %w%s", part, err, l.tail(part))
	}
	return nil
}

// forget removes what a killed Salt daemon left to say that it runs. Salt would believe it for as
// long as the dead process is not reaped, which init may take its time for.
func (l *Lab) forget(part string) error {
	var problems []error
	for _, where := range []string{l.path(part), l.path(partMaster, "run")} {
		stale, err := filepath.Glob(filepath.Join(where, "*"+saltName(part)+".pid"))
		problems = append(problems, err)
		for _, path := range stale {
			problems = append(problems, os.Remove(path))
		}
	}
	return errors.Join(problems...)
}

// saltName is what a part's pid files end in.
func saltName(part string) string {
	if strings.HasPrefix(part, "minion-") || strings.HasPrefix(part, twinPrefix) {
		return "minion"
	}
	return part
}

// stop asks the leader of a part to end, then kills what is left of its daemon.
func (l *Lab) stop(ctx context.Context, part string) error {
	s, ok := l.session(part)
	if !ok {
		return nil
	}
	if p, alive := readProcess(s.ID, l.Dir); alive && p.Start == s.Start {
		_ = syscall.Kill(s.ID, syscall.SIGTERM)
	}
	waiting, cancel := context.WithTimeout(ctx, graceful)
	defer cancel()
	if err := Poll(waiting, func() (bool, error) { return len(l.daemon(part)) == 0, nil }); err == nil {
		return l.reaped(part)
	}
	return l.signal(part, syscall.SIGKILL)
}

// signal reaches every process of a part's daemon; after SIGKILL it waits until they are gone.
func (l *Lab) signal(part string, sig syscall.Signal) error {
	if sig != syscall.SIGKILL {
		for _, p := range l.daemon(part) {
			if err := syscall.Kill(p.PID, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), graceful)
	defer cancel()
	err := Poll(ctx, func() (bool, error) {
		left := l.daemon(part)
		for _, p := range left {
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
		return len(left) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("%s: still running after SIGKILL:%s", part, describe(l.daemon(part)))
	}
	return l.reaped(part)
}

// daemon is what a service manager would signal: of a Salt part all Python processes, jobs too, and
// not what a job started; of masterd everything.
func (l *Lab) daemon(part string) []Process {
	var found []Process
	for _, p := range l.Processes(part) {
		if part == partMasterd || p.isPython() {
			found = append(found, p)
		}
	}
	return found
}

// reaped waits until the operating system has let go of the part's leader, where it is our child.
func (l *Lab) reaped(part string) error {
	l.mu.Lock()
	c := l.procs[part]
	l.mu.Unlock()
	if c != nil {
		select {
		case <-c.ended:
		case <-time.After(graceful):
			return fmt.Errorf("%s is gone but could not be waited for", part)
		}
	}
	return nil
}

// environ is all that a part inherits. SPT_NOENV keeps setproctitle, which Salt uses, from writing
// over the environment that /proc shows, and with it over the marker.
func (l *Lab) environ(part string, as Account) []string {
	return []string{
		"PATH=" + daemonPath,
		"HOME=" + l.path("home", as.Name),
		"USER=" + as.Name,
		"LOGNAME=" + as.Name,
		"LANG=C.UTF-8",
		"PYTHONWARNINGS=ignore",
		"PYTHONDONTWRITEBYTECODE=1",
		"SPT_NOENV=1",
		envMark + "=" + l.Dir,
		envPart + "=" + part,
	}
}

// tail is the end of a part's output and log, for an error that a person reads.
func (l *Lab) tail(part string) string {
	var b bytes.Buffer
	for _, path := range []string{l.OutPath(part), l.LogPath(part)} {
		if text, err := os.ReadFile(path); err == nil && len(text) > 0 {
			fmt.Fprintf(&b, "\n--- %s\n%s", path, lastLines(string(text), 12))
		}
	}
	return b.String()
}

// answers tells whether somebody takes connections there.
func answers(network, address string) bool {
	conn, err := net.DialTimeout(network, address, time.Second)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// logSays tells whether the log has the words at or after the offset.
func logSays(path string, offset int64, words string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return false
	}
	text, err := io.ReadAll(f)
	return err == nil && bytes.Contains(text, []byte(words))
}
