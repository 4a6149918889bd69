//go:build faults

package minion

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/oduflow/oduflow-salt/internal/fault"
	"github.com/oduflow/oduflow-salt/internal/ledger"
	"github.com/oduflow/oduflow-salt/internal/message"
)

// FaultFile is what a build with the tag "faults" reads in the minion's
// oduflow.etc_dir, since the shim hands no environment down. A line is one of
//
//	PHASE:STEP:MARKER[:ACTION]
//	boot_id VALUE
//	machine_id VALUE
//	since_boot_add DURATION
//
// PHASE is before or after. STEP is a step's name, or KIND/STEP for one in a
// conversation of that kind alone. ACTION is kill (the default: SIGKILL of the
// executor), killparent (of the Salt process, then the executor ends by
// itself), stop (SIGSTOP of the executor) or fail (the step reports an error).
// It happens once: MARKER is created just before, and where it exists nothing
// happens.
const FaultFile = "fault"

func breakable(h Host, kind message.Kind, facts Facts) Host {
	raw, err := os.ReadFile(filepath.Join(facts.EtcDir, FaultFile))
	if err != nil {
		return h
	}
	var plan []planned
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		key, value, _ := strings.Cut(line, " ")
		switch key {
		case "boot_id":
			h.Machine.BootID = func() (string, error) { return value, nil }
		case "machine_id":
			h.Machine.MachineID = func() (string, error) { return value, nil }
		case "since_boot_add":
			add, err := time.ParseDuration(value)
			if err != nil {
				continue
			}
			real := h.Machine.SinceBoot
			h.Machine.SinceBoot = func() (time.Duration, error) {
				d, err := real()
				return d + add, err
			}
		default:
			parts := strings.SplitN(line, ":", 4)
			if len(parts) < 3 {
				continue
			}
			p := planned{phase: ledger.Phase(parts[0]), step: fault.Step(parts[1]), marker: parts[2], action: "kill"}
			if only, step, ok := strings.Cut(parts[1], "/"); ok {
				if only != string(kind) {
					continue
				}
				p.step = fault.Step(step)
			}
			if len(parts) == 4 {
				p.action = parts[3]
			}
			plan = append(plan, p)
		}
	}
	h.Hook = func(step fault.Step, phase ledger.Phase) error {
		for _, p := range plan {
			if p.step == step && p.phase == phase {
				if err := p.strike(); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return h
}

type planned struct {
	phase  ledger.Phase
	step   fault.Step
	marker string
	action string
}

func (p planned) strike() error {
	f, err := os.OpenFile(p.marker, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil
	}
	_ = f.Close()
	switch p.action {
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "killparent":
		if pid := os.Getppid(); pid > 1 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	case "stop":
		// To this very thread, which takes no further step then. A signal to the
		// process may stop it by another thread, and on a loaded machine late.
		runtime.LockOSThread()
		_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
		runtime.UnlockOSThread()
	case "fail":
		return errors.New("a planned fault")
	}
	return nil
}
