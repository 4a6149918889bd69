package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The environment variables that mark every process of a lab.
const (
	envMark = "ODUFLOW_LAB"      // the lab's folder
	envPart = "ODUFLOW_LAB_PART" // "master", "minion-1", "api", "masterd", "command"
)

// Process is one process of a lab, as /proc shows it.
type Process struct {
	PID     int
	Parent  int
	Session int
	Start   uint64 // ticks since boot; tells a process from a later one with its pid
	Part    string // what started it, "" where the marker was not inherited
	Exe     string
	Command string
	Marked  bool // carries this lab's marker
}

// isPython tells the Salt daemons and jobs from what a state started, such as apt or sleep. A
// process that is just ending has no program any more and is counted, so that waiting for a daemon's
// end includes it.
func (p Process) isPython() bool {
	return p.Exe == "" || strings.HasPrefix(filepath.Base(p.Exe), "python")
}

// snapshot lists all processes that can be looked at, zombies left out. A process that ends while
// it is read is not in the list.
func snapshot(dir string) []Process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []Process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid, dir); ok {
			all = append(all, p)
		}
	}
	return all
}

func readProcess(pid int, dir string) (Process, bool) {
	base := "/proc/" + strconv.Itoa(pid)
	stat, err := os.ReadFile(base + "/stat")
	if err != nil {
		return Process{}, false
	}
	// The name in brackets may hold anything; what follows the last bracket is numbers.
	_, rest, found := bytes.Cut(stat[max(bytes.LastIndexByte(stat, ')'), 0):], []byte(") "))
	fields := strings.Fields(string(rest))
	if !found || len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return Process{}, false
	}
	p := Process{PID: pid}
	p.Parent, _ = strconv.Atoi(fields[1])
	p.Session, _ = strconv.Atoi(fields[3])
	p.Start, _ = strconv.ParseUint(fields[19], 10, 64)
	p.Exe, _ = os.Readlink(base + "/exe")
	if cmdline, err := os.ReadFile(base + "/cmdline"); err == nil {
		p.Command = strings.TrimSpace(strings.ReplaceAll(string(cmdline), "\x00", " "))
	}
	if environ, err := os.ReadFile(base + "/environ"); err == nil {
		for _, item := range strings.Split(string(environ), "\x00") {
			if value, ok := strings.CutPrefix(item, envMark+"="); ok {
				p.Marked = value == dir
			} else if value, ok := strings.CutPrefix(item, envPart+"="); ok {
				p.Part = value
			}
		}
	}
	if !p.Marked {
		p.Part = ""
	}
	return p, true
}

// session names a session that the lab made, and the leader that made it.
type session struct {
	ID    int    `json:"id"`
	Start uint64 `json:"start"`
}

// members picks a lab's processes out of all: those that carry its marker, those whose program lies
// in its folder, those of its sessions, and whatever descends from one of these. The caller and its
// ancestors are never among them, so that a shell with the marker in its environment can run
// `lab down`.
func members(all []Process, dir string, sessions []session) []Process {
	byPID := make(map[int]Process, len(all))
	children := make(map[int][]int)
	for _, p := range all {
		byPID[p.PID] = p
		children[p.Parent] = append(children[p.Parent], p.PID)
	}
	spared := map[int]bool{0: true, 1: true, 2: true}
	for pid := os.Getpid(); pid > 1 && !spared[pid]; pid = byPID[pid].Parent {
		spared[pid] = true
	}
	mine := make(map[int]bool)
	var queue []int
	for _, p := range all {
		if p.Marked || strings.HasPrefix(p.Exe, dir+"/") || inSessions(p, byPID, sessions) {
			queue = append(queue, p.PID)
		}
	}
	for len(queue) > 0 {
		pid := queue[0]
		queue = queue[1:]
		if mine[pid] || spared[pid] {
			continue
		}
		mine[pid] = true
		queue = append(queue, children[pid]...)
	}
	var found []Process
	for _, p := range all {
		if mine[p.PID] {
			found = append(found, p)
		}
	}
	return found
}

// inSessions is careful with numbers: the kernel gives a session's number to nobody else while the
// session has members, but a session that is gone may have left its number to another leader.
func inSessions(p Process, byPID map[int]Process, sessions []session) bool {
	i := slices.IndexFunc(sessions, func(s session) bool { return s.ID == p.Session })
	if i < 0 {
		return false
	}
	leader, alive := byPID[p.Session]
	return !alive || leader.Start == sessions[i].Start
}

// killAll kills until two looks in a row found nothing, since what is being killed may fork. It
// returns what was still there after the limit.
func killAll(dir string, sessions []session, limit time.Duration) []Process {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var left []Process
	quiet := 0
	_ = Poll(ctx, func() (bool, error) {
		left = members(snapshot(dir), dir, sessions)
		for _, p := range left {
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
		if len(left) > 0 {
			quiet = 0
			return false, nil
		}
		quiet++
		return quiet == 2, nil
	})
	return left
}

func describe(processes []Process) string {
	var b strings.Builder
	for _, p := range processes {
		fmt.Fprintf(&b, "\n  pid %d (%s): %.120s", p.PID, p.Part, p.Command)
	}
	return b.String()
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(len(lines)-n, 0):], "\n")
}
