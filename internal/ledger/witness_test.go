package ledger_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/ledger"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// What a record and a witness made by itself say, so that it can be seen which
// of the two is believed.
var (
	recordCounts  = message.Counts{Declared: 1, Passed: 1}
	witnessCounts = message.Counts{Declared: 1, Failed: 1}
)

// lifeUntil makes a ledger in which one request got as far as a state, under a
// ticket, and gives its folder.
func lifeUntil(t *testing.T, state ledger.State, ticket string, code problem.Code, counts message.Counts, o message.Outcome) string {
	t.Helper()
	dir, m := stateDir(t), newMachine()
	l, s := at(t, dir, m, nil)
	defer s.Close()
	if state == "" {
		return dir
	}
	must(t, s.Prepare(preparation(uuid(1)), ticket))
	r := record(t, s, uuid(1))
	switch state { //nolint:exhaustive // those that end before it starts
	case ledger.Prepared:
		return dir
	case ledger.Fenced:
		must(t, s.Fence(r, problem.NeverStarted))
		return dir
	case ledger.Lapsed:
		m.boot = "boot-2"
		must(t, s.GiveUp(r, problem.NeverStarted))
		return dir
	}
	must(t, s.Start(r))
	lease, err := l.ProbeLease()
	must(t, err)
	defer lease.Release()
	switch state { //nolint:exhaustive // those that end before the effect
	case ledger.Started:
		return dir
	case ledger.Refused:
		must(t, s.Refuse(r, problem.StartRefusedPluginMismatch))
		return dir
	case ledger.NeverBegan:
		must(t, s.NeverBegan(r, lease))
		return dir
	}
	must(t, s.Begin(r))
	switch state { //nolint:exhaustive // the ends of a run
	case ledger.Finished:
		must(t, s.Finish(r, code, counts))
	case ledger.Settled:
		must(t, s.Settle(r, o, lease))
	}
	return dir
}

// Issue 5, a ledger that is put back, invariants 1 and 3: what is read from each
// record beside each witness. It is the table of docs/ledger.md, line by line.
func TestRecordsAndWitnesses(t *testing.T) {
	document, err := os.ReadFile("../../docs/ledger.md")
	must(t, err)
	_, table, _ := strings.Cut(string(document), "| record \\ witness |")
	table, _, _ = strings.Cut(table, "\n\n")
	lines := strings.Split(table, "\n")[2:]

	witnesses := []ledger.State{"", ledger.Begun, ledger.Finished, ledger.Settled}
	runs := map[ledger.State]string{}
	for _, w := range witnesses {
		dir := ""
		if w != "" {
			dir = runDir(lifeUntil(t, w, "ticket", problem.StateFailed, witnessCounts, message.OutcomeFailed))
		}
		runs[w] = dir
	}
	made := map[string]string{}
	for _, state := range []ledger.State{
		ledger.Prepared, ledger.Started, ledger.Lapsed, ledger.Fenced, ledger.Refused, ledger.NeverBegan,
		ledger.Begun, ledger.Finished, ledger.Settled,
	} {
		made[string(state)] = lifeUntil(t, state, "ticket", "", recordCounts, message.OutcomeSucceeded)
	}
	made["absent"] = lifeUntil(t, "", "", "", recordCounts, "")
	made["torn"] = lifeUntil(t, ledger.Begun, "ticket", "", recordCounts, "")
	must(t, os.Remove(filepath.Join(made["torn"], "records", uuid(1), "decision.json")))
	made["begun, of another run"] = lifeUntil(t, ledger.Begun, "other", "", recordCounts, "")

	seen := map[string]bool{}
	for _, line := range lines {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		for name := range strings.SplitSeq(cells[0], "; ") {
			if made[name] == "" || len(cells) != 1+len(witnesses) {
				t.Fatalf("the line %q says nothing of a record %q", line, name)
			}
			seen[name] = true
			for i, w := range witnesses {
				t.Run(fmt.Sprintf("%s beside %q", name, w), func(t *testing.T) {
					dir := stateDir(t)
					putBack(t, dir, made[name])
					if runs[w] != "" {
						putBack(t, runDir(dir), runs[w])
					}
					want := strings.Replace(cells[1+i], "itself", name, 1)
					checkRead(t, dir, w, want)
					checkRead(t, dir, w, want) // and it stays so
				})
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(made)) {
		if !seen[name] {
			t.Errorf("the document says nothing of a record %q", name)
		}
	}
}

// checkRead compares what is read with a cell of the table: a state, and
// whether it's told by the witness.
func checkRead(t *testing.T, dir string, w ledger.State, want string) {
	t.Helper()
	_, s := at(t, dir, newMachine(), nil)
	defer s.Close()
	want, _, _ = strings.Cut(want, ",")
	open, openErr := s.OpenRecords()
	r, err := s.Record(uuid(1))
	switch {
	case want == "damaged" || want == "torn":
		if r != nil || problem.CodeOf(err) != ledger.Damaged {
			t.Errorf("read %+v, %v", r, err)
		}
		return
	case err != nil || want == "absent":
		if r != nil || err != nil {
			t.Errorf("read %+v, %v", r, err)
		}
		return
	}
	told := strings.HasPrefix(want, "**")
	if want = strings.Trim(want, "*"); r == nil || string(r.State) != want {
		t.Fatalf("read %+v", r)
	}
	if openErr != nil || (len(open) == 1) != (r.State == ledger.Prepared || r.Unfinished()) {
		t.Errorf("open are %v, %v", open, openErr)
	}
	switch r.State { //nolint:exhaustive // the others have nothing of their own
	case ledger.Finished:
		if told != (r.Code == problem.StateFailed && *r.Counts == witnessCounts) {
			t.Errorf("read %+v", r)
		}
	case ledger.Settled:
		if told != (r.Outcome == message.OutcomeFailed) {
			t.Errorf("read %+v", r)
		}
	}
	if w == "" {
		return
	}
	// Whatever is read, what has a witness is never handed over again.
	if err := s.Start(r); !ledger.IsTaken(err) {
		t.Errorf("it starts: %v", err)
	}
	if err := s.Begin(r); !ledger.IsTaken(err) {
		t.Errorf("it begins: %v", err)
	}
}

// Invariant 1: between started and begun another may have closed the record, or
// have put another one in its place. Then nothing is handed over, and what is
// on disk stays as it is.
func TestBeginReadsAgain(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(dir, prepared string, l *ledger.Ledger, s *ledger.Session, r *ledger.Record)
		want      ledger.State // "": there is no record
	}{
		"settled": {func(_, _ string, l *ledger.Ledger, s *ledger.Session, r *ledger.Record) {
			must(t, settle(t, l, s, r, message.OutcomeFailed))
		}, ledger.Settled},
		"put back": {func(dir, prepared string, _ *ledger.Ledger, _ *ledger.Session, _ *ledger.Record) {
			putBack(t, dir, prepared)
		}, ledger.Prepared},
		"put back and fenced": {func(dir, prepared string, _ *ledger.Ledger, s *ledger.Session, r *ledger.Record) {
			putBack(t, dir, prepared)
			must(t, s.Fence(record(t, s, r.Request), problem.NeverStarted))
		}, ledger.Fenced},
		"put back and started again": {func(dir, prepared string, _ *ledger.Ledger, s *ledger.Session, r *ledger.Record) {
			putBack(t, dir, prepared)
			must(t, s.Prepare(preparation(r.Request), "another"))
			must(t, s.Start(record(t, s, r.Request)))
		}, ledger.Started},
		"deleted": {func(dir, _ string, _ *ledger.Ledger, _ *ledger.Session, r *ledger.Record) {
			must(t, os.RemoveAll(filepath.Join(dir, "records", r.Request)))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := stateDir(t)
			l, s := at(t, dir, newMachine(), nil)
			defer s.Close()
			must(t, s.Prepare(preparation(uuid(1)), "ticket"))
			prepared := snapshot(t, dir)
			r := record(t, s, uuid(1))
			must(t, s.Start(r))
			now := *r
			c.meanwhile(dir, prepared, l, s, &now)
			if err := s.Begin(r); !ledger.IsTaken(err) {
				t.Errorf("it begins: %v", err)
			}
			if err := s.Refuse(r, problem.StartRefusedPluginMismatch); !ledger.IsTaken(err) {
				t.Errorf("it is refused: %v", err)
			}
			for _, file := range []string{filepath.Join(dir, "records", uuid(1), "effect.json"), filepath.Join(runDir(dir), "begun", uuid(1))} {
				if _, err := os.Stat(file); !os.IsNotExist(err) {
					t.Errorf("%s: %v", file, err)
				}
			}
			known, err := s.Record(uuid(1))
			must(t, err)
			if known == nil && c.want != "" || known != nil && known.State != c.want {
				t.Errorf("the record is %+v", known)
			}
		})
	}
}
