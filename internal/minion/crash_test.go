package minion_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/fault"
	"github.com/oduflow/oduflow-salt/internal/ledger"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/minion"
	"github.com/oduflow/oduflow-salt/internal/minion/miniontest"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// faults is the build that can be broken. It is the production code but for
// the seam (internal/minion/faults_on.go).
var faults = []string{"-tags", "faults"}

// plan writes the file that breaks the next executors of a kit.
func plan(t testing.TB, k *miniontest.Kit, lines ...string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(k.Facts.EtcDir, "fault"), []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
}

// crash is one planned fault.
type crash struct {
	step   fault.Step
	phase  ledger.Phase
	action string
}

func (c crash) String() string { return fmt.Sprintf("%s %s %s", c.action, c.phase, c.step) }

// survive sends one request through its life while one step is broken, as
// masterd would: it prepares again what wasn't answered, publishes one start,
// and then asks for evidence until that is terminal. It checks what must hold
// whatever happened, and says whether the fault struck.
func survive(t *testing.T, k *miniontest.Kit, c crash, life string) (struck bool) {
	t.Helper()
	marker := filepath.Join(t.TempDir(), "struck")
	planned := fmt.Sprintf("%s:%s:%s:%s", c.phase, c.step, marker, c.action)
	plan(t, k, planned)
	request := miniontest.NewUUID()
	canonical, digest := k.Document(threeStates)

	prepare := k.Seal(miniontest.Ask{Kind: message.Prepare, Request: request, Digest: digest})
	said := k.Send(message.Prepare, prepare.Text, miniontest.Shim{})
	if said.Text == "" || k.Read(prepare, said.Text).Result != message.Prepared {
		prepare = k.Seal(miniontest.Ask{Kind: message.Prepare, Request: request, Digest: digest})
		said = k.Send(message.Prepare, prepare.Text, miniontest.Shim{})
	}
	p := k.Read(prepare, said.Text)
	expect(t, p, message.Prepared, "")

	ran := 0
	shim := miniontest.Shim{Run: func([]byte) any { return miniontest.Results(canonical, "true") }, Ran: func() { ran++ }}
	asked := 0
	if life == "refused" {
		shim.Between = func() minion.Facts { asked++; f := k.Facts; f.StateRunning = asked > 1; return f }
	}
	if life == "killed" {
		shim.Run = func([]byte) any { return miniontest.ErrLeave }
	}
	start := k.AskStart(request, p.Ticket, canonical)
	if life != "fenced" {
		said = k.Send(message.Start, start.Text, shim)
	}
	var told message.Answer
	if said.Text != "" && !strings.HasPrefix(said.Text, "oduflow: ") && life != "fenced" {
		told = k.Read(start, said.Text)
	}
	// Evidence at 30 s, then a replay of the start, then evidence at 130 s, in
	// an executor that may still be broken, and after that in one that isn't.
	ask := func(fence bool) message.Answer {
		q := k.Seal(miniontest.Ask{Kind: message.Evidence, Request: request, Body: message.Body{Fence: fence}})
		said := k.Send(message.Evidence, q.Text, miniontest.Shim{})
		if !strings.HasPrefix(said.Text, "odf1.") {
			return message.Answer{}
		}
		return k.Read(q, said.Text)
	}
	early := ask(false)
	if life != "fenced" && early.Result != message.NotStartedYet {
		k.Send(message.Start, start.Text, shim)
	}
	plan(t, k, planned, "since_boot_add 130s")
	ask(true)
	last := ask(true)

	if ran > 1 {
		t.Errorf("%s: ran %d times", c, ran)
	}
	check := func(a message.Answer) {
		switch a.Result {
		case message.Finished:
			if ran != 1 || a.Code != "" || a.Counts.Passed != 3 {
				t.Errorf("%s: answered %+v, and ran %d times", c, a, ran)
			}
		case message.Fenced, message.NeverBegan:
			if ran != 0 {
				t.Errorf("%s: answered %s, and ran", c, a.Result)
			}
		case message.Prepared, message.Refused, message.Running, message.Interrupted, message.NotStartedYet,
			message.Absent, message.Disregarded, message.Updated, message.Settled, message.Lapsed:
		}
	}
	check(told)
	check(early)
	check(last)
	if !isTerminal(last) && last.Result != message.Interrupted {
		t.Errorf("%s: the end is %q", c, last.Result)
	}
	for _, a := range []message.Answer{told, early} {
		if isTerminal(a) && (a.Result != last.Result || a.Code != last.Code) {
			t.Errorf("%s: answered %s %s, and then %s %s", c, a.Result, a.Code, last.Result, last.Code)
		}
	}
	next := k.Prepare(miniontest.NewUUID(), canonical)
	if last.Result == message.Interrupted {
		expect(t, next, message.Refused, problem.RecordUnfinished)
		if next.Unfinished != request {
			t.Errorf("%s: blocked by %q", c, next.Unfinished)
		}
	} else {
		expect(t, next, message.Prepared, "")
	}
	_, err := os.Stat(marker)
	return err == nil
}

func isTerminal(a message.Answer) bool {
	return a.Result == message.Finished || a.Result == message.Fenced || a.Result == message.NeverBegan
}

// The steps of one life each, beside those of the ordinary one.
func lifeOf(step fault.Step) string {
	switch name, _, _ := strings.Cut(string(step), "."); name {
	case "fenced", "refused", "never_began", "settled", "lapsed":
		return name
	}
	return ""
}

// strike breaks one step in a kit of its own.
func strike(t *testing.T, c crash) {
	t.Helper()
	if strings.HasPrefix(string(c.step), "identity.") {
		strikeIdentity(t, c)
		return
	}
	k := newKit(t, faults...)
	life := lifeOf(c.step)
	switch life {
	case "never_began":
		strikeNeverBegan(t, k, c)
		return
	case "settled":
		strikeSettled(t, k, c)
		return
	case "lapsed":
		strikeLapsed(t, k, c)
		return
	}
	if !survive(t, k, c, life) {
		t.Errorf("%s: the step is never taken", c)
	}
}

// strikeNeverBegan breaks the write that proves that a job was gone before its
// effect: the first fault makes such a record, the second breaks the proof.
func strikeNeverBegan(t *testing.T, k *miniontest.Kit, c crash) {
	t.Helper()
	request, ticket, canonical := prepared(t, k, threeStates)
	dir := t.TempDir()
	plan(t, k, "before:begun.write:"+filepath.Join(dir, "first"),
		fmt.Sprintf("%s:%s:%s:%s", c.phase, c.step, filepath.Join(dir, "second"), c.action))
	q := k.AskStart(request, ticket, canonical)
	if said := k.Send(message.Start, q.Text, mustNotRun(t)); said.Text != "" {
		t.Fatalf("the executor lived on: %q", said.Text)
	}
	for range 2 {
		e := k.Seal(miniontest.Ask{Kind: message.Evidence, Request: request})
		k.Send(message.Evidence, e.Text, miniontest.Shim{})
	}
	expect(t, k.Evidence(request, false), message.NeverBegan, problem.NeverBegan)
	expect(t, k.Start(request, ticket, canonical, mustNotRun(t)), message.NeverBegan, problem.NeverBegan)
	if _, err := os.Stat(filepath.Join(dir, "second")); err != nil {
		t.Errorf("%s: the step is never taken", c)
	}
}

// strikeSettled breaks an operator's settlement, which masterd then repeats.
func strikeSettled(t *testing.T, k *miniontest.Kit, c crash) {
	t.Helper()
	request, canonical := interrupted(t, k)
	marker := filepath.Join(t.TempDir(), "struck")
	plan(t, k, fmt.Sprintf("%s:%s:%s:%s", c.phase, c.step, marker, c.action))
	q := k.Seal(miniontest.Ask{
		Kind: message.Settle, Request: request, Digest: miniontest.Digest(canonical), Body: message.Body{Outcome: message.OutcomeFailed},
	})
	k.Send(message.Settle, q.Text, miniontest.Shim{})
	if a := k.Settle(request, canonical, message.OutcomeFailed); a.Result != message.Settled || a.Outcome != message.OutcomeFailed {
		t.Errorf("%s: answered %+v", c, a)
	}
	expect(t, k.Prepare(miniontest.NewUUID(), canonical), message.Prepared, "")
	if _, err := os.Stat(marker); err != nil {
		t.Errorf("%s: the step is never taken", c)
	}
}

// strikeLapsed breaks the write that gives up what can't be proved any more.
func strikeLapsed(t *testing.T, k *miniontest.Kit, c crash) {
	t.Helper()
	request, ticket, canonical := prepared(t, k, threeStates)
	marker := filepath.Join(t.TempDir(), "struck")
	plan(t, k, "boot_id other", fmt.Sprintf("%s:%s:%s:%s", c.phase, c.step, marker, c.action))
	q := k.Seal(miniontest.Ask{Kind: message.Evidence, Request: request, Body: message.Body{Fence: true}})
	k.Send(message.Evidence, q.Text, miniontest.Shim{})
	expect(t, k.Evidence(request, true), message.Lapsed, "")
	expect(t, k.Start(request, ticket, canonical, mustNotRun(t)), message.Lapsed, "")
	if _, err := os.Stat(marker); err != nil {
		t.Errorf("%s: the step is never taken", c)
	}
}

// interrupted gives a request whose Salt process died during its effect.
func interrupted(t *testing.T, k *miniontest.Kit) (request string, canonical []byte) {
	t.Helper()
	request, ticket, canonical := prepared(t, k, threeStates)
	q := k.AskStart(request, ticket, canonical)
	said := k.Send(message.Start, q.Text, miniontest.Shim{Run: func([]byte) any { return miniontest.ErrLeave }})
	if said.Text != "" || !said.Ran {
		t.Fatalf("said %+v", said)
	}
	expect(t, k.Evidence(request, true), message.Interrupted, "")
	return request, canonical
}

func strikeIdentity(t *testing.T, c crash) {
	t.Helper()
	k := miniontest.New(t, t.TempDir(), faults...)
	marker := filepath.Join(t.TempDir(), "struck")
	plan(t, k, fmt.Sprintf("%s:%s:%s:%s", c.phase, c.step, marker, c.action))
	q := k.Seal(miniontest.Ask{Kind: message.Update, Request: miniontest.NewUUID(), Body: message.Body{Update: message.UpdateIdentity}})
	k.Send(message.Update, q.Text, miniontest.Shim{})
	first := k.Identify()
	expect(t, first, message.Updated, "")
	if again := k.Identify(); again.Ledger != first.Ledger {
		t.Error("the ledger id changes")
	}
	if _, err := os.Stat(marker); err != nil {
		t.Errorf("%s: the step is never taken", c)
	}
}

// Invariants 1 to 3: killed at any of the steps that decide, a request has run
// at most once, and what is said of it is true. `make test-faults` breaks every
// step in every way (TestEveryStep).
func TestDecidingSteps(t *testing.T) {
	for _, c := range []crash{
		{"prepared.link", ledger.After, "kill"},
		{"started.write", ledger.After, "kill"},
		{"started.link", ledger.After, "kill"},
		{"begun.link", ledger.Before, "kill"},
		{"begun.link", ledger.After, "kill"},
		{"begun.sync", ledger.After, "fail"},
		{minion.StepRun, ledger.After, "kill"},
		{minion.StepRun, ledger.After, "fail"},
		{"finished.link", ledger.Before, "kill"},
		{"finished.link", ledger.After, "kill"},
		{"finished.link", ledger.After, "fail"},
		{minion.StepAnswer, ledger.After, "kill"},
		{"fenced.link", ledger.After, "kill"},
		{"never_began.link", ledger.After, "kill"},
		{"witness.link", ledger.Before, "kill"},
		{"witness.link", ledger.After, "kill"},
		{"settled.link", ledger.After, "kill"},
		{"settled.link", ledger.After, "fail"},
		{"lapsed.link", ledger.After, "kill"},
	} {
		t.Run(c.String(), func(t *testing.T) { strike(t, c) })
	}
}

// The Salt process dies during its effect: interrupted, for good.
func TestJobIsGone(t *testing.T) {
	k := newKit(t, faults...)
	request, ticket, canonical := prepared(t, k, threeStates)
	q := k.AskStart(request, ticket, canonical)
	said := k.Send(message.Start, q.Text, miniontest.Shim{Run: func([]byte) any { return miniontest.ErrLeave }})
	if said.Text != "" || !said.Ran {
		t.Fatalf("said %+v", said)
	}
	expect(t, k.Evidence(request, true), message.Interrupted, "")
	expect(t, k.Start(request, ticket, canonical, mustNotRun(t)), message.Interrupted, "")
	expect(t, k.Prepare(request, canonical), message.Interrupted, "")
	other := k.Prepare(miniontest.NewUUID(), canonical)
	expect(t, other, message.Refused, problem.RecordUnfinished)
	// An interrupted record doesn't hinder an update, and lives through it.
	k.Instance = miniontest.NewUUID()
	expect(t, k.Identify(), message.Updated, "")
	other = k.Prepare(miniontest.NewUUID(), canonical)
	expect(t, other, message.Refused, problem.RecordUnfinished)
	if other.Unfinished != request {
		t.Errorf("blocked by %q", other.Unfinished)
	}
}

// While the lease is held a record is running, for nobody but its holder.
func TestRunning(t *testing.T) {
	k := newKit(t)
	request, ticket, canonical := prepared(t, k, threeStates)
	var during, other, update message.Answer
	a := k.Start(request, ticket, canonical, miniontest.Shim{Run: func([]byte) any {
		during = k.Evidence(request, true)
		other = k.Prepare(miniontest.NewUUID(), canonical)
		was := k.Instance
		k.Instance = miniontest.NewUUID()
		update = k.Identify()
		k.Instance = was
		return miniontest.Results(canonical, "true")
	}})
	expect(t, a, message.Finished, "")
	expect(t, during, message.Running, "")
	expect(t, other, message.Refused, problem.RecordUnfinished)
	expect(t, update, message.Refused, problem.TargetBusy)
	if other.Unfinished != request {
		t.Errorf("blocked by %q", other.Unfinished)
	}
}

// Boot id and machine-id: a ticket dies with its boot, and a ledger on another
// machine proves nothing.
func TestRebootAndClone(t *testing.T) {
	k := newKit(t, faults...)
	request, ticket, canonical := prepared(t, k, threeStates)
	plan(t, k, "machine_id other")
	expect(t, k.Evidence(request, true), message.Refused, problem.LedgerChanged)
	expect(t, k.Start(request, ticket, canonical, mustNotRun(t)), message.Disregarded, "")
	expect(t, k.Prepare(miniontest.NewUUID(), canonical), message.Refused, problem.LedgerChanged)
	plan(t, k, "boot_id other")
	expect(t, k.Evidence(request, false), message.NotStartedYet, "")
	expect(t, k.Start(request, ticket, canonical, mustNotRun(t)), message.Lapsed, "")
	plan(t, k)
	expect(t, k.Evidence(request, true), message.Lapsed, "")
	expect(t, k.Prepare(request, canonical), message.Lapsed, "")

	request, ticket, _ = prepared(t, k, threeStates)
	plan(t, k, "since_boot_add 119s")
	expect(t, k.Evidence(request, true), message.NotStartedYet, "")
	plan(t, k, "since_boot_add 121s")
	expect(t, k.Evidence(request, false), message.NotStartedYet, "")
	expect(t, k.Evidence(request, true), message.Fenced, problem.NeverStarted)
	expect(t, k.Start(request, ticket, canonical, mustNotRun(t)), message.Fenced, problem.NeverStarted)
}

// A11, invariant 1: 50 starts of one record at once have one effect.
func TestManyStarts(t *testing.T) {
	k := newKit(t)
	request, ticket, canonical := prepared(t, k, threeStates)
	q := k.AskStart(request, ticket, canonical)
	var ran atomic.Int32
	var all sync.WaitGroup
	answers := make(chan message.Answer, 50)
	for range 50 {
		all.Go(func() {
			said, err := k.TrySend(message.Start, q.Text, miniontest.Shim{
				Run: func([]byte) any { return miniontest.Results(canonical, "true") },
				Ran: func() { ran.Add(1) },
			})
			if err != nil {
				t.Error(err)
				return
			}
			a, err := message.DecodeAnswer(said.Text, q.Key, q.Message)
			if err != nil {
				t.Errorf("%v: %q", err, said.Text)
				return
			}
			answers <- *a
		})
	}
	all.Wait()
	close(answers)
	if ran.Load() != 1 {
		t.Errorf("ran %d times", ran.Load())
	}
	finished := 0
	for a := range answers {
		if a.Result == message.Finished {
			finished++
		} else if a.Result != message.Running { // it still ran as this one asked
			t.Errorf("answered %+v", a)
		}
	}
	if finished == 0 {
		t.Error("nobody was told the result")
	}
	expect(t, k.Evidence(request, true), message.Finished, "")
}

// Prepare, start and fence at once: whoever wins, what all were told agrees.
func TestRaces(t *testing.T) {
	k := newKit(t, faults...)
	for range 8 {
		plan(t, k)
		request, ticket, canonical := prepared(t, k, threeStates)
		start := k.AskStart(request, ticket, canonical)
		again := k.Seal(miniontest.Ask{Kind: message.Prepare, Request: request, Digest: miniontest.Digest(canonical)})
		other := k.Seal(miniontest.Ask{Kind: message.Prepare, Request: miniontest.NewUUID(), Digest: miniontest.Digest(canonical)})
		fence := k.Seal(miniontest.Ask{Kind: message.Evidence, Request: request, Body: message.Body{Fence: true}})
		var ran atomic.Int32
		shim := succeed(canonical)
		shim.Ran = func() { ran.Add(1) }
		var all sync.WaitGroup
		var mu sync.Mutex
		told := map[message.Kind]message.Answer{}
		for _, q := range []miniontest.Question{start, again, other, fence} {
			all.Go(func() {
				said, err := k.TrySend(q.Message.Kind, q.Text, shim)
				a, decoded := message.DecodeAnswer(said.Text, q.Key, q.Message)
				if err := errors.Join(err, decoded); err != nil {
					t.Errorf("%v: %q", err, said.Text)
					return
				}
				if q.Message.Request == request {
					mu.Lock()
					told[q.Message.Kind] = *a
					mu.Unlock()
				}
			})
		}
		all.Wait()
		plan(t, k, "since_boot_add 130s")
		last := k.Evidence(request, true)
		want := map[message.Result]int32{message.Finished: 1, message.Fenced: 0}
		if n, ok := want[last.Result]; !ok || ran.Load() != n {
			t.Errorf("the end is %+v, and it ran %d times", last, ran.Load())
		}
		for kind, a := range told {
			if isTerminal(a) && a.Result != last.Result {
				t.Errorf("%s was told %s, and the end is %s", kind, a.Result, last.Result)
			}
		}
	}
}

// Idle waiting is bounded: a start that finds the lease busy gives up.
func TestLeaseStaysBusy(t *testing.T) {
	k := newKit(t)
	request, ticket, canonical := prepared(t, k, threeStates)
	f := k.TryLease(miniontest.NewUUID(), 0)
	began := time.Now()
	a := k.Start(request, ticket, canonical, mustNotRun(t))
	_ = f.Close()
	expect(t, a, message.Fenced, problem.StartRefusedLocked)
	if took := time.Since(began); took < 9*time.Second || took > 30*time.Second {
		t.Errorf("gave up after %s", took)
	}
}
