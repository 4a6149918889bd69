//go:build salt

package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/oduflow/oduflow-salt/test/oduflow"
)

// ledgerDiskFaults are for the disk under a ledger, which moves to a file
// system of its own for them.
func ledgerDiskFaults() []fault {
	fill := func(c *trial, state string) {
		ballast := filepath.Join(state, ".ballast")
		_ = os.WriteFile(ballast, make([]byte, 8<<20), 0o600) // as much as there is room for
		c.undo = append(c.undo, func() { _ = os.Remove(ballast) })
	}
	return []fault{
		{
			step: "ledger's disk", what: "full before prepare", sample: true, want: refusedWith("ledger_unwritable"),
			strike: func(c *trial) { fill(c, c.smallLedger()); c.call(); c.await() },
		},
		{
			step: "ledger's disk", what: "full between prepare and start", sample: true, want: succeeds(),
			strike: func(c *trial) {
				state := c.smallLedger()
				mark := c.plan("before", "claim", "wait")
				c.call()
				c.struck(mark)
				fill(c, state)
				touch(c.T, mark+".go")
				c.await()
			},
		},
		{
			step: "ledger's disk", what: "read-only from prepare on, until asked", slow: true, want: failsWith("never_started"),
			strike: func(c *trial) {
				state := c.smallLedger()
				mark := c.plan("before", "claim", "wait")
				c.call()
				c.struck(mark)
				c.run("/bin/mount", "-o", "remount,ro", state)
				c.looks = len(events.returns(name(c.i), evidence))
				touch(c.T, mark+".go")
				c.startPublished()
				c.after = func(c *trial) {
					c.returned(evidence, 150*time.Second, c.looks) // the look at 30 s, which proves nothing
					c.run("/bin/mount", "-o", "remount,rw", state)
				}
			},
		},
		{
			step: "ledger's disk", what: "read-only in the effect", sample: true, want: nobodyKnows(1),
			strike: func(c *trial) {
				state := c.smallLedger()
				c.holds()
				c.call()
				c.running()
				answers := len(events.returns(name(c.i), start))
				// The job holds the lease's file open for writing, so the file system
				// itself can't be remounted. A second mount of it can be read-only.
				c.run("/bin/mount", "--bind", state, state)
				c.run("/bin/mount", "-o", "remount,bind,ro", state)
				c.letGo()
				c.returned(start, 60*time.Second, answers)
				c.await() // its executor has given up: nobody will write the outcome any more
				c.run("/bin/umount", state)
			},
		},
	}
}

// smallLedger moves the minion's ledger to a small file system of its own until
// the trial is cleared.
func (c *trial) smallLedger() (state string) {
	c.Helper()
	state = salt.MinionDir(c.i).State
	kept := filepath.Join(c.dir, "ledger")
	c.run("/bin/cp", "-a", state, kept)
	c.run("/bin/mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "oduflow-faults", state)
	c.undo = append(c.undo, func() {
		c.run("/bin/cp", "-a", state+"/.", kept)
		c.run("/bin/umount", "-l", state)
		c.run("/bin/cp", "-a", kept+"/.", state)
	})
	c.run("/bin/cp", "-a", kept+"/.", state)
	return state
}

// run runs a program as whoever has the lab's minions.
func (c *trial) run(words ...string) {
	c.Helper()
	if r, err := salt.Run(context.Background(), salt.Caller, words[0], words[1:]...); err != nil || r.Code != 0 {
		c.Fatalf("%v: %v %s", words, err, r.Stderr)
	}
}

// masterdDiskFaults fill the disk under the receipt database, which lies on a
// small file system of its own from the start (smallDatabase).
func masterdDiskFaults() []fault {
	full := func(c *trial) (empty func()) {
		ballast := filepath.Join(salt.MasterdDir(), ".ballast")
		empty = func() {
			if err := os.Remove(ballast); err != nil && !errors.Is(err, os.ErrNotExist) {
				c.Error(err)
			}
		}
		c.undo = append(c.undo, empty)
		if err := os.WriteFile(ballast, make([]byte, 2*databaseDisk), 0o600); !errors.Is(err, syscall.ENOSPC) {
			c.Errorf("the disk isn't full: %v", err)
		}
		return empty
	}
	// Whatever SQLite's log has room for is gone with a clean end.
	fresh := func(c *trial) {
		if err := salt.StopMasterd(c.Context()); err != nil {
			c.Error(err)
		}
		c.startMasterd()
	}
	stuck := func(c *trial) { // a write of this receipt's failed
		c.until("masterd to find that it can't write", 60*time.Second, func() bool {
			return c.logged("a receipt must be read again")
		})
	}
	return []fault{
		{
			step: "masterd's disk", what: "full when a request comes", alone: true, sample: true, want: succeeds(),
			strike: func(c *trial) {
				fresh(c)
				empty := full(c)
				var refused *oduflow.Refusal
				c.until("a request to be refused", 60*time.Second, func() bool {
					_, err := odoo.CustomStart(c.Context(), c.start)
					return errors.As(err, &refused)
				})
				if refused.Status != http.StatusServiceUnavailable || refused.Code != "not_writable" {
					c.Errorf("refused with %v", refused)
				}
				empty()
				c.call()
				c.await()
			},
		},
		{
			step: "masterd's disk", what: "full between prepare and claim", alone: true, want: succeeds(),
			strike: func(c *trial) {
				fresh(c)
				mark := c.plan("before", "claim", "wait")
				c.call()
				c.struck(mark)
				empty := full(c)
				touch(c.T, mark+".go")
				stuck(c)
				empty()
				c.await()
			},
		},
		{
			step: "masterd's disk", what: "full when the answer comes", alone: true, sample: true, want: succeeds(),
			strike: func(c *trial) {
				fresh(c)
				c.holds()
				c.call()
				c.running()
				c.awaitStatus("running")
				empty := full(c)
				c.letGo()
				stuck(c)
				empty()
				c.await()
			},
		},
	}
}

// logged says that masterd wrote a line about this trial's request that holds
// the words.
func (c *trial) logged(words string) bool {
	raw, err := os.ReadFile(salt.OutPath("masterd"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(raw)) {
		if strings.Contains(line, words) && strings.Contains(line, c.start.Request) {
			return true
		}
	}
	return false
}

// databaseDisk is what the receipt database has room for.
const databaseDisk = 32 << 20

// smallDatabase moves the receipt database to a small file system of its own.
// masterd has to be stopped. What it gives has to be called before the lab is
// taken down.
func smallDatabase(ctx context.Context) (undo func(), err error) {
	dir, kept := salt.MasterdDir(), filepath.Join(work, "database")
	for _, words := range [][]string{
		{"/bin/cp", "-a", dir, kept},
		{"/bin/mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d,mode=0700,uid=%d,gid=%d", databaseDisk, salt.Masterd.UID, salt.Masterd.GID), "oduflow-faults", dir},
		{"/bin/cp", "-a", kept + "/.", dir},
	} {
		r, err := salt.Run(ctx, salt.Caller, words[0], words[1:]...)
		if err != nil {
			return nil, err
		}
		if r.Code != 0 {
			return nil, fmt.Errorf("%v: %s", words, r.Stderr)
		}
	}
	return func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }, nil
}

// canMount says whether file systems can be mounted here.
func canMount() bool {
	if os.Geteuid() != 0 {
		return false
	}
	dir, err := os.MkdirTemp(work, "mount-")
	if err != nil || syscall.Mount("oduflow-faults", dir, "tmpfs", 0, "size=64k") != nil {
		return false
	}
	return syscall.Unmount(dir, 0) == nil
}
