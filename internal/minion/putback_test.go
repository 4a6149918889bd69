package minion_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/minion"
	"github.com/oduflow/oduflow-salt/internal/minion/miniontest"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// snapshot copies a minion's ledger, and putBack puts a copy in its place.
func snapshot(t *testing.T, k *miniontest.Kit) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	must(t, os.CopyFS(to, os.DirFS(k.Facts.StateDir)))
	return to
}

func putBack(t *testing.T, k *miniontest.Kit, from string) {
	t.Helper()
	must(t, os.RemoveAll(k.Facts.StateDir))
	must(t, os.CopyFS(k.Facts.StateDir, os.DirFS(from)))
	must(t, os.Chmod(k.Facts.StateDir, 0o700))
}

// Issue 5, it must show: a ledger restored from a snapshot, never a false
// failed and never a second run. The copy is from between prepare and start.
func TestPutBack(t *testing.T) {
	t.Run("in this boot", func(t *testing.T) {
		k := newKit(t)
		request, ticket, canonical := prepared(t, k, threeStates)
		copied := snapshot(t, k)
		ran := 0
		shim := succeed(canonical)
		shim.Ran = func() { ran++ }
		seen := k.Start(request, ticket, canonical, shim)
		expect(t, seen, message.Finished, "")
		putBack(t, k, copied)
		// The ticket would still live.
		expect(t, k.Start(request, ticket, canonical, shim), message.Finished, "")
		expect(t, k.Evidence(request, true), message.Finished, "")
		expect(t, k.Prepare(request, canonical), message.Finished, "")
		if ran != 1 {
			t.Errorf("ran %d times", ran)
		}
	})
	t.Run("in this boot, interrupted", func(t *testing.T) {
		k := newKit(t)
		request, ticket, canonical := prepared(t, k, threeStates)
		copied := snapshot(t, k)
		k.Send(message.Start, k.AskStart(request, ticket, canonical).Text, miniontest.Shim{Run: func([]byte) any { return miniontest.ErrLeave }})
		seen := k.Evidence(request, true)
		expect(t, seen, message.Interrupted, "")
		putBack(t, k, copied)
		again := k.Prepare(miniontest.NewUUID(), canonical) // the quarantine comes back
		expect(t, again, message.Refused, problem.RecordUnfinished)
		if again.Unfinished != request {
			t.Errorf("blocked by %q", again.Unfinished)
		}
		expect(t, k.Start(request, ticket, canonical, mustNotRun(t)), message.Interrupted, "")
		expectSettled(t, k.Settle(request, canonical, message.OutcomeFailed), message.OutcomeFailed)
	})
	t.Run("while it runs", func(t *testing.T) {
		k := newKit(t)
		request, ticket, canonical := prepared(t, k, threeStates)
		copied := snapshot(t, k)
		var during, other, settled message.Answer
		a := k.Start(request, ticket, canonical, miniontest.Shim{Run: func([]byte) any {
			putBack(t, k, copied) // the lease that is held is no file any more
			during = k.Evidence(request, true)
			other = k.Prepare(miniontest.NewUUID(), canonical)
			settled = k.Settle(request, canonical, message.OutcomeFailed)
			return miniontest.Results(canonical, "true")
		}})
		expect(t, during, message.Running, "")
		expect(t, other, message.Refused, problem.RecordUnfinished)
		expect(t, settled, message.Running, "")
		expect(t, a, message.Finished, "")
		expect(t, k.Evidence(request, true), message.Finished, "")
	})
	t.Run("in this boot, to begun", func(t *testing.T) {
		k := newKit(t)
		request, ticket, canonical := prepared(t, k, threeStates)
		copied := ""
		a := k.Start(request, ticket, canonical, miniontest.Shim{Run: func([]byte) any {
			copied = snapshot(t, k)
			return miniontest.Results(canonical, "true")
		}})
		expect(t, a, message.Finished, "")
		putBack(t, k, copied)
		expect(t, k.Evidence(request, true), message.Finished, "")
		expect(t, k.Prepare(miniontest.NewUUID(), canonical), message.Prepared, "")
	})
	// Between started and begun: the executor that started it gives way.
	t.Run("before the effect", func(t *testing.T) {
		for name, c := range map[string]struct {
			meanwhile func(k *miniontest.Kit, request, copied string)
			answer    message.Result
			code      problem.Code
			later     message.Result
		}{
			"put back": {func(k *miniontest.Kit, _, copied string) {
				putBack(t, k, copied)
			}, message.NotStartedYet, "", message.Fenced},
			"put back and fenced": {func(k *miniontest.Kit, request, copied string) {
				putBack(t, k, copied)
				plan(t, k, "since_boot_add 130s")
				expect(t, k.Evidence(request, true), message.Fenced, problem.NeverStarted)
			}, message.Fenced, problem.NeverStarted, message.Fenced},
			"deleted": {func(k *miniontest.Kit, request, _ string) {
				must(t, os.RemoveAll(k.Ledger("records", request)))
			}, message.Disregarded, "", message.Absent},
		} {
			t.Run(name, func(t *testing.T) {
				k := newKit(t, faults...)
				request, ticket, canonical := prepared(t, k, threeStates)
				copied := snapshot(t, k)
				asked := 0
				shim := mustNotRun(t)
				shim.Between = func() minion.Facts { // before started, and before begun
					if asked++; asked == 2 {
						c.meanwhile(k, request, copied)
					}
					return k.Facts
				}
				expect(t, k.Start(request, ticket, canonical, shim), c.answer, c.code)
				plan(t, k, "since_boot_add 130s")
				if a := k.Evidence(request, true); a.Result != c.later {
					t.Errorf("later it is %s %s", a.Result, a.Code)
				}
				expect(t, k.Prepare(miniontest.NewUUID(), canonical), message.Prepared, "")
			})
		}
	})
	t.Run("in another boot", func(t *testing.T) {
		k := newKit(t, faults...)
		request, ticket, canonical := prepared(t, k, threeStates)
		copied := snapshot(t, k)
		seen := k.Start(request, ticket, canonical, succeed(canonical))
		expect(t, seen, message.Finished, "")
		putBack(t, k, copied)
		must(t, os.RemoveAll(k.Facts.RunDir))
		plan(t, k, "boot_id other")
		a := k.Evidence(request, true)
		expect(t, a, message.Lapsed, "")
		if a.Generation >= seen.Generation {
			t.Errorf("generation %d, and %d was told before", a.Generation, seen.Generation)
		}
		expect(t, k.Start(request, ticket, canonical, mustNotRun(t)), message.Lapsed, "")
		// Nothing is kept from being prepared: masterd has its quarantine.
		expect(t, k.Prepare(miniontest.NewUUID(), canonical), message.Prepared, "")
	})
	t.Run("from before the ticket", func(t *testing.T) {
		k := newKit(t, faults...)
		request, _, canonical := prepared(t, k, threeStates)
		copied := snapshot(t, k)
		second := k.Prepare(request, canonical)
		expect(t, k.Start(request, second.Ticket, canonical, succeed(canonical)), message.Finished, "")
		putBack(t, k, copied)
		must(t, os.RemoveAll(k.Facts.RunDir))
		plan(t, k, "boot_id other")
		// Another ticket than the one that was claimed: not even given up. But it can't
		// start any more, and to say that it may would refuse an operator for ever.
		expect(t, k.Evidence(request, true), message.Lapsed, "")
		expect(t, k.Evidence(request, false), message.NotStartedYet, "")
	})
}

// Ledger deleted: absent proves nothing, and in the same boot it isn't even
// absent.
func TestLedgerDeleted(t *testing.T) {
	k := newKit(t, faults...)
	request, ticket, canonical := prepared(t, k, threeStates)
	expect(t, k.Start(request, ticket, canonical, succeed(canonical)), message.Finished, "")
	must(t, os.RemoveAll(k.Facts.StateDir))
	expect(t, k.Evidence(request, true), message.Refused, problem.LedgerChanged)
	expect(t, k.Start(request, ticket, canonical, mustNotRun(t)), message.Disregarded, "")
	expect(t, k.Prepare(miniontest.NewUUID(), canonical), message.Refused, problem.LedgerChanged)
	expect(t, k.Identify(), message.Updated, "")
	expect(t, k.Evidence(request, true), message.Finished, "")
	expect(t, k.Prepare(request, canonical), message.Finished, "")

	must(t, os.RemoveAll(k.Facts.StateDir))
	must(t, os.RemoveAll(k.Facts.RunDir))
	expect(t, k.Identify(), message.Updated, "")
	expect(t, k.Evidence(request, true), message.Absent, "")
	expect(t, k.Start(request, ticket, canonical, mustNotRun(t)), message.Disregarded, "")
}

// A second minion with the same Salt key and a copy of the ledger: whatever it
// is asked, it runs nothing of what the first one was given, and says nothing
// that could be taken for an outcome of it.
func TestClone(t *testing.T) {
	for name, lines := range map[string][]string{
		"another machine-id": {"machine_id other", "boot_id other"}, "the same machine-id": {"boot_id other"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t, faults...)
			request, ticket, canonical := prepared(t, k, threeStates)
			twin := twinOf(t, k)
			must(t, os.RemoveAll(twin.Facts.RunDir))
			plan(t, twin, lines...)

			q := k.AskStart(request, ticket, canonical)
			expect(t, k.Read(q, k.Send(message.Start, q.Text, succeed(canonical)).Text), message.Finished, "")
			theirs := twin.Read(q, twin.Send(message.Start, q.Text, mustNotRun(t)).Text)
			if isTerminal(theirs) {
				t.Errorf("the second minion answers the start with %s %s", theirs.Result, theirs.Code)
			}
			for range 2 {
				if a := twin.Evidence(request, true); isTerminal(a) {
					t.Errorf("the second minion says %s %s", a.Result, a.Code)
				}
			}
			expect(t, k.Evidence(request, true), message.Finished, "")
			// What is prepared from now on has two answers, which differ.
			other := miniontest.NewUUID()
			ask := k.Seal(miniontest.Ask{Kind: message.Prepare, Request: other, Digest: miniontest.Digest(canonical)})
			one := k.Read(ask, k.Send(message.Prepare, ask.Text, miniontest.Shim{}).Text)
			two := twin.Read(ask, twin.Send(message.Prepare, ask.Text, miniontest.Shim{}).Text)
			if one.Ticket == two.Ticket {
				t.Errorf("two minions answer the same: %+v", two)
			}
			expect(t, twin.Start(other, one.Ticket, canonical, mustNotRun(t)), message.Disregarded, "")
		})
	}
}

// booted lets a kit's executors see another boot id and machine-id, by bind
// mounts in a mount namespace of their own.
func booted(t *testing.T, k *miniontest.Kit, boot, machine string) {
	t.Helper()
	dir := t.TempDir()
	script := ""
	for path, content := range map[string]string{"/proc/sys/kernel/random/boot_id": boot, "/etc/machine-id": machine} {
		if content == "" {
			continue
		}
		file := filepath.Join(dir, filepath.Base(path))
		must(t, os.WriteFile(file, []byte(content+"\n"), 0o444))
		script += "mount --bind " + file + " " + path + " && "
	}
	k.Wrap = []string{"unshare", "--mount", "--propagation", "private", "sh", "-c", script + `exec "$@"`, "sh"}
	if out, err := exec.CommandContext(t.Context(), k.Wrap[0], append(k.Wrap[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("bind mounts in a mount namespace aren't allowed here: %v %s", err, out)
	}
}

// Issue 5, reboot: with the production build, on bind mounts.
func TestReboot(t *testing.T) {
	const boot2, machine2 = "11111111-2222-4333-8444-555555555555", "0123456789abcdef0123456789abcdef"
	t.Run("prepared", func(t *testing.T) {
		k := newKit(t)
		request, ticket, canonical := prepared(t, k, threeStates)
		booted(t, k, boot2, "")
		expect(t, k.Evidence(request, false), message.NotStartedYet, "")
		expect(t, k.Start(request, ticket, canonical, mustNotRun(t)), message.Lapsed, "")
		expect(t, k.Prepare(miniontest.NewUUID(), canonical), message.Prepared, "")
	})
	t.Run("interrupted", func(t *testing.T) {
		k := newKit(t)
		request, canonical := interrupted(t, k)
		booted(t, k, boot2, "")
		expect(t, k.Evidence(request, true), message.Interrupted, "")
		expect(t, k.Prepare(miniontest.NewUUID(), canonical), message.Refused, problem.RecordUnfinished)
		expectSettled(t, k.Settle(request, canonical, message.OutcomeFailed), message.OutcomeFailed)
	})
	t.Run("finished", func(t *testing.T) {
		k := newKit(t)
		request, ticket, canonical := prepared(t, k, threeStates)
		expect(t, k.Start(request, ticket, canonical, succeed(canonical)), message.Finished, "")
		booted(t, k, boot2, "")
		expect(t, k.Evidence(request, true), message.Finished, "")
		expect(t, k.Start(request, ticket, canonical, mustNotRun(t)), message.Finished, "")
	})
	t.Run("another machine", func(t *testing.T) {
		k := newKit(t)
		request, ticket, canonical := prepared(t, k, threeStates)
		booted(t, k, "", machine2)
		expect(t, k.Evidence(request, true), message.Refused, problem.LedgerChanged)
		expect(t, k.Start(request, ticket, canonical, mustNotRun(t)), message.Disregarded, "")
		expect(t, k.Prepare(miniontest.NewUUID(), canonical), message.Refused, problem.LedgerChanged)
		k.Wrap = nil
		expect(t, k.Start(request, ticket, canonical, succeed(canonical)), message.Finished, "")
	})
	// Started and the effect not begun: never_began is proved in its boot only.
	for boot, want := range map[string]message.Result{"": message.NeverBegan, boot2: message.Interrupted} {
		t.Run("started "+boot, func(t *testing.T) {
			k := newKit(t, faults...)
			request, ticket, canonical := prepared(t, k, threeStates)
			plan(t, k, "before:begun.write:"+filepath.Join(t.TempDir(), "struck"))
			k.Send(message.Start, k.AskStart(request, ticket, canonical).Text, mustNotRun(t))
			if boot != "" {
				booted(t, k, boot, "")
			}
			a := k.Evidence(request, true)
			if a.Result != want {
				t.Errorf("answered %s", a.Result)
			}
			expect(t, k.Start(request, ticket, canonical, mustNotRun(t)), want, a.Code)
		})
	}
}

// Old records are read, and newer ones are refused and never taken for absent.
func TestVersions(t *testing.T) {
	k := newKit(t)
	canonical, _ := k.Document(threeStates)
	old := "00000000-0000-4000-8000-00000000000"
	records := os.DirFS("../ledger/testdata/version-1/records")
	must(t, os.CopyFS(k.Ledger("records"), records))
	for n, want := range map[string]message.Result{
		"1": message.Fenced, "2": message.Fenced, "3": message.NeverBegan, "4": message.Finished, "5": message.Finished,
		"6": message.Interrupted, "7": message.Interrupted, "8": message.Lapsed,
	} {
		if a := k.Evidence(old+n, true); a.Result != want {
			t.Errorf("%s: answered %s %s", n, a.Result, a.Code)
		}
	}
	request, ticket, _ := prepared(t, k, threeStates)
	expect(t, k.Start(request, ticket, canonical, succeed(canonical)), message.Finished, "")
	must(t, os.Remove(k.Ledger("records", request, "outcome.json")))
	must(t, os.WriteFile(k.Ledger("records", request, "outcome.json"), []byte(`{"version":3,"kind":"superseded"}`), 0o600))
	q := k.Seal(miniontest.Ask{Kind: message.Evidence, Request: request, Body: message.Body{Fence: true}})
	if said := k.Send(message.Evidence, q.Text, miniontest.Shim{}); said.Text != "oduflow: rejected ledger_newer" {
		t.Errorf("said %q", said.Text)
	}
	expect(t, k.Prepare(request, canonical), message.Refused, problem.LedgerUnwritable)
	start := k.AskStart(request, ticket, canonical)
	if said := k.Send(message.Start, start.Text, mustNotRun(t)); said.Text != "oduflow: rejected ledger_newer" {
		t.Errorf("said %q", said.Text)
	}
	expect(t, k.Settle(request, canonical, message.OutcomeFailed), message.Refused, problem.LedgerUnwritable)
}

// Issue 5, it must show: never a false failed. What masterd knew before its
// question is compared before anything is written: else what this very question
// concludes counts up to that, and where its answer is lost the next one finds a
// ledger that looks whole. The copy is from before the effect, and the folder for
// this boot is put back with it, as in a container.
func TestPutBackCountsNothingUp(t *testing.T) {
	ask := func(k *miniontest.Kit, request string, known uint64) message.Answer {
		q := k.Seal(miniontest.Ask{Kind: message.Evidence, Request: request, Body: message.Body{
			Fence: true, Ledger: identity(t, k), Generation: known,
		}})
		return k.Read(q, k.Send(message.Evidence, q.Text, miniontest.Shim{}).Text)
	}
	for name, c := range map[string]struct {
		between int // the look between two facts of which the copy is
		want    message.Result
	}{
		"to prepared": {1, message.Lapsed},
		"to started":  {2, message.Interrupted},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t, faults...)
			request, ticket, canonical := prepared(t, k, threeStates)
			copied, run, asked := "", filepath.Join(t.TempDir(), "run"), 0
			var known uint64
			shim := miniontest.Shim{Between: func() minion.Facts {
				if asked++; asked == c.between {
					copied = snapshot(t, k)
					must(t, os.CopyFS(run, os.DirFS(k.Facts.RunDir)))
				}
				return k.Facts
			}, Run: func([]byte) any {
				known = k.Evidence(request, true).Generation // running
				return miniontest.ErrLeave
			}}
			k.Send(message.Start, k.AskStart(request, ticket, canonical).Text, shim)
			if known == 0 || copied == "" {
				t.Fatal("it didn't run")
			}
			putBack(t, k, copied)
			must(t, os.RemoveAll(k.Facts.RunDir))
			must(t, os.CopyFS(k.Facts.RunDir, os.DirFS(run)))
			must(t, os.Chmod(k.Facts.RunDir, 0o700))
			plan(t, k, "since_boot_add 130s")
			for range 2 { // the answer to the first may be lost
				a := ask(k, request, known)
				if expect(t, a, c.want, ""); a.Generation >= known {
					t.Errorf("generation %d, known was %d", a.Generation, known)
				}
			}
			q := k.Seal(miniontest.Ask{Kind: message.Prepare, Request: miniontest.NewUUID(), Digest: miniontest.Digest(canonical), Body: message.Body{
				Ledger: identity(t, k), Generation: known,
			}})
			for range 2 {
				a := k.Read(q, k.Send(message.Prepare, q.Text, miniontest.Shim{}).Text)
				if expect(t, a, message.Refused, problem.LedgerChanged); a.Generation >= known {
					t.Errorf("generation %d, known was %d", a.Generation, known)
				}
			}
		})
	}
}

// Issue 5, yesterday's database: masterd has lost the ticket of what was prepared,
// and fences it once any ticket is dead.
func TestPreparedInALostPastIsFenced(t *testing.T) {
	k := newKit(t, faults...)
	canonical, digest := k.Document(threeStates)
	request := miniontest.NewUUID()
	q := k.Seal(miniontest.Ask{Kind: message.Prepare, Request: request, Digest: digest})
	k.Send(message.Prepare, q.Text, miniontest.Shim{})
	expect(t, k.Evidence(request, true), message.NotStartedYet, "") // without a ticket
	plan(t, k, "since_boot_add 130s")
	expect(t, k.Evidence(request, false), message.NotStartedYet, "")
	expect(t, k.Evidence(request, true), message.Fenced, problem.NeverStarted)
	expect(t, k.Prepare(request, canonical), message.Fenced, problem.NeverStarted)
}

// Issue 5: two machines with one ledger. The record of the one that wasn't claimed
// was given up for another request, and that says nothing of the other machine.
func TestGivenUpUnderAnotherTicket(t *testing.T) {
	k := newKit(t, faults...)
	request, ticket, _ := prepared(t, k, threeStates)
	other, _ := k.Document("other:\n  test.nop: []\n")
	if a := k.Prepare(miniontest.NewUUID(), other); a.Result != message.Prepared {
		t.Fatalf("%+v", a)
	}
	ask := func(ticket string) message.Answer {
		q := k.Seal(miniontest.Ask{Kind: message.Evidence, Request: request, Ticket: ticket, Body: message.Body{Fence: true}})
		return k.Read(q, k.Send(message.Evidence, q.Text, miniontest.Shim{}).Text)
	}
	expect(t, ask(ticket), message.Fenced, problem.NeverStarted)
	expect(t, ask("ffffffffffffffffffffffffffffffff"), message.Lapsed, "")
	expect(t, ask(""), message.Fenced, problem.NeverStarted) // of a database that was restored
}

func identity(t *testing.T, k *miniontest.Kit) string {
	t.Helper()
	return k.Identify().Ledger
}
