package dispatch_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oduflow/oduflow-salt/internal/dispatch"
	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// minionLedger is a ledger that tells its generation with each answer.
type minionLedger struct {
	mu         sync.Mutex
	generation uint64
	result     message.Result // of evidence
}

func (m *minionLedger) is(generation uint64, result message.Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.generation, m.result = generation, result
}

func (m *minionLedger) evidence() message.Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.result
}

// says makes an answer of it.
func (m *minionLedger) says(q exchange.Question, result message.Result) message.Answer {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := answer(q, result)
	if result == message.Finished {
		a = finished(q, "")
	}
	if result == message.Fenced {
		a.Code = problem.NeverStarted
	}
	a.Generation = m.generation
	return a
}

func (m *minionLedger) on(b *bench) {
	b.x.onPrepare = func(_ context.Context, q exchange.Question) exchange.Reply {
		a := m.says(q, message.Prepared)
		a.Ticket = b.x.ticket(q).Answer.Ticket
		return exchange.Reply{Answer: &a}
	}
	b.x.onEvidence = func(_ context.Context, q exchange.Question) exchange.Reply {
		a := m.says(q, m.evidence())
		return exchange.Reply{Answer: &a}
	}
}

func (b *bench) adopt(generation uint64) {
	b.t.Helper()
	if err := b.store.Adopt(b.t.Context(), receipt.Target{
		ID: web, Instance: instance, Fingerprint: "fp", Ledger: ledger, Machine: machine, AdoptedAt: b.clock.Now(), Generation: generation,
	}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) lastWitness(n int) receipt.Witness {
	b.t.Helper()
	synctest.Wait()
	all := b.store.Witnesses(req(n))
	if len(all) == 0 {
		b.t.Fatalf("no witness of %d", n)
	}
	return all[len(all)-1]
}

// Issue 5, a ledger put back or cloned: nothing is claimed on a ledger that tells
// less than it had told, nor asked of it any more, also after a restart, until
// an operator has adopted it. Then it goes on from what it tells now.
func TestNothingIsClaimedOnALedgerThatWasPutBack(t *testing.T) {
	run(t, func(b *bench) {
		m := &minionLedger{}
		m.on(b)
		m.is(10, "")
		b.bind(1)
		b.wantState(1, receipt.Succeeded, "")
		m.is(9, "") // put back
		b.bind(2)
		b.wantState(2, receipt.Refused, problem.LedgerChanged)
		m.is(50, "") // it has written a lot since, or the other copy answers
		b.bind(3)
		b.wantState(3, receipt.Refused, problem.LedgerChanged)
		b.restart()
		b.bind(4)
		b.wantState(4, receipt.Refused, problem.LedgerChanged)
		b.wantTrace("prepare", "0s prepare r1", "0s prepare r2")
		b.wantTrace("start", "0s start r1")
		b.adopt(50)
		m.is(51, "")
		b.bind(5)
		b.wantState(5, receipt.Succeeded, "")
		m.is(50, "")
		b.bind(6)
		b.wantState(6, receipt.Refused, problem.LedgerChanged)
	})
}

// Whatever else such a ledger answers to a prepare, nothing comes of it but what
// it proves.
func TestPrepareOnALedgerThatWasPutBack(t *testing.T) {
	for _, c := range []struct {
		result message.Result
		code   problem.Code // of the answer
		state  receipt.State
		want   problem.Code
	}{
		{message.Prepared, "", receipt.Refused, problem.LedgerChanged},
		{message.Refused, problem.StateRunning, receipt.Refused, problem.LedgerChanged},
		{message.Fenced, problem.NeverStarted, receipt.Refused, problem.LedgerChanged},
		{message.NeverBegan, "", receipt.Refused, problem.LedgerChanged},
		{message.Finished, "", receipt.Succeeded, ""},
		{message.Running, "", receipt.Dispatched, ""},
		{message.Interrupted, "", receipt.Uncertain, problem.Interrupted},
		{message.Lapsed, "", receipt.Uncertain, problem.LedgerAbsent},
	} {
		t.Run(string(c.result), func(t *testing.T) {
			run(t, func(b *bench) {
				m := &minionLedger{}
				m.on(b)
				b.adopt(10)
				m.is(9, c.result)
				b.x.onPrepare = func(_ context.Context, q exchange.Question) exchange.Reply {
					if len(b.notes("prepare")) > 3 {
						t.Fatal("prepared again and again")
					}
					a := m.says(q, c.result)
					a.Code = c.code
					return exchange.Reply{Answer: &a}
				}
				b.bind(1)
				b.wantState(1, c.state, c.want)
				b.wantTrace("claim")
				b.bind(2)
				if c.state == receipt.Refused || c.state == receipt.Succeeded {
					b.wantState(2, receipt.Refused, problem.LedgerChanged)
					b.wantTrace("prepare", "0s prepare r1") // it is known by then
				}
			})
		})
	}
}

// What such a ledger says of a request that was started proves only what it
// remembers: that it never began is kept, raised, and believed by nobody, also
// once the ledger has counted past what was known, and after it was adopted.
func TestEvidenceOfALedgerThatWasPutBack(t *testing.T) {
	for _, result := range []message.Result{message.Fenced, message.NeverBegan} {
		t.Run(string(result), func(t *testing.T) {
			run(t, func(b *bench) {
				m := &minionLedger{}
				m.on(b)
				m.is(10, message.Running)
				b.x.onStart = goesOut
				b.bind(1)
				b.at(31 * time.Second)
				m.is(9, result)
				b.at(131 * time.Second)
				b.wantState(1, receipt.Dispatched, "")
				if w := b.lastWitness(1); !w.Conflict || w.Code != problem.LedgerChanged || w.Result != string(result) {
					t.Errorf("%+v", w)
				}
				m.is(11, result)
				b.at(12 * time.Minute)
				b.wantState(1, receipt.Dispatched, "")
				b.adopt(11)
				b.restart()
				b.at(2*time.Hour + time.Minute)
				b.wantState(1, receipt.Uncertain, problem.NoAnswer)
				m.is(12, message.Finished) // what it does know stands
				b.at(3 * time.Hour)
				b.wantState(1, receipt.Succeeded, "")
			})
		})
	}
	run(t, func(b *bench) { // at once, too
		m := &minionLedger{}
		m.on(b)
		m.is(10, message.Running)
		b.x.onStart = goesOut
		b.bind(1)
		b.at(31 * time.Second)
		m.is(9, message.Finished)
		b.at(131 * time.Second)
		b.wantState(1, receipt.Succeeded, "")
		if w := b.lastWitness(1); w.Conflict || w.Code != "" {
			t.Errorf("%+v", w)
		}
		b.bind(2)
		b.wantState(2, receipt.Refused, problem.LedgerChanged)
	})
}

// A ledger that was adopted as it is now is another one for what is bound later.
func TestEvidenceAfterTheAdoption(t *testing.T) {
	run(t, func(b *bench) {
		m := &minionLedger{}
		m.on(b)
		b.adopt(10)
		m.is(9, "")
		b.bind(1)
		b.wantState(1, receipt.Refused, problem.LedgerChanged)
		b.adopt(9)
		m.is(10, message.Fenced)
		b.x.onStart = goesOut
		b.bind(2)
		b.at(131 * time.Second)
		b.wantState(2, receipt.Failed, problem.NeverStarted)
	})
}

// Answers overtake each other: each is judged by what was known before its own
// question was asked.
func TestAnswersOutOfOrder(t *testing.T) {
	late := func(b *bench, lines receipt.Lines, generation uint64) {
		q := exchange.Question{Kind: message.Evidence, Target: web, Instance: instance, Request: req(1), Digest: b.receipt(1).Body.Digest}
		m := &minionLedger{generation: generation}
		b.x.late(exchange.Late{Kind: q.Kind, Request: q.Request, Target: web, Answer: m.says(q, message.Fenced), Lines: lines})
		synctest.Wait()
	}
	begin := func(b *bench) (m *minionLedger, then receipt.Lines) {
		m = &minionLedger{}
		m.on(b)
		m.is(10, message.Running)
		b.x.onStart = goesOut
		b.bind(1)
		synctest.Wait()
		then, err := b.store.Lines(b.t.Context(), web)
		if err != nil || then[ledger].Generation != 10 {
			b.t.Fatalf("%+v %v", then, err)
		}
		m.is(15, message.Running)
		b.at(31 * time.Second) // asked, and 15 is known
		return m, then
	}
	run(t, func(b *bench) {
		_, then := begin(b)
		late(b, then, 12) // asked before the 15 was known
		b.wantState(1, receipt.Failed, problem.NeverStarted)
		b.bind(2)
		b.wantState(2, receipt.Dispatched, "")
	})
	run(t, func(b *bench) {
		_, then := begin(b)
		late(b, then, 9)
		b.wantState(1, receipt.Dispatched, "")
	})
	run(t, func(b *bench) { // nobody knows what was known then
		begin(b)
		late(b, nil, 99)
		b.wantState(1, receipt.Dispatched, "")
	})
	run(t, func(b *bench) { // the executor's own answer to the start, overtaken by its evidence
		var answers chan<- message.Answer
		var start exchange.Question
		m := &minionLedger{}
		m.on(b)
		m.is(10, message.Running)
		b.x.onStart = func(_ context.Context, q exchange.Question, _ string, a chan<- message.Answer) (exchange.Sending, error) {
			start, answers = q, a
			return exchange.SendingSent, nil
		}
		b.bind(1)
		b.at(10 * time.Second)
		m.is(15, message.Running)
		b.at(31 * time.Second)
		m.is(14, "")
		answers <- m.says(start, message.Fenced)
		b.wantState(1, receipt.Failed, problem.NeverStarted)
	})
	run(t, func(b *bench) { // and one of a ledger that was put back between prepare and start
		m := &minionLedger{}
		m.on(b)
		m.is(10, message.Running)
		b.x.onStart = func(_ context.Context, q exchange.Question, _ string, a chan<- message.Answer) (exchange.Sending, error) {
			m.is(9, message.Running)
			a <- m.says(q, message.Fenced)
			return exchange.SendingSent, nil
		}
		b.bind(1)
		b.at(10 * time.Minute)
		b.wantState(1, receipt.Dispatched, "")
	})
}

// An executor that tells no generation is judged as ever. One that told one and
// tells none now can't be judged: nothing is claimed and nothing believed that
// it may have forgotten, and nothing is held against it later.
func TestExecutorWithoutAGeneration(t *testing.T) {
	run(t, func(b *bench) {
		m := &minionLedger{}
		m.on(b)
		m.is(0, message.Fenced)
		b.x.onStart = goesOut
		b.bind(1)
		b.at(131 * time.Second)
		b.wantState(1, receipt.Failed, problem.NeverStarted)
		b.x.onStart = nil
		m.is(10, "")
		b.bind(2)
		b.wantState(2, receipt.Succeeded, "")
		m.is(0, "")
		b.bind(3)
		b.wantState(3, receipt.Refused, problem.LedgerChanged)
		b.x.onPrepare = func(_ context.Context, q exchange.Question) exchange.Reply {
			a := m.says(q, message.Refused)
			a.Code = problem.LedgerUnwritable
			return exchange.Reply{Answer: &a}
		}
		b.bind(4)
		b.wantState(4, receipt.Refused, problem.LedgerUnwritable) // it says why
		m.on(b)
		m.is(11, "")
		b.x.onStart = goesOut
		b.bind(5)
		b.wantState(5, receipt.Dispatched, "")
		m.is(0, message.Fenced)
		b.at(10 * time.Minute)
		b.wantState(5, receipt.Dispatched, "")
		m.is(12, message.Fenced)
		b.at(20 * time.Minute)
		b.wantState(5, receipt.Failed, problem.NeverStarted)
	})
}

// A late answer shows a second copy while a prepare is on its way: the claim's
// own transaction refuses.
func TestPutBackIsSeenBeforeTheClaim(t *testing.T) {
	run(t, func(b *bench) {
		m := &minionLedger{}
		m.on(b)
		b.adopt(10)
		m.is(11, "")
		old := b.bindQuietly(9)
		prepare := b.x.onPrepare
		b.x.onPrepare = func(ctx context.Context, q exchange.Question) exchange.Reply {
			lines, err := b.store.Lines(ctx, web)
			if err != nil {
				t.Error(err)
			}
			if err := b.store.Told(ctx, lines.Tell(ledger, 3)); err != nil {
				t.Error(err)
			}
			return prepare(ctx, q)
		}
		b.d.Bound(old)
		b.wantState(9, receipt.Refused, problem.LedgerChanged)
		b.wantTrace("claim", "0s claim r9 refused")
		b.wantTrace("start")
	})
}

// A record of this very request, fenced, in a ledger that was put back since it
// was bound: it proves nothing, and nobody asks again and again.
func TestFencedRecordOfAForgetfulLedger(t *testing.T) {
	run(t, func(b *bench) {
		m := &minionLedger{}
		m.on(b)
		b.adopt(10)
		r := b.bindQuietly(1)
		lines, _ := b.store.Lines(t.Context(), web)
		_ = b.store.Told(t.Context(), lines.Tell(ledger, 3))
		b.adopt(3)
		m.is(20, "")
		b.x.onPrepare = func(_ context.Context, q exchange.Question) exchange.Reply {
			if len(b.notes("prepare")) > 3 {
				t.Fatal("prepared again and again")
			}
			a := m.says(q, message.Fenced)
			return exchange.Reply{Answer: &a}
		}
		b.d.Bound(r)
		b.wantState(1, receipt.Refused, problem.LedgerChanged)
	})
}

// Issue 5, yesterday's database: that a ledger has no record of what waited then
// is proof only where the ledger wasn't put back too.
func TestCarriedReceiptAndALedgerThatWasPutBack(t *testing.T) {
	for generation, want := range map[uint64]problem.Code{10: problem.EpochEnded, 9: problem.NoAnswer} {
		run(t, func(b *bench) {
			m := &minionLedger{}
			m.on(b)
			b.adopt(10)
			m.is(generation, message.Absent)
			b.bindQuietly(1)
			b.startOn(carrying{b.store}, nil)
			b.at(3 * time.Minute)
			if r := b.receipt(1); r.Code != want {
				t.Errorf("%d: %s %s", generation, r.State, r.Code)
			}
		})
	}
}

// Nor where it was adopted only after what waited had come: the ledger that it may
// have run on is lost as well.
func TestCarriedReceiptAndALedgerOfLater(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onEvidence = func(_ context.Context, q exchange.Question) exchange.Reply {
			a := answer(q, message.Absent)
			a.Ledger = "ledger-2"
			return exchange.Reply{Answer: &a}
		}
		b.bindQuietly(1)
		b.at(time.Second)
		if err := b.store.Adopt(t.Context(), receipt.Target{
			ID: web, Instance: instance, Fingerprint: "fp", Ledger: "ledger-2", Machine: machine, AdoptedAt: b.clock.Now(),
		}); err != nil {
			t.Fatal(err)
		}
		b.startOn(carrying{b.store}, nil)
		b.at(3 * time.Minute)
		b.wantState(1, receipt.Uncertain, problem.NoAnswer)
	})
}

// And no clock says which came first: it may have been set back meanwhile.
func TestCarriedReceiptAndALedgerOfLaterByAnotherClock(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onEvidence = func(_ context.Context, q exchange.Question) exchange.Reply {
			a := answer(q, message.Absent)
			a.Ledger = "ledger-2"
			return exchange.Reply{Answer: &a}
		}
		b.bindQuietly(1)
		if err := b.store.Adopt(t.Context(), receipt.Target{
			ID: web, Instance: instance, Fingerprint: "fp", Ledger: "ledger-2", Machine: machine,
			AdoptedAt: b.clock.Now().Add(-time.Hour),
		}); err != nil {
			t.Fatal(err)
		}
		b.startOn(carrying{b.store}, nil)
		b.at(3 * time.Minute)
		b.wantState(1, receipt.Uncertain, problem.NoAnswer)
	})
}

// What is owed to a ledger isn't paid by another copy of it.
func TestDebtsOfALedgerThatWasPutBack(t *testing.T) {
	run(t, func(b *bench) {
		book := &ledgerBook{owed: []message.Settlement{{Request: req(8), Outcome: message.OutcomeFailed}}}
		b.startOn(b.store, book)
		b.adopt(10)
		m := &minionLedger{}
		b.x.onPrepare = func(_ context.Context, q exchange.Question) exchange.Reply {
			a := m.says(q, message.Prepared)
			a.Ticket = b.x.ticket(q).Answer.Ticket
			a.Settlements = &message.SettlementStates{{Request: req(8), Result: message.Absent}}
			return exchange.Reply{Answer: &a}
		}
		m.is(9, "")
		b.bind(1)
		b.wantState(1, receipt.Refused, problem.LedgerChanged)
		if len(book.paid) != 0 {
			t.Errorf("paid %v", book.paid)
		}
		b.adopt(9)
		b.bind(2)
		b.wantState(2, receipt.Succeeded, "")
		if len(book.paid) != 1 {
			t.Errorf("paid %v", book.paid)
		}
	})
}

// forgetless is a store that can't say for a while whether a ledger was put back.
type forgetless struct {
	dispatch.Store
	mu      sync.Mutex
	failing bool
}

func (s *forgetless) fail(failing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = failing
}

func (s *forgetless) broken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failing
}

func (s *forgetless) Lines(ctx context.Context, target string) (receipt.Lines, error) {
	if s.broken() {
		return nil, errBroken
	}
	return s.Store.Lines(ctx, target)
}

func (s *forgetless) Told(ctx context.Context, told receipt.Told) error {
	if s.broken() {
		return errBroken
	}
	return s.Store.Told(ctx, told)
}

func (s *forgetless) Forgotten(ctx context.Context, request, ledger string) (bool, error) {
	if s.broken() {
		return false, errBroken
	}
	return s.Store.Forgotten(ctx, request, ledger)
}

// While the store can't say what was known, nothing is asked whose answer could
// be judged wrongly, and nothing is judged. Then it goes on.
func TestWhatWasKnownCannotBeRead(t *testing.T) {
	run(t, func(b *bench) {
		s := &forgetless{Store: b.store}
		b.startOn(s, nil)
		m := &minionLedger{}
		m.on(b)
		m.is(10, message.Fenced)
		b.x.onStart = goesOut
		s.fail(true)
		b.bind(1)
		b.at(3 * time.Second)
		b.wantState(1, receipt.Queued, "")
		b.wantTrace("prepare")
		s.fail(false)
		b.at(5 * time.Second)
		b.wantState(1, receipt.Dispatched, "")
		evidence := b.x.onEvidence
		b.x.onEvidence = func(ctx context.Context, q exchange.Question) exchange.Reply {
			s.fail(true) // asked, and can't be judged
			return evidence(ctx, q)
		}
		b.at(60 * time.Second)
		b.wantState(1, receipt.Dispatched, "")
		if n := len(b.notes("evidence")); n != 1 {
			t.Errorf("%d questions", n)
		}
		s.fail(false)
		b.at(62 * time.Second)
		b.wantState(1, receipt.Failed, problem.NeverStarted)
	})
	run(t, func(b *bench) { // that it was put back can't be kept: it is asked again
		s := &forgetless{Store: b.store}
		b.startOn(s, nil)
		m := &minionLedger{}
		m.on(b)
		b.adopt(10)
		m.is(9, "")
		prepare := b.x.onPrepare
		b.x.onPrepare = func(ctx context.Context, q exchange.Question) exchange.Reply {
			s.fail(true)
			return prepare(ctx, q)
		}
		b.bind(1)
		b.wantState(1, receipt.Queued, "")
		b.x.onPrepare = prepare
		s.fail(false)
		b.at(2 * time.Second)
		b.wantState(1, receipt.Refused, problem.LedgerChanged)
		if target, err := b.store.Target(t.Context(), web); err != nil || !target.PutBack {
			t.Errorf("%+v %v", target, err)
		}
	})
}

// A15, A22: blocked_by says since when the target is kept, and means the same
// whoever refuses: the lane here, the store at the claim or at the binding.
func TestBlockedBySince(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onStart = goesOut
		b.x.onEvidence = func(_ context.Context, q exchange.Question) exchange.Reply { return replied(q, message.Interrupted) }
		b.at(5 * time.Second)
		b.bind(1)
		b.at(10 * time.Second)
		b.bind(2)
		dispatched := b.receipt(1).DispatchedAt
		b.at(36 * time.Second)
		lost := b.wantState(1, receipt.Uncertain, problem.Interrupted)
		since := func(n int, want time.Time) {
			t.Helper()
			if by := b.wantState(n, receipt.Refused, problem.TargetQuarantined).BlockedBy; by == nil || !by.Since.Equal(want) || by.Request != req(1) {
				t.Errorf("%d is blocked by %+v, want since %s", n, by, want)
			}
		}
		if !lost.LostAt.After(dispatched) {
			t.Errorf("uncertain at %s, dispatched at %s", lost.LostAt, dispatched)
		}
		since(2, lost.LostAt) // by the lane
		b.bind(3)
		since(3, lost.LostAt) // by the store
		b.restart()
		b.bind(4)
		since(4, lost.LostAt)
	})
	run(t, func(b *bench) { // two of them: the one that has been uncertain longest
		b.x.onStart = goesOut
		b.x.onEvidence = func(ctx context.Context, _ exchange.Question) exchange.Reply { return silent(ctx) }
		first, second := b.bindQuietly(1), b.bindQuietly(2)
		lose := func(r receipt.Receipt) receipt.Receipt {
			e := receipt.Event{Name: receipt.EventAdopt, To: receipt.Uncertain, At: b.clock.Now(), Actor: receipt.ActorMasterd,
				Code: problem.NoAnswer, Ledger: ledger}
			r, err := b.store.Store.Apply(t.Context(), r.Request, r.Seq, e)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		waits := b.bindQuietly(3)
		b.at(time.Second)
		second = lose(second)
		b.at(2 * time.Second)
		b.d.Moved(lose(first))
		b.d.Moved(second)
		b.d.Bound(waits)
		by := b.wantState(3, receipt.Refused, problem.TargetQuarantined).BlockedBy
		if by == nil || by.Request != req(2) || !by.Since.Equal(second.LostAt) {
			t.Errorf("blocked by %+v", by)
		}
	})
	run(t, func(b *bench) { // a busy one: its dispatch time
		b.x.onStart = goesOut
		b.at(5 * time.Second)
		b.bind(1)
		b.at(10 * time.Second)
		b.bind(2)
		b.at(71 * time.Second)
		by := b.wantState(2, receipt.Refused, problem.TargetBusy).BlockedBy
		if by == nil || !by.Since.Equal(b.receipt(1).DispatchedAt) {
			t.Errorf("blocked by %+v, dispatched at %s", by, b.receipt(1).DispatchedAt)
		}
	})
}
