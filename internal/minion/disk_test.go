package minion_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/minion/miniontest"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// smallDisk puts a kit's ledger on a file system of its own, of 4 MiB.
func smallDisk(t *testing.T, flags ...string) *miniontest.Kit {
	t.Helper()
	k := miniontest.New(t, t.TempDir(), flags...)
	must(t, os.MkdirAll(k.Facts.StateDir, 0o700))
	if err := unix.Mount("oduflow-test", k.Facts.StateDir, "tmpfs", 0, "size=4m,mode=700"); err != nil {
		t.Skipf("mounting isn't allowed here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(k.Facts.StateDir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	expect(t, k.Identify(), message.Updated, "")
	return k
}

// fill leaves not one free block, and gives what frees them again.
func fill(t *testing.T, k *miniontest.Kit) (free func()) {
	t.Helper()
	path := k.Ledger("ballast")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	must(t, err)
	block := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(block)
	}
	_ = f.Close()
	return func() { must(t, os.Remove(path)) }
}

func readOnly(t *testing.T, k *miniontest.Kit, on bool) {
	t.Helper()
	flags := uintptr(unix.MS_REMOUNT)
	if on {
		flags |= unix.MS_RDONLY
	}
	must(t, unix.Mount("", k.Facts.StateDir, "", flags, ""))
}

// Issue 5: on a full disk nothing is prepared; what was prepared has room for
// its facts and its result, whenever the disk fills up.
func TestFullDisk(t *testing.T) {
	t.Run("before prepare", func(t *testing.T) {
		k := smallDisk(t)
		canonical, _ := k.Document(threeStates)
		free := fill(t, k)
		request := miniontest.NewUUID()
		expect(t, k.Prepare(request, canonical), message.Refused, problem.LedgerUnwritable)
		expect(t, k.Evidence(request, true), message.Absent, "")
		free()
		expect(t, k.Prepare(request, canonical), message.Prepared, "")
	})
	t.Run("after prepare", func(t *testing.T) {
		k := smallDisk(t)
		request, ticket, canonical := prepared(t, k, threeStates)
		fill(t, k)
		expect(t, k.Start(request, ticket, canonical, succeed(canonical)), message.Finished, "")
		expect(t, k.Evidence(request, true), message.Finished, "")
	})
	t.Run("after the second prepare", func(t *testing.T) {
		k := smallDisk(t)
		request, _, canonical := prepared(t, k, threeStates)
		ticket := k.Prepare(request, canonical).Ticket
		fill(t, k)
		expect(t, k.Start(request, ticket, canonical, succeed(canonical)), message.Finished, "")
	})
	t.Run("during the run", func(t *testing.T) {
		k := smallDisk(t)
		request, ticket, canonical := prepared(t, k, threeStates)
		a := k.Start(request, ticket, canonical, miniontest.Shim{Run: func([]byte) any {
			fill(t, k)
			return miniontest.Results(canonical, "false")
		}})
		expect(t, a, message.Finished, problem.StateFailed)
		expect(t, k.Evidence(request, true), message.Finished, problem.StateFailed)
	})
	t.Run("interrupted, then settled", func(t *testing.T) {
		k := smallDisk(t)
		request, canonical := interrupted(t, k)
		fill(t, k)
		expect(t, k.Evidence(request, true), message.Interrupted, "")
		expectSettled(t, k.Settle(request, canonical, message.OutcomeFailed), message.OutcomeFailed)
	})
	t.Run("fenced", func(t *testing.T) {
		k := smallDisk(t, faults...)
		request, ticket, canonical := prepared(t, k, threeStates)
		fill(t, k)
		plan(t, k, "since_boot_add 130s")
		expect(t, k.Start(request, ticket, canonical, mustNotRun(t)), message.Fenced, problem.StartRefusedTicket)
	})
	t.Run("the folder for the boot", func(t *testing.T) {
		k := newKit(t)
		canonical, _ := k.Document(threeStates)
		must(t, os.MkdirAll(k.Facts.RunDir, 0o700))
		if err := unix.Mount("oduflow-test", k.Facts.RunDir, "tmpfs", 0, "size=16k,mode=700"); err != nil {
			t.Skipf("mounting isn't allowed here: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(k.Facts.RunDir, unix.MNT_DETACH) })
		ballast := filepath.Join(k.Facts.RunDir, "ballast")
		must(t, os.WriteFile(ballast, make([]byte, 16<<10), 0o600))
		expect(t, k.Prepare(miniontest.NewUUID(), canonical), message.Refused, problem.LedgerUnwritable)
		must(t, os.Remove(ballast))
		request, ticket, canonical := prepared(t, k, threeStates)
		must(t, os.WriteFile(ballast, make([]byte, 12<<10), 0o600))
		// Without a witness nothing is handed over, and nothing is claimed.
		q := k.AskStart(request, ticket, canonical)
		said := k.Send(message.Start, q.Text, mustNotRun(t))
		if said.Text != "" && said.Text != "oduflow: rejected ledger_unwritable" {
			t.Errorf("said %q", said.Text)
		}
		if a := k.Evidence(request, true); isTerminal(a) && a.Result == message.Finished {
			t.Errorf("answered %+v", a)
		}
	})
}

// Issue 5: on a read-only disk nothing is prepared or started, and nothing is
// said that could not be kept.
func TestReadOnlyDisk(t *testing.T) {
	k := smallDisk(t, faults...)
	finished, ticket, canonical := prepared(t, k, threeStates)
	expect(t, k.Start(finished, ticket, canonical, succeed(canonical)), message.Finished, "")
	request, ticket, _ := prepared(t, k, threeStates)
	readOnly(t, k, true)
	expect(t, k.Prepare(miniontest.NewUUID(), canonical), message.Refused, problem.LedgerUnwritable)
	expect(t, k.Evidence(finished, true), message.Finished, "")
	expect(t, k.Evidence(request, true), message.NotStartedYet, "")
	q := k.AskStart(request, ticket, canonical)
	if said := k.Send(message.Start, q.Text, mustNotRun(t)); said.Text != "oduflow: unavailable executor_failed" {
		t.Errorf("said %q", said.Text)
	}
	plan(t, k, "since_boot_add 130s")
	e := k.Seal(miniontest.Ask{Kind: message.Evidence, Request: request, Body: message.Body{Fence: true}})
	if said := k.Send(message.Evidence, e.Text, miniontest.Shim{}); said.Text != "oduflow: rejected ledger_unwritable" {
		t.Errorf("said %q", said.Text)
	}
	readOnly(t, k, false)
	expect(t, k.Evidence(request, true), message.Fenced, problem.NeverStarted)
}
