//go:build faults

package fault

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"time"
)

// Two ways to plan faults:
//
//	ODUFLOW_FAULT=PHASE:STEP:MARKER       kills this process with SIGKILL
//	ODUFLOW_FAULTS=FILE                   a file with lines
//	                                      PHASE:STEP[@TARGET]:MARKER[:ACTION]
//
// The file is read again at each step, so that a test plans a fault for a
// masterd that runs. PHASE is before, after or told. ACTION is kill (the
// default) or wait (until MARKER.go is there); at told it is always that the
// step was taken and is reported as failed. Each happens once: MARKER is
// created just before, and where it exists nothing happens, so that a restarted
// process gets past the point.
const (
	one  = "ODUFLOW_FAULT"
	many = "ODUFLOW_FAULTS"
)

type planned struct{ phase, step, marker, action string }

func plan() []planned {
	lines := os.Getenv(one)
	if path := os.Getenv(many); path != "" {
		if raw, err := os.ReadFile(path); err == nil { // #nosec G703 -- whoever starts a build that can be broken may break it
			lines += "\n" + string(raw)
		}
	}
	var all []planned
	for line := range strings.Lines(lines) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 4)
		if len(parts) < 3 {
			continue
		}
		p := planned{parts[0], parts[1], parts[2], "kill"}
		if len(parts) == 4 {
			p.action = parts[3]
		}
		all = append(all, p)
	}
	return all
}

// On names the step as it is taken for one target.
func (s Step) On(target string) Step { return s + "@" + Step(target) }

// Before marks that a step is about to be taken.
func Before(s Step) { at("before", s) }

// After marks that a step was taken.
func After(s Step) { at("after", s) }

// Told gives what is told of a step that was taken: err, or where it succeeded
// and a fault is planned, that it failed.
func Told(s Step, err error) error {
	for _, p := range plan() {
		if err == nil && p.hits("told", s) {
			return errors.New("a planned fault: the step was taken and is reported as failed")
		}
	}
	return err
}

func at(phase string, s Step) {
	for _, p := range plan() {
		if !p.hits(phase, s) {
			continue
		}
		if p.action == "wait" {
			for _, err := os.Stat(p.marker + ".go"); err != nil; _, err = os.Stat(p.marker + ".go") {
				time.Sleep(20 * time.Millisecond) //nolint:forbidigo // a test holds this process at this point
			}
			continue
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// hits says that a planned fault is due here, and takes its marker.
func (p planned) hits(phase string, s Step) bool {
	step, _, _ := strings.Cut(string(s), "@")
	if p.phase != phase || p.step != string(s) && p.step != step {
		return false
	}
	f, err := os.OpenFile(p.marker, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return false
	}
	return f.Close() == nil
}
