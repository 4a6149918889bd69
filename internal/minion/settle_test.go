package minion_test

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/minion/miniontest"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/survivor"
)

func expectSettled(t *testing.T, a message.Answer, outcome message.Outcome) {
	t.Helper()
	if a.Result != message.Settled || a.Outcome != outcome || a.Code != "" || a.Counts != nil {
		t.Errorf("answered %+v, expected settled %s", a, outcome)
	}
}

// A23: an operator's outcome closes an interrupted record, once and for good.
func TestSettle(t *testing.T) {
	k := newKit(t)
	request, canonical := interrupted(t, k)
	expect(t, k.Prepare(miniontest.NewUUID(), canonical), message.Refused, problem.RecordUnfinished)
	a := k.Settle(request, canonical, message.OutcomeSucceeded)
	expectSettled(t, a, message.OutcomeSucceeded)
	if a.Digest != miniontest.Digest(canonical) || a.Ledger == "" || a.Instance != k.Instance || a.Generation == 0 {
		t.Errorf("the answer doesn't say what it is about: %+v", a)
	}
	expectSettled(t, k.Settle(request, canonical, message.OutcomeSucceeded), message.OutcomeSucceeded)
	expectSettled(t, k.Settle(request, canonical, message.OutcomeFailed), message.OutcomeSucceeded)
	expectSettled(t, k.Evidence(request, true), message.OutcomeSucceeded)
	expectSettled(t, k.Prepare(request, canonical), message.OutcomeSucceeded)
	expect(t, k.Prepare(miniontest.NewUUID(), canonical), message.Prepared, "")
}

// A settlement changes nothing where the ledger knows by itself, or where it is
// about something else.
func TestSettleRefused(t *testing.T) {
	k := newKit(t, faults...)
	settle := func(request string, canonical []byte, change func(*miniontest.Ask)) message.Answer {
		t.Helper()
		a := miniontest.Ask{
			Kind: message.Settle, Request: request, Digest: miniontest.Digest(canonical), Body: message.Body{Outcome: message.OutcomeFailed},
		}
		if change != nil {
			change(&a)
		}
		q := k.Seal(a)
		return k.Read(q, k.Send(message.Settle, q.Text, miniontest.Shim{}).Text)
	}
	canonical, _ := k.Document(threeStates)
	expect(t, settle(miniontest.NewUUID(), canonical, nil), message.Absent, "")

	fenced, _, _ := prepared(t, k, threeStates)
	request, ticket, _ := prepared(t, k, threeStates)
	expect(t, settle(fenced, canonical, nil), message.Fenced, problem.NeverStarted)
	expect(t, settle(request, canonical, nil), message.NotStartedYet, "")
	var running message.Answer
	k.Start(request, ticket, canonical, miniontest.Shim{Run: func([]byte) any {
		running = settle(request, canonical, nil)
		return miniontest.Results(canonical, "true")
	}})
	expect(t, running, message.Running, "")
	expect(t, settle(request, canonical, nil), message.Finished, "")
	expect(t, k.Evidence(request, true), message.Finished, "")

	request, canonical = interrupted(t, k)
	other, _ := k.Document("only:\n  test.nop: []\n")
	expect(t, settle(request, other, nil), message.Refused, problem.RequestConflict)
	expect(t, settle(request, canonical, func(a *miniontest.Ask) { a.Body.Outcome = "maybe" }), message.Refused, problem.RequestConflict)
	expect(t, settle(request, canonical, func(a *miniontest.Ask) { a.Instance = miniontest.NewUUID() }), message.Refused, problem.InstanceDiffers)
	plan(t, k, "machine_id other")
	expect(t, settle(request, canonical, nil), message.Refused, problem.LedgerChanged)
	plan(t, k)
	forged := *k
	forged.Masterd = otherKey(t)
	q := forged.Seal(miniontest.Ask{Kind: message.Settle, Request: request, Digest: miniontest.Digest(canonical), Body: message.Body{Outcome: message.OutcomeFailed}})
	if said := k.Send(message.Settle, q.Text, miniontest.Shim{}); said.Text != "oduflow: rejected message_unsigned" {
		t.Errorf("said %q", said.Text)
	}
	expect(t, k.Evidence(request, true), message.Interrupted, "")
}

// A22: what the run left behind still runs, so its outcome can't be told yet.
func TestSettleWithSurvivors(t *testing.T) {
	k := newKit(t)
	request, canonical := interrupted(t, k)
	ctx, cancel := context.WithCancel(t.Context())
	sleep := exec.CommandContext(ctx, "/bin/sleep", "300")
	sleep.Env = []string{survivor.Variable + "=" + request}
	must(t, sleep.Start())
	a := k.Settle(request, canonical, message.OutcomeFailed)
	expect(t, a, message.Running, "")
	if a.Survivors != 1 {
		t.Errorf("%d survivors", a.Survivors)
	}
	cancel()
	_ = sleep.Wait()
	expectSettled(t, k.Settle(request, canonical, message.OutcomeFailed), message.OutcomeFailed)
}

// Protocol, settle: one that couldn't be delivered travels with the next
// prepare, which tells what came of each.
func TestOwedSettlements(t *testing.T) {
	k := newKit(t)
	finished, ticket, canonical := prepared(t, k, threeStates)
	k.Start(finished, ticket, canonical, succeed(canonical))
	request, _ := interrupted(t, k)
	digest := miniontest.Digest(canonical)
	owed := []message.Settlement{
		{Request: finished, Digest: digest, Outcome: message.OutcomeFailed},
		{Request: miniontest.NewUUID(), Digest: digest, Outcome: message.OutcomeFailed},
		{Request: request, Digest: digest, Outcome: message.OutcomeSucceeded},
		{Request: "../x", Digest: digest, Outcome: message.OutcomeSucceeded},
	}
	for len(owed) < message.MaxOwed+3 {
		owed = append(owed, message.Settlement{Request: miniontest.NewUUID(), Digest: digest, Outcome: message.OutcomeFailed})
	}
	ask := func(owed []message.Settlement, shim miniontest.Shim) message.Answer {
		t.Helper()
		q := k.Seal(miniontest.Ask{Kind: message.Prepare, Request: miniontest.NewUUID(), Digest: digest, Body: message.Body{Owed: owed}})
		return k.Read(q, k.Send(message.Prepare, q.Text, shim).Text)
	}
	// Whatever else the prepare says.
	facts := k.Facts
	facts.PillarErrors = true
	a := ask(owed, miniontest.Shim{Facts: &facts})
	expect(t, a, message.Refused, problem.PillarError)
	if a.Settlements == nil || len(*a.Settlements) != message.MaxOwed {
		t.Fatalf("answered %+v", a)
	}
	for i, want := range []message.SettlementState{
		{Request: finished, Result: message.Finished}, {Request: owed[1].Request, Result: message.Absent},
		{Request: request, Result: message.Settled, Outcome: message.OutcomeSucceeded},
		{Request: "../x", Result: message.Refused, Code: problem.LedgerUnwritable},
	} {
		if got := (*a.Settlements)[i]; got != want {
			t.Errorf("%d: %+v, expected %+v", i, got, want)
		}
	}
	expectSettled(t, k.Evidence(request, true), message.OutcomeSucceeded)
	expect(t, k.Evidence(finished, true), message.Finished, "")
	a = ask(nil, miniontest.Shim{})
	expect(t, a, message.Prepared, "")
	if a.Settlements != nil {
		t.Errorf("nothing was owed: %+v", a.Settlements)
	}
	must(t, os.Remove(k.Ledger("identity.json")))
	if a = ask(owed, miniontest.Shim{}); a.Settlements != nil || a.Code != problem.LedgerChanged {
		t.Errorf("settled in a ledger that isn't ours: %+v", a)
	}
}

// The lease is free, and the executor that waits for the result isn't gone: the
// record can't be settled beside it.
func TestNotSettledBesideALivingExecutor(t *testing.T) {
	k := newKit(t)
	request, ticket, canonical := prepared(t, k, threeStates)
	var during message.Answer
	var lease *os.File
	a := k.Start(request, ticket, canonical, miniontest.Shim{
		// The lease is freed before the end: the Salt process is gone, and its
		// executor isn't.
		Lease: func(request string, wait time.Duration) any {
			lease = k.TryLease(request, wait)
			return map[string]any{"lease": "held"}
		},
		Run: func([]byte) any {
			_ = lease.Close()
			during = k.Settle(request, canonical, message.OutcomeFailed)
			return miniontest.Results(canonical, "true")
		},
	})
	expect(t, during, message.Running, "") // its executor lives
	expect(t, a, message.Finished, "")
}
