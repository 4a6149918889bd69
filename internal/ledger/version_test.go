package ledger_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/ledger"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// golden gives a copy of a ledger that an executor of an earlier version wrote.
// testdata holds its files as that executor left them; nothing regenerates
// them. Requests are uuid(1) to uuid(8), each with the state of its number.
func golden(t *testing.T, version string) string {
	t.Helper()
	dir := stateDir(t)
	putBack(t, dir, filepath.Join("testdata", version))
	return dir
}

var goldenStates = map[int]ledger.State{
	1: ledger.Fenced, 2: ledger.Refused, 3: ledger.NeverBegan, 4: ledger.Finished, 5: ledger.Finished,
	6: ledger.Begun, 7: ledger.Started, 8: ledger.Prepared,
}

// A new executor reads what an old one wrote, and goes on with it. What the
// old one didn't witness isn't proved by it: its prepared and started records
// are read, but nothing negative is concluded from them.
func TestVersion1(t *testing.T) {
	l, s := at(t, golden(t, "version-1"), newMachine(), nil)
	defer s.Close()
	id, err := s.Identity()
	if err != nil || id == nil || id.Instance != uuid(999) {
		t.Fatalf("the identity is %+v, %v", id, err)
	}
	for n, want := range goldenStates {
		r := record(t, s, uuid(n))
		if r.State != want || r.Digest != "d-"+uuid(n) || r.Ledger != id.Ledger || r.Instance != uuid(999) {
			t.Errorf("%d: read %+v", n, r)
		}
	}
	if r := record(t, s, uuid(1)); r.Code != problem.StartRefusedLocked {
		t.Errorf("read %+v", r)
	}
	if r := record(t, s, uuid(5)); r.Code != problem.StateFailed || *r.Counts != (message.Counts{Declared: 3, Passed: 1, Failed: 1, NotRun: 1}) {
		t.Errorf("read %+v", r)
	}
	open, err := s.OpenRecords()
	must(t, err)
	if len(open) != 3 {
		t.Errorf("open are %v", open)
	}
	prepared := record(t, s, uuid(8))
	if !prepared.HasTicket("ticket-8") {
		t.Error("its ticket isn't known")
	}
	must(t, s.GiveUp(prepared, problem.NeverStarted))
	if prepared.State != ledger.Lapsed {
		t.Errorf("its prepared record is %s", prepared.State)
	}
	begun := record(t, s, uuid(6))
	must(t, s.Finish(begun, "", message.Counts{Declared: 1, Passed: 1}))
	must(t, settle(t, l, s, record(t, s, uuid(7)), message.OutcomeFailed))
	must(t, s.Prepare(preparation(uuid(9)), "t"))
	if n := s.Counters().Counts["message_unsigned"]; n != 1 {
		t.Errorf("its counters are lost: %d", n)
	}
}

// Files of version 2, as this build writes them, are read as what they are.
func TestVersion2(t *testing.T) {
	l, s := at(t, golden(t, "version-2"), newMachine(), nil)
	defer s.Close()
	for n, want := range goldenStates {
		if r := record(t, s, uuid(n)); r.State != want {
			t.Errorf("%d: read %s", n, r.State)
		}
	}
	if r := record(t, s, uuid(9)); r.State != ledger.Lapsed || r.Code != "" {
		t.Errorf("read %+v", r)
	}
	if r := record(t, s, uuid(10)); r.State != ledger.Settled || r.Outcome != message.OutcomeSucceeded || r.Unfinished() {
		t.Errorf("read %+v", r)
	}
	if n, err := l.Generation(); n != 30 || err != nil {
		t.Errorf("the generation is %d, %v", n, err)
	}
}

// A file of a version to come is refused with a code. It is never taken for one
// that isn't there, whichever it is.
func TestNewerVersion(t *testing.T) {
	for _, file := range []string{"prepared.json", "decision.json", "effect.json", "outcome.json"} {
		dir := golden(t, "version-1")
		path := filepath.Join(dir, "records", uuid(4), file)
		must(t, os.Remove(path))
		must(t, os.WriteFile(path, []byte(`{"version":3,"kind":"superseded"}`), 0o600))
		_, s := at(t, dir, newMachine(), nil)
		if r, err := s.Record(uuid(4)); r != nil || problem.CodeOf(err) != ledger.Newer {
			t.Errorf("%s: read %+v, %v", file, r, err)
		}
		must(t, os.WriteFile(filepath.Join(dir, "open", uuid(4)), nil, 0o600))
		if err := s.Prepare(preparation(uuid(20)), "t"); problem.CodeOf(err) != ledger.Newer {
			t.Errorf("%s: a prepare beside it: %v", file, err)
		}
		s.Close()
	}
}
