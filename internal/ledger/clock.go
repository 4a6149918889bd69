package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// Machine is what the ledger has to know of the machine. Tests replace it.
type Machine struct {
	// BootID names this boot: a ticket is worth nothing after it.
	BootID func() (string, error)
	// SinceBoot is the time since boot, suspension included. No step of the
	// wall clock moves it.
	SinceBoot func() (time.Duration, error)
	// MachineID names this machine; it is hashed before it is kept or told.
	MachineID func() (string, error)
	// Now is the wall clock. It is written down for people and decides nothing.
	Now func() time.Time
}

// ThisMachine is the real one.
func ThisMachine() Machine {
	return Machine{
		BootID: func() (string, error) { return readLine("/proc/sys/kernel/random/boot_id") },
		SinceBoot: func() (time.Duration, error) {
			var ts unix.Timespec
			if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
				return 0, problem.Wrap(problem.MinionUnsupported, err, "the time since boot can't be read")
			}
			return time.Duration(ts.Nano()), nil
		},
		MachineID: func() (string, error) { return readLine("/etc/machine-id") },
		Now:       time.Now, //nolint:forbidigo // the seam itself
	}
}

func readLine(path string) (string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", problem.Wrap(problem.MinionUnsupported, err, "%s can't be read", path)
	}
	line := strings.TrimSpace(string(raw))
	if line == "" {
		return "", problem.New(problem.MinionUnsupported, "%s is empty", path)
	}
	return line, nil
}

const machineDomain = "oduflow-salt machine v1\x00"

// hashed gives what is kept and told of the machine-id, which is itself to be
// kept from the network (machine-id(5)).
func (m Machine) hashed() (string, error) {
	id, err := m.MachineID()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(machineDomain + id))
	return hex.EncodeToString(sum[:16]), nil
}
