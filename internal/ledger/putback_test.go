package ledger_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/ledger"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// snapshot copies a ledger's folder, and putBack puts the copy in its place. A
// nil copy is a ledger that was deleted.
func snapshot(t testing.TB, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	must(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

func putBack(t testing.TB, dir, from string) {
	t.Helper()
	must(t, os.RemoveAll(dir))
	if from == "" {
		return
	}
	must(t, os.CopyFS(dir, os.DirFS(from)))
	must(t, os.Chmod(dir, 0o700))
}

func settle(t testing.TB, l *ledger.Ledger, s *ledger.Session, r *ledger.Record, o message.Outcome) error {
	t.Helper()
	lease, err := l.ProbeLease()
	must(t, err)
	defer lease.Release()
	return s.Settle(r, o, lease)
}

// Invariants 1 and 3, A21: a ledger that is put back from any moment before
// the effect, or deleted, knows again in the same boot that the effect began,
// and what came of it. It can't be started a second time, and is never fenced.
func TestPutBackInThisBoot(t *testing.T) {
	counts := message.Counts{Declared: 1, Failed: 1}
	for _, from := range []string{"deleted", "before", "an earlier ticket", "prepared", "started"} {
		for _, end := range []ledger.State{ledger.Begun, ledger.Finished, ledger.Settled} {
			t.Run(fmt.Sprintf("%s, %s", from, end), func(t *testing.T) {
				dir, m := stateDir(t), newMachine()
				copies := map[string]string{}
				keep := func(name string) { copies[name] = snapshot(t, dir) }
				l, s := at(t, dir, m, nil)
				keep("before")
				must(t, s.Prepare(preparation(uuid(1)), "earlier"))
				keep("an earlier ticket")
				must(t, s.Prepare(preparation(uuid(1)), "ticket"))
				keep("prepared")
				r := record(t, s, uuid(1))
				must(t, s.Start(r))
				keep("started")
				must(t, s.Begin(r))
				switch end { //nolint:exhaustive // the ends of a run
				case ledger.Finished:
					must(t, s.Finish(r, problem.StateFailed, counts))
				case ledger.Settled:
					must(t, settle(t, l, s, r, message.OutcomeSucceeded))
				}
				seen, err := l.Generation()
				must(t, err)
				s.Close()
				putBack(t, dir, copies[from])

				l, s = at(t, dir, m, nil)
				defer s.Close()
				if now, err := l.Generation(); err != nil || now >= seen {
					t.Errorf("the generation is %d, %v, and %d was told before", now, err, seen)
				}
				open, err := s.OpenRecords()
				must(t, err)
				r = record(t, s, uuid(1))
				if r.State != end || !r.HasTicket("ticket") || r.Digest != "d-"+uuid(1) {
					t.Errorf("the record is %+v", r)
				}
				switch end { //nolint:exhaustive // as above
				case ledger.Begun:
					if len(open) != 1 || !open[0].Unfinished() {
						t.Errorf("open are %v: another request would be prepared", open)
					}
				case ledger.Finished:
					if r.Code != problem.StateFailed || *r.Counts != counts {
						t.Errorf("the record is %+v", r)
					}
				case ledger.Settled:
					if r.Outcome != message.OutcomeSucceeded {
						t.Errorf("the record is %+v", r)
					}
				}
				for name, err := range map[string]error{
					"start": s.Start(r), "give up": s.GiveUp(r, problem.NeverStarted), "begin": s.Begin(r),
				} {
					if !ledger.IsTaken(err) {
						t.Errorf("%s: %v", name, err)
					}
				}
			})
		}
	}
}

// While it runs: the ledger is put back under a run. Its end is known, and the
// executor that lives is known to live, whatever the lease's file says.
func TestPutBackUnderARun(t *testing.T) {
	dir, m := stateDir(t), newMachine()
	l, s := at(t, dir, m, nil)
	must(t, s.Prepare(preparation(uuid(1)), "ticket"))
	copied := snapshot(t, dir)
	r := record(t, s, uuid(1))
	must(t, s.Start(r))
	must(t, s.Begin(r))
	if !l.Alive(uuid(1)) || l.Alive(uuid(2)) {
		t.Error("a living executor isn't told from a dead one")
	}
	s.Close()
	putBack(t, dir, copied)
	other, s := at(t, dir, m, nil)
	if !other.Alive(uuid(1)) {
		t.Error("after it was put back, the executor isn't found")
	}
	s.Close()
	s, err := l.Lock(t.Context())
	must(t, err)
	defer s.Close()
	must(t, s.Finish(r, "", message.Counts{Declared: 1, Passed: 1}))
	if r := record(t, s, uuid(1)); r.State != ledger.Finished {
		t.Errorf("the record is %s", r.State)
	}
	if l.Alive(uuid(1)) {
		t.Error("a finished run counts as one that lives")
	}
}

// Two executors with one ticket, of which each sees another folder: one effect.
func TestOneWitness(t *testing.T) {
	dir, m := stateDir(t), newMachine()
	_, s := at(t, dir, m, nil)
	must(t, s.Prepare(preparation(uuid(1)), "ticket"))
	copied := snapshot(t, dir)
	one := record(t, s, uuid(1))
	must(t, s.Start(one))
	s.Close()
	putBack(t, dir, copied)
	_, s = at(t, dir, m, nil)
	defer s.Close()
	two := record(t, s, uuid(1))
	must(t, s.Start(two))
	must(t, s.Begin(two))
	if err := s.Begin(one); !ledger.IsTaken(err) {
		t.Errorf("the second one begins: %v", err)
	}
	must(t, os.Remove(filepath.Join(dir, "records", uuid(1), "effect.json")))
	if err := s.Begin(one); !ledger.IsTaken(err) {
		t.Errorf("the second one begins where the fact is lost: %v", err)
	}
}

// A copy from before the effect, put back before the effect: nothing ran, and
// that is proved.
func TestPutBackBeforeTheEffect(t *testing.T) {
	dir, m := stateDir(t), newMachine()
	_, s := at(t, dir, m, nil)
	must(t, s.Prepare(preparation(uuid(1)), "ticket"))
	copied := snapshot(t, dir)
	must(t, s.Start(record(t, s, uuid(1))))
	s.Close()
	putBack(t, dir, copied)
	_, s = at(t, dir, m, nil)
	defer s.Close()
	r := record(t, s, uuid(1))
	must(t, s.GiveUp(r, problem.NeverStarted))
	if r.State != ledger.Fenced || r.Code != problem.NeverStarted {
		t.Errorf("the record is %+v", r)
	}
}

// Invariant 3: after the boot in which the ticket was given, or where the
// witnesses of that boot were taken away, a ledger can't tell whether it was
// put back. It proves nothing then: neither that nothing started nor that
// nothing began.
func TestNothingIsProvedLater(t *testing.T) {
	for name, change := range map[string]func(dir string, m *fakeMachine){
		"another boot":      func(_ string, m *fakeMachine) { m.boot, m.since = "boot-2", time.Minute },
		"no witness folder": func(dir string, _ *fakeMachine) { must(t, os.RemoveAll(runDir(dir))) },
		"another one's boot": func(dir string, _ *fakeMachine) {
			must(t, os.WriteFile(filepath.Join(runDir(dir), "id"), []byte("x"), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, m := stateDir(t), newMachine()
			_, s := at(t, dir, m, nil)
			must(t, s.Prepare(preparation(uuid(1)), "one"))
			must(t, s.Start(record(t, s, uuid(1))))
			must(t, s.Prepare(preparation(uuid(2)), "two"))
			s.Close()
			change(dir, m)
			l, s := at(t, dir, m, nil)
			defer s.Close()
			r := record(t, s, uuid(2))
			if lives, err := s.TicketLives(r); lives || err != nil {
				t.Errorf("a ticket lives: %v", err)
			}
			must(t, s.GiveUp(r, problem.StartRefusedTicket))
			if r.State != ledger.Lapsed || r.Code != "" || record(t, s, uuid(2)).State != ledger.Lapsed {
				t.Errorf("the prepared one is %s", r.State)
			}
			if err := s.Start(r); !ledger.IsTaken(err) {
				t.Errorf("a lapsed one starts: %v", err)
			}
			r = record(t, s, uuid(1))
			lease, err := l.ProbeLease()
			must(t, err)
			must(t, s.NeverBegan(r, lease))
			lease.Release()
			if r.State != ledger.Started || !r.Unfinished() {
				t.Errorf("the started one is %s", r.State)
			}
			must(t, settle(t, l, s, r, message.OutcomeFailed))
			open, err := s.OpenRecords()
			must(t, err)
			if r := record(t, s, uuid(1)); r.State != ledger.Settled || r.Unfinished() || len(open) != 0 {
				t.Errorf("after its settlement the record is %s, and open are %v", r.State, open)
			}
		})
	}
}

// A prepare that supersedes a record of an earlier boot proves nothing of it
// either.
func TestPrepareLapsesWhatItCantProve(t *testing.T) {
	dir, m := stateDir(t), newMachine()
	_, s := at(t, dir, m, nil)
	defer s.Close()
	must(t, s.Prepare(preparation(uuid(1)), "one"))
	m.boot = "boot-2"
	must(t, s.Prepare(preparation(uuid(2)), "two"))
	if r := record(t, s, uuid(1)); r.State != ledger.Lapsed {
		t.Errorf("the record is %s", r.State)
	}
	must(t, s.Prepare(preparation(uuid(3)), "three"))
	if r := record(t, s, uuid(2)); r.State != ledger.Fenced {
		t.Errorf("the record is %s", r.State)
	}
}

// What contradicts itself is no proof of anything.
func TestWitnessAgainstAFence(t *testing.T) {
	dir, m := stateDir(t), newMachine()
	_, s := at(t, dir, m, nil)
	defer s.Close()
	must(t, s.Prepare(preparation(uuid(1)), "one"))
	must(t, s.Fence(record(t, s, uuid(1)), problem.NeverStarted))
	for name, content := range map[string]string{
		"a witness": `{"version":1,"prepared":{"version":1,"request":"` + uuid(1) + `"}}`, "garbage": "x",
		"of tomorrow": `{"version":2}`, "of another": `{"version":1,"prepared":{"version":1,"request":"` + uuid(2) + `"}}`,
	} {
		must(t, os.WriteFile(filepath.Join(runDir(dir), "begun", uuid(1)), []byte(content), 0o600))
		if r, err := s.Record(uuid(1)); r != nil || problem.CodeOf(err) != ledger.Damaged {
			t.Errorf("%s: read %+v, %v", name, r, err)
		}
	}
}

// The folder for the boot has to be ours alone, and nothing is prepared
// without it.
func TestForeignRunFolder(t *testing.T) {
	dir, m := stateDir(t), newMachine()
	must(t, os.MkdirAll(runDir(dir), 0o700))
	must(t, os.Chmod(runDir(dir), 0o770))
	_, s := at(t, dir, m, nil)
	defer s.Close()
	if err := s.Prepare(preparation(uuid(1)), "one"); problem.CodeOf(err) != problem.LedgerUnwritable {
		t.Error(err)
	}
	must(t, os.RemoveAll(runDir(dir)))
	must(t, os.WriteFile(runDir(dir), nil, 0o600))
	if err := s.Prepare(preparation(uuid(1)), "one"); err == nil {
		t.Error("prepared without a folder for the boot")
	}
	if r, err := s.Record(uuid(1)); r != nil || err != nil {
		t.Errorf("a refused prepare left %+v, %v", r, err)
	}
}

// A settlement and the record's own outcome exclude each other, and neither is
// ever changed.
func TestSettle(t *testing.T) {
	l, s := at(t, stateDir(t), newMachine(), nil)
	defer s.Close()
	counts := message.Counts{Declared: 1, Passed: 1}
	begun := func(n int) *ledger.Record {
		must(t, s.Prepare(preparation(uuid(n)), "t"))
		r := record(t, s, uuid(n))
		must(t, s.Start(r))
		must(t, s.Begin(r))
		return r
	}
	r := begun(1)
	late := *r
	must(t, settle(t, l, s, r, message.OutcomeFailed))
	if err := s.Finish(&late, "", counts); !ledger.IsTaken(err) {
		t.Errorf("a late finish: %v", err)
	}
	if err := settle(t, l, s, &late, message.OutcomeSucceeded); !ledger.IsTaken(err) {
		t.Errorf("another settlement: %v", err)
	}
	if r = record(t, s, uuid(1)); r.State != ledger.Settled || r.Outcome != message.OutcomeFailed || r.FinishedAt.IsZero() {
		t.Errorf("the record is %+v", r)
	}
	r = begun(2)
	late = *r
	must(t, s.Finish(r, "", counts))
	if err := settle(t, l, s, &late, message.OutcomeFailed); !ledger.IsTaken(err) {
		t.Errorf("a settlement of what is finished: %v", err)
	}
	r = begun(3)
	for name, err := range map[string]error{
		"no lease": s.Settle(r, message.OutcomeFailed, nil), "no outcome": settle(t, l, s, r, "maybe"),
		"not started": func() error {
			must(t, settle(t, l, s, record(t, s, uuid(3)), message.OutcomeFailed))
			must(t, s.Prepare(preparation(uuid(4)), "t"))
			return settle(t, l, s, record(t, s, uuid(4)), message.OutcomeFailed)
		}(),
	} {
		if problem.CodeOf(err) != problem.Internal {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// It only grows, with every fact.
func TestGeneration(t *testing.T) {
	dir, m := stateDir(t), newMachine()
	l, s := at(t, dir, m, nil)
	defer s.Close()
	last, err := l.Generation()
	if last != 0 || err != nil {
		t.Errorf("a new ledger has the generation %d, %v", last, err)
	}
	grows := func(err error) {
		t.Helper()
		must(t, err)
		now, err := l.Generation()
		if err != nil || now <= last {
			t.Errorf("from %d to %d, %v", last, now, err)
		}
		last = now
	}
	_, err = s.Adopt(uuid(999))
	grows(err)
	grows(s.Prepare(preparation(uuid(1)), "t"))
	r := record(t, s, uuid(1))
	grows(s.Start(r))
	grows(s.Begin(r))
	grows(s.Finish(r, "", message.Counts{Declared: 1, Passed: 1}))
	must(t, os.WriteFile(filepath.Join(dir, "generation.json"), []byte("x"), 0o600))
	if err := s.Prepare(preparation(uuid(2)), "t"); err == nil {
		t.Error("a damaged generation counts on")
	}
}
