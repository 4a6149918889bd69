package ledger_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/fault"
	"github.com/oduflow/oduflow-salt/internal/ledger"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// fakeMachine is a machine that can be rebooted and cloned.
type fakeMachine struct {
	boot, id string
	since    time.Duration
}

func (m *fakeMachine) machine() ledger.Machine {
	return ledger.Machine{
		BootID:    func() (string, error) { return m.boot, nil },
		SinceBoot: func() (time.Duration, error) { return m.since, nil },
		MachineID: func() (string, error) { return m.id, nil },
		Now:       func() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) },
	}
}

func newMachine() *fakeMachine {
	return &fakeMachine{boot: "boot-1", id: "machine-1", since: time.Hour}
}

func uuid(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012x", n) }

func preparation(request string) ledger.Preparation {
	return ledger.Preparation{Request: request, Target: "web1", Instance: uuid(999), Profile: "custom", Digest: "d-" + request, Ledger: "L"}
}

// at opens a session on a ledger.
func at(t testing.TB, dir string, m *fakeMachine, hook ledger.Hook) (*ledger.Ledger, *ledger.Session) {
	t.Helper()
	l, err := ledger.Open(ledger.Config{Dir: dir, RunDir: runDir(dir), Machine: m.machine(), Random: rand.Reader, Hook: hook})
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l, s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func record(t testing.TB, s *ledger.Session, request string) *ledger.Record {
	t.Helper()
	r, err := s.Record(request)
	must(t, err)
	if r == nil {
		t.Fatalf("there is no record of %s", request)
	}
	return r
}

// runDir is the folder for the boot of a ledger in dir.
func runDir(dir string) string { return dir + "-run" }

func stateDir(t testing.TB) string { return filepath.Join(t.TempDir(), "state") }

func TestLifeOfARecord(t *testing.T) {
	dir, m := stateDir(t), newMachine()
	_, s := at(t, dir, m, nil)
	if r, err := s.Record(uuid(1)); r != nil || err != nil {
		t.Fatalf("an empty ledger has %v, %v", r, err)
	}
	must(t, s.Prepare(preparation(uuid(1)), "ticket"))
	s.Close()

	_, s = at(t, dir, m, nil)
	r := record(t, s, uuid(1))
	if r.State != ledger.Prepared || r.Digest != "d-"+uuid(1) || r.Target != "web1" || r.Profile != "custom" || r.Ledger != "L" {
		t.Errorf("read %+v", r)
	}
	if !r.HasTicket("ticket") || r.HasTicket("other") || r.HasTicket("") {
		t.Error("the ticket isn't told apart")
	}
	must(t, s.Start(r))
	if !r.Unfinished() {
		t.Error("a started record counts as finished")
	}
	must(t, s.Begin(r))
	must(t, s.Finish(r, problem.StateFailed, message.Counts{Declared: 3, Passed: 1, Failed: 1, NotRun: 1}))
	s.Close()

	_, s = at(t, dir, m, nil)
	defer s.Close()
	r = record(t, s, uuid(1))
	if r.State != ledger.Finished || r.Code != problem.StateFailed || *r.Counts != (message.Counts{Declared: 3, Passed: 1, Failed: 1, NotRun: 1}) || r.Unfinished() {
		t.Errorf("read %+v", r)
	}
	left, err := os.ReadDir(filepath.Join(dir, "records", uuid(1)))
	must(t, err)
	if len(left) != 4 {
		t.Errorf("a closed record has the files %v", left)
	}
}

// Two facts that exclude each other: the first one stays.
func TestExclusiveFacts(t *testing.T) {
	type write func(*ledger.Session, *ledger.Record) error
	start := func(s *ledger.Session, r *ledger.Record) error { return s.Start(r) }
	fence := func(s *ledger.Session, r *ledger.Record) error { return s.Fence(r, problem.NeverStarted) }
	begin := func(s *ledger.Session, r *ledger.Record) error { return s.Begin(r) }
	refuse := func(s *ledger.Session, r *ledger.Record) error {
		return s.Refuse(r, problem.StartRefusedPluginMismatch)
	}
	for _, c := range []struct {
		before        []write
		first, second write
		want          ledger.State
	}{
		{nil, start, fence, ledger.Started},
		{nil, start, start, ledger.Started},
		{nil, fence, start, ledger.Fenced},
		{nil, fence, fence, ledger.Fenced},
		{[]write{start}, begin, refuse, ledger.Begun},
		{[]write{start}, begin, begin, ledger.Begun},
		{[]write{start}, refuse, begin, ledger.Refused},
	} {
		_, s := at(t, stateDir(t), newMachine(), nil)
		must(t, s.Prepare(preparation(uuid(1)), "t"))
		one, two := record(t, s, uuid(1)), record(t, s, uuid(1))
		for _, w := range c.before {
			must(t, w(s, one))
		}
		must(t, c.first(s, one))
		if err := c.second(s, two); !ledger.IsTaken(err) {
			t.Errorf("the second fact: %v", err)
		}
		if r := record(t, s, uuid(1)); r.State != c.want {
			t.Errorf("state %s, expected %s", r.State, c.want)
		}
		s.Close()
	}
}

// Protocol, prepare: at most one live ticket, in this boot, for 120 s.
func TestTicketLife(t *testing.T) {
	dir, m := stateDir(t), newMachine()
	_, s := at(t, dir, m, nil)
	defer s.Close()
	lives := func(request string) bool {
		t.Helper()
		ok, err := s.TicketLives(record(t, s, request))
		must(t, err)
		return ok
	}
	must(t, s.Prepare(preparation(uuid(1)), "t1"))
	if !lives(uuid(1)) {
		t.Error("a new ticket is dead")
	}
	m.since += ledger.TicketLife - time.Nanosecond
	if !lives(uuid(1)) {
		t.Error("a ticket dies early")
	}
	m.since += time.Nanosecond
	if lives(uuid(1)) {
		t.Error("a ticket outlives 120 s")
	}
	must(t, s.Prepare(preparation(uuid(1)), "t2"))
	if !lives(uuid(1)) || record(t, s, uuid(1)).HasTicket("t1") || !record(t, s, uuid(1)).HasTicket("t2") {
		t.Error("a repeated prepare doesn't replace the ticket")
	}
	for n := range 6 {
		must(t, s.Prepare(preparation(uuid(1)), fmt.Sprint("more", n)))
	}
	r := record(t, s, uuid(1))
	if !r.Knew("more5") || !r.Knew("more1") || r.Knew("more0") || r.Knew("x") || r.Knew("") {
		t.Error("the tickets that were replaced aren't told apart")
	}
	m.boot = "boot-2"
	if lives(uuid(1)) {
		t.Error("a ticket outlives a reboot")
	}
	m.boot = "boot-1"
	must(t, s.Prepare(preparation(uuid(2)), "t3"))
	if r := record(t, s, uuid(1)); r.State != ledger.Fenced || r.Code != problem.NeverStarted {
		t.Errorf("a prepare of another request left %s %s", r.State, r.Code)
	}
	if !lives(uuid(2)) {
		t.Error("the newer ticket is dead")
	}
}

func TestNeverBeganNeedsTheFreeLease(t *testing.T) {
	dir := stateDir(t)
	l, s := at(t, dir, newMachine(), nil)
	defer s.Close()
	must(t, s.Prepare(preparation(uuid(1)), "t"))
	r := record(t, s, uuid(1))
	must(t, s.Start(r))
	if err := s.NeverBegan(r, nil); err == nil {
		t.Error("no lease will do")
	}
	lease, err := l.ProbeLease()
	must(t, err)
	if lease.Held || lease.HeldFor(uuid(1)) {
		t.Error("a free lease is held")
	}
	must(t, s.NeverBegan(r, lease))
	lease.Release()
	if err := s.NeverBegan(r, lease); err == nil {
		t.Error("a released probe will do")
	}
}

func TestLease(t *testing.T) {
	l, s := at(t, stateDir(t), newMachine(), nil)
	s.Close()
	hold := func(content string) *os.File {
		return holdLease(t, l, content)
	}
	for content, want := range map[string][2]bool{
		`{"version":1,"request":"` + uuid(1) + `"}`: {true, false},
		`{"version":1,"request":"` + uuid(2) + `"}`: {false, true},
		``:            {true, true}, // not named yet: it may be anybody's
		`{"version":`: {true, true},
	} {
		f := hold(content)
		lease, err := l.ProbeLease()
		must(t, err)
		if !lease.Held || lease.HeldFor(uuid(1)) != want[0] || lease.HeldFor(uuid(2)) != want[1] {
			t.Errorf("%q: %+v", content, lease)
		}
		lease.Release()
		must(t, f.Close())
		lease, err = l.ProbeLease()
		must(t, err)
		if lease.Held {
			t.Errorf("%q: held after its holder is gone", content)
		}
		second, err := l.ProbeLease()
		must(t, err)
		if second.Held {
			t.Error("one probe hinders the next")
		}
		second.Release()
		lease.Release()
	}
}

func TestIdentity(t *testing.T) {
	dir, m := stateDir(t), newMachine()
	_, s := at(t, dir, m, nil)
	defer s.Close()
	if id, err := s.Identity(); id != nil || err != nil {
		t.Fatal(id, err)
	}
	first, err := s.Adopt(uuid(1))
	must(t, err)
	if first.Instance != uuid(1) || len(first.Ledger) != 32 || first.Machine == "" || strings.Contains(first.Machine, "machine-1") {
		t.Errorf("identity %+v", first)
	}
	again, err := s.Adopt(uuid(1))
	must(t, err)
	if again.Ledger != first.Ledger {
		t.Error("adopting twice makes another ledger")
	}
	other, err := s.Adopt(uuid(2))
	must(t, err)
	if other.Ledger == first.Ledger {
		t.Error("another instance keeps the ledger id")
	}
	m.id = "machine-2"
	moved, err := s.Adopt(uuid(2))
	must(t, err)
	if moved.Ledger == other.Ledger || moved.Machine == other.Machine {
		t.Error("another machine keeps the ledger id")
	}
	for _, old := range []string{first.Ledger, other.Ledger} {
		if _, err := os.Stat(filepath.Join(dir, "identity-"+old+".json")); err != nil {
			t.Error("a former identity is lost:", err)
		}
	}
}

func TestCounters(t *testing.T) {
	dir := stateDir(t)
	_, s := at(t, dir, newMachine(), nil)
	defer s.Close()
	s.Count(message.Unsigned)
	s.Count(message.Unsigned)
	s.Count(message.WrongKind)
	if c := s.Counters().Counts; c["message_unsigned"] != 2 || c["message_wrong_kind"] != 1 {
		t.Errorf("counters %v", c)
	}
	must(t, os.WriteFile(filepath.Join(dir, "counters.json"), []byte("{"), 0o600))
	s.Count(message.Unsigned)
	if c := s.Counters().Counts; c["message_unsigned"] != 1 {
		t.Errorf("counters %v after damage", c)
	}
	for i := range 300 {
		s.Count(problem.Code(fmt.Sprint("code_", i)))
	}
	if n := len(s.Counters().Counts); n > 100 {
		t.Errorf("%d counters", n)
	}
}

// What no executor wrote is never taken for a fact.
func TestDamage(t *testing.T) {
	for name, spoil := range map[string]func(dir string){
		"no version": func(d string) { must(t, os.WriteFile(filepath.Join(d, "prepared.json"), []byte(`{}`), 0o600)) },
		"newer": func(d string) {
			path := filepath.Join(d, "prepared.json")
			raw, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(path, bytes.Replace(raw, []byte(`"version":1`), []byte(`"version":3`), 1), 0o600))
		},
		"cut":               func(d string) { must(t, os.Truncate(filepath.Join(d, "prepared.json"), 10)) },
		"empty":             func(d string) { must(t, os.Truncate(filepath.Join(d, "prepared.json"), 0)) },
		"another request":   func(d string) { must(t, os.Rename(d, filepath.Join(filepath.Dir(d), uuid(7)))) },
		"unknown kind":      func(d string) { put(t, d, "decision.json", `{"version":1,"kind":"maybe"}`) },
		"effect too early":  func(d string) { put(t, d, "effect.json", `{"version":1,"kind":"begun"}`) },
		"outcome too early": func(d string) { put(t, d, "outcome.json", `{"version":1,"kind":"finished","counts":{}}`) },
		"finished, uncounted": func(d string) {
			put(t, d, "decision.json", `{"version":1,"kind":"started"}`)
			put(t, d, "effect.json", `{"version":1,"kind":"begun"}`)
			put(t, d, "outcome.json", `{"version":1,"kind":"finished"}`)
		},
		"begun after a fence": func(d string) {
			put(t, d, "decision.json", `{"version":1,"kind":"fenced","code":"never_started"}`)
			put(t, d, "effect.json", `{"version":1,"kind":"begun"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := stateDir(t)
			_, s := at(t, dir, newMachine(), nil)
			defer s.Close()
			must(t, s.Prepare(preparation(uuid(1)), "t"))
			spoil(filepath.Join(dir, "records", uuid(1)))
			request := uuid(1)
			if name == "another request" {
				request = uuid(7)
			}
			r, err := s.Record(request)
			want := ledger.Damaged
			if name == "newer" {
				want = ledger.Newer
			}
			if problem.CodeOf(err) != want {
				t.Errorf("read %+v, %v", r, err)
			}
		})
	}
}

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
}

// No name that isn't a UUID becomes a path.
func TestHostileRequests(t *testing.T) {
	_, s := at(t, stateDir(t), newMachine(), nil)
	defer s.Close()
	for _, request := range []string{"", "..", "../../etc/passwd", strings.Repeat("a", 36), strings.ToUpper(uuid(0xabc)), uuid(1) + "/", "00000000-0000-4000-8000-00000000000/"} {
		if _, err := s.Record(request); problem.CodeOf(err) != problem.BadField {
			t.Errorf("%q: %v", request, err)
		}
		if err := s.Prepare(preparation(request), "t"); problem.CodeOf(err) != problem.BadField {
			t.Errorf("prepare %q: %v", request, err)
		}
	}
}

func TestForeignFolder(t *testing.T) {
	dir := stateDir(t)
	must(t, os.MkdirAll(dir, 0o700))
	must(t, os.Chmod(dir, 0o750))
	_, err := ledger.Open(ledger.Config{Dir: dir, Machine: newMachine().machine(), Random: rand.Reader})
	if problem.CodeOf(err) != problem.LedgerUnwritable {
		t.Error(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	_, err = ledger.Open(ledger.Config{Dir: file, Machine: newMachine().machine(), Random: rand.Reader})
	if problem.CodeOf(err) != problem.LedgerUnwritable {
		t.Error(err)
	}
}

// The index of open records can be lost: it is made again from the records.
func TestOpenIndexIsRebuilt(t *testing.T) {
	dir, m := stateDir(t), newMachine()
	_, s := at(t, dir, m, nil)
	must(t, s.Prepare(preparation(uuid(1)), "t"))
	r := record(t, s, uuid(1))
	must(t, s.Start(r))
	must(t, s.Begin(r))
	s.Close()
	must(t, os.RemoveAll(filepath.Join(dir, "open")))
	_, s = at(t, dir, m, nil)
	defer s.Close()
	open, err := s.OpenRecords()
	must(t, err)
	if len(open) != 1 || open[0].Request != uuid(1) || open[0].State != ledger.Begun {
		t.Errorf("open records %+v", open)
	}
}

// A turn is one at a time, and waiting for it ends with the context.
func TestLock(t *testing.T) {
	dir, m := stateDir(t), newMachine()
	l, s := at(t, dir, m, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.Lock(ctx); problem.CodeOf(err) != ledger.Locked {
		t.Error("two turns at once:", err)
	}
	s.Close()

	var inside, worst int
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			s, err := l.Lock(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			inside++
			worst = max(worst, inside)
			mu.Unlock()
			s.Count(message.Unsigned)
			mu.Lock()
			inside--
			mu.Unlock()
			s.Close()
		})
	}
	all.Wait()
	_, s = at(t, dir, m, nil)
	defer s.Close()
	if n := s.Counters().Counts["message_unsigned"]; n != 20 || worst != 1 {
		t.Errorf("%d counted, %d inside at once", n, worst)
	}
}

// Rule 9: a step that fails before it is taken has changed nothing that is
// read; one that is reported as failed after all may have. Neither leaves a
// record that can't be read.
func TestEveryStepCanFail(t *testing.T) {
	planned := errors.New("a planned fault")
	hit := map[fault.Step]bool{}
	for _, phase := range []ledger.Phase{ledger.Before, ledger.After} {
		for _, step := range ledger.Steps() {
			dir, m := stateDir(t), newMachine()
			hook := func(at fault.Step, p ledger.Phase) error {
				if at == step && p == phase {
					hit[step] = true
					return planned
				}
				return nil
			}
			failed := 0
			for n, life := range lives {
				l, s := at(t, dir, m, hook)
				err := life(l, s, uuid(n+1))
				s.Close()
				if err != nil {
					failed++
				}
				_, s = at(t, dir, m, nil)
				if _, err := s.Records(); err != nil {
					t.Errorf("%s %s: %v", phase, step, err)
				}
				s.Close()
			}
			if failed == 0 {
				t.Errorf("%s %s: nobody was told", phase, step)
			}
		}
	}
	for _, step := range ledger.Steps() {
		if !hit[step] {
			t.Errorf("%s is never taken", step)
		}
	}
}

// lives are the ways that a record can go, which together take every step.
var lives = []func(*ledger.Ledger, *ledger.Session, string) error{
	func(_ *ledger.Ledger, s *ledger.Session, request string) error {
		_, err := s.Adopt(uuid(50))
		return err
	},
	func(_ *ledger.Ledger, s *ledger.Session, request string) error {
		return through(s, request, func(r *ledger.Record) error { return s.Fence(r, problem.NeverStarted) })
	},
	func(_ *ledger.Ledger, s *ledger.Session, request string) error {
		return through(s, request, s.Start, func(r *ledger.Record) error { return s.Refuse(r, problem.StartRefusedPluginMismatch) })
	},
	func(l *ledger.Ledger, s *ledger.Session, request string) error {
		return through(s, request, s.Start, func(r *ledger.Record) error {
			lease, err := l.ProbeLease()
			if err != nil {
				return err
			}
			defer lease.Release()
			return s.NeverBegan(r, lease)
		})
	},
	func(l *ledger.Ledger, s *ledger.Session, request string) error {
		return through(s, request, s.Start, s.Begin, func(r *ledger.Record) error {
			lease, err := l.ProbeLease()
			if err != nil {
				return err
			}
			defer lease.Release()
			return s.Settle(r, message.OutcomeFailed, lease)
		})
	},
	func(l *ledger.Ledger, s *ledger.Session, request string) error {
		return through(s, request, func(r *ledger.Record) error {
			if err := os.Remove(filepath.Join(filepath.Dir(filepath.Dir(l.LeasePath())), "state-run", "id")); err != nil {
				return err
			}
			return s.GiveUp(r, problem.NeverStarted)
		})
	},
	func(_ *ledger.Ledger, s *ledger.Session, request string) error {
		return through(s, request, s.Start, s.Begin, func(r *ledger.Record) error { return s.Finish(r, "", message.Counts{Declared: 1, Passed: 1}) })
	},
}

func through(s *ledger.Session, request string, steps ...func(*ledger.Record) error) error {
	if err := s.Prepare(preparation(request), "t"); err != nil {
		return err
	}
	r, err := s.Record(request)
	if err != nil {
		return err
	}
	for _, step := range steps {
		if err := step(r); err != nil {
			return err
		}
	}
	return nil
}

// One question has one ticket, however often it is delivered, and however often
// another one was asked meanwhile. Two ledgers, of which one is a copy of the
// other, give two.
func TestTicketOfAQuestion(t *testing.T) {
	dir, m := stateDir(t), newMachine()
	m.boot, m.since = uuid(500), 10*365*24*time.Hour
	l, s := at(t, dir, m, nil)
	defer func() { s.Close() }()
	given := map[string]string{}
	ask := func(l *ledger.Ledger, s *ledger.Session, nonce string) string {
		salt, ticket, err := l.NewTicket(nonce)
		must(t, err)
		p := preparation(uuid(1))
		p.Salt = salt
		// As long as they can be: it has to fit into its room.
		p.Target, p.Digest, p.Ledger, p.Profile = strings.Repeat("t", 253), strings.Repeat("d", 64), strings.Repeat("l", 32), "configure"
		must(t, s.Prepare(p, ticket))
		return ticket
	}
	for n := range 7 {
		nonce := uuid(n)
		if n > 0 && record(t, s, uuid(1)).TicketFor(nonce) != "" {
			t.Error("a ticket for a question that was never asked")
		}
		given[nonce] = ask(l, s, nonce)
		r := record(t, s, uuid(1))
		if !r.HasTicket(given[nonce]) || len(given[nonce]) != 2*message.TicketSize {
			t.Errorf("the ticket %q isn't the record's", given[nonce])
		}
		for back := range min(n+1, 5) {
			if old := uuid(n - back); r.TicketFor(old) != given[old] {
				t.Errorf("%d questions later it got %q, and now %q", back, given[old], r.TicketFor(old))
			}
		}
	}
	s.Close()
	twin := stateDir(t)
	putBack(t, twin, dir)
	putBack(t, runDir(twin), runDir(dir)) // even with the folder for the boot
	l, s = at(t, dir, m, nil)
	other, theirs := at(t, twin, m, nil)
	defer theirs.Close()
	if ask(l, s, uuid(100)) == ask(other, theirs, uuid(100)) {
		t.Error("two minions give one ticket")
	}
}
