package dispatch_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oduflow/oduflow-salt/internal/dispatch"
	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// A17, A21: evidence at 30 s, 130 s, every 10 minutes and at 7,200 s; uncertain
// at 7,250 s sharp; then every 10 minutes until late evidence resolves it.
func TestScheduleUntilTheDeadline(t *testing.T) {
	for _, c := range []struct {
		result message.Result
		code   problem.Code
	}{
		{message.Running, problem.StillRunning},
		{message.Absent, problem.LedgerAbsent},
		{message.NotStartedYet, problem.NoAnswer},
		{"", problem.NoAnswer},
	} {
		t.Run(string(c.code), func(t *testing.T) {
			run(t, func(b *bench) {
				b.x.onStart = goesOut
				var done atomic.Bool
				b.x.onEvidence = func(ctx context.Context, q exchange.Question) exchange.Reply {
					switch {
					case done.Load():
						a := finished(q, problem.StateFailed)
						return exchange.Reply{Answer: &a}
					case c.result == "":
						return silent(ctx)
					}
					return replied(q, c.result)
				}
				b.bind(1)
				want := []string{"30s evidence r1 fence=false", "2m10s evidence r1 fence=true"}
				for at := 730; at < 7200; at += 600 {
					want = append(want, fmt.Sprintf("%s evidence r1 fence=true", time.Duration(at)*time.Second))
				}
				want = append(want, "2h0m0s evidence r1 fence=true")
				b.at(7249 * time.Second)
				b.wantState(1, receipt.Dispatched, "")
				b.wantTrace("evidence", want...)
				b.at(7250 * time.Second)
				r := b.wantState(1, receipt.Uncertain, c.code)
				if r.ExpiresAt() != r.DispatchedAt.Add(receipt.DispatchDeadline) {
					t.Errorf("expires at %s", r.ExpiresAt())
				}
				b.at(7260 * time.Second)
				before := len(b.notes("evidence"))
				b.at(4 * time.Hour)
				if n := len(b.notes("evidence")) - before; n < 10 || n > 13 {
					t.Errorf("%d questions in two hours of uncertainty", n)
				}
				done.Store(true)
				b.at(4*time.Hour + 10*time.Minute)
				b.wantState(1, receipt.Failed, problem.StateFailed) // A24
				before = len(b.notes("evidence"))
				b.at(6 * time.Hour)
				if n := len(b.notes("evidence")); n != before {
					t.Error("a terminal receipt is asked about")
				}
			})
		})
	}
}

// A17: masterd was down over the deadline: it asks before it says uncertain.
func TestDeadlineAcrossARestart(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onStart = goesOut
		b.bind(1)
		b.at(time.Second)
		b.kill()
		b.at(3 * time.Hour)
		b.x.onEvidence = func(_ context.Context, q exchange.Question) exchange.Reply {
			a := finished(q, "")
			return exchange.Reply{Answer: &a}
		}
		b.start()
		b.wantState(1, receipt.Succeeded, "")
		b.wantTrace("write r1", "0s write r1 dispatched", "3h0m0s write r1 succeeded")
	})
	run(t, func(b *bench) {
		b.x.onStart = goesOut
		b.bind(1)
		b.at(time.Second)
		b.kill()
		b.at(3 * time.Hour)
		b.start()
		b.at(3*time.Hour + 21*time.Second)
		b.wantState(1, receipt.Uncertain, problem.NoAnswer)
	})
}

// The fence is asked for 130 s after the ticket and not before, also right
// after a restart.
func TestFenceFlag(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onStart = goesOut
		b.x.onEvidence = fencesWhenAllowed
		b.bind(1)
		for _, at := range []time.Duration{20, 60, 125} {
			b.at(at * time.Second)
			b.restart()
			b.d.Gap()
		}
		b.at(129 * time.Second)
		for _, line := range b.notes("fence=true") {
			t.Error("too early: ", line)
		}
		b.at(131 * time.Second)
		b.wantState(1, receipt.Failed, problem.NeverStarted)
	})
}

// A question names the ticket that was claimed: a record with another one, a
// clone's for example, isn't what it asks about.
func TestEvidenceNamesTheTicket(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onStart = goesOut
		b.x.onEvidence = func(_ context.Context, q exchange.Question) exchange.Reply {
			if r := b.receipt(1); q.Ticket == "" || q.Ticket != r.Ticket {
				t.Errorf("asked about ticket %q, claimed was %q", q.Ticket, r.Ticket)
			}
			return replied(q, message.Running)
		}
		b.bind(1)
		b.at(3 * time.Minute)
		if len(b.notes("evidence")) != 2 {
			t.Errorf("%q", b.notes("evidence"))
		}
	})
}

// A19: a return on the bus, true or forged, is a reason to ask and no more; a
// flood of them is one question in 5 s.
func TestHints(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onStart = goesOut
		b.x.onEvidence = func(_ context.Context, q exchange.Question) exchange.Reply { return replied(q, message.Running) }
		b.bind(1)
		b.wantState(1, receipt.Dispatched, "")
		jid := b.receipt(1).JID
		for i := range 200 {
			b.at(time.Second + time.Duration(i)*50*time.Millisecond)
			b.x.hint(jid)
		}
		b.at(15 * time.Second)
		b.wantTrace("evidence", "1s evidence r1 fence=false", "6s evidence r1 fence=false", "11s evidence r1 fence=false")
	})
}

// A hint that comes while a question is under way isn't lost.
func TestHintDuringAQuestion(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onStart = goesOut
		var over atomic.Bool
		b.x.onEvidence = func(_ context.Context, q exchange.Question) exchange.Reply {
			if over.Load() {
				a := finished(q, "")
				return exchange.Reply{Answer: &a}
			}
			timer := time.NewTimer(2 * time.Second)
			<-timer.C
			return replied(q, message.Running)
		}
		b.bind(1)
		b.at(31 * time.Second)
		over.Store(true)
		b.x.hint(b.receipt(1).JID)
		b.at(36 * time.Second)
		b.wantState(1, receipt.Succeeded, "")
	})
}

// After a gap every open receipt is asked about soon, a few at a time, and each
// target one question at a time.
func TestGapWithoutAStorm(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onStart = goesOut
		const targets = 60
		for n := range targets {
			id := fmt.Sprintf("web-%d", n+2)
			if err := b.store.Adopt(t.Context(), receipt.Target{ID: id, Instance: instance, Fingerprint: "fp", Ledger: ledger, Machine: machine}); err != nil {
				t.Fatal(err)
			}
			bound, err := b.store.Bind(t.Context(), receipt.Binding{
				Request: req(n + 1), Body: receipt.Body{Target: id, Instance: instance, Profile: receipt.Custom, Digest: digestOf("canonical")},
				Declared: declared, AcceptedAt: b.clock.Now(),
			}, nil, []byte("canonical"))
			if err != nil {
				t.Fatal(err)
			}
			b.d.Bound(bound.Execution)
		}
		synctest.Wait()
		b.at(5 * time.Second)
		b.x.most = 0
		b.x.onEvidence = func(_ context.Context, q exchange.Question) exchange.Reply {
			timer := time.NewTimer(time.Second)
			<-timer.C
			return replied(q, message.Running)
		}
		b.d.Gap()
		b.d.Gap()
		b.at(20 * time.Second)
		if n := len(b.notes("evidence")); n != targets {
			t.Errorf("%d questions for %d receipts", n, targets)
		}
		if b.x.most > 8 {
			t.Errorf("%d questions at once", b.x.most)
		}
	})
}

// A receipt that waits behind a silent target's question is refused in time,
// even when all places for questions are taken.
func TestRefusalWhileAllPlacesAreTaken(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onStart = goesOut
		b.bind(1)
		for n := range 40 {
			id := fmt.Sprintf("dead-%d", n)
			_ = b.store.Adopt(t.Context(), receipt.Target{ID: id, Instance: instance, Fingerprint: "fp", Ledger: ledger, Machine: machine})
			bound, _ := b.store.Bind(t.Context(), receipt.Binding{
				Request: req(n + 100), Body: receipt.Body{Target: id, Instance: instance, Profile: receipt.Custom, Digest: digestOf("canonical")},
				Declared: declared, AcceptedAt: b.clock.Now(),
			}, nil, []byte("canonical"))
			b.d.Bound(bound.Execution)
		}
		b.at(time.Second)
		b.bind(2)
		b.at(62 * time.Second)
		b.wantState(2, receipt.Refused, problem.TargetBusy)
	})
}

// The store can't be written when the outcome comes: it is written when it can.
func TestOutcomeOutlivesABrokenStore(t *testing.T) {
	run(t, func(b *bench) {
		var answers chan<- message.Answer
		var question exchange.Question
		b.x.onStart = func(_ context.Context, q exchange.Question, _ string, a chan<- message.Answer) (exchange.Sending, error) {
			question, answers = q, a
			return exchange.SendingSent, nil
		}
		b.bind(1)
		b.at(time.Second)
		b.store.setBroken(true)
		answers <- finished(question, "")
		b.at(20 * time.Second)
		b.wantState(1, receipt.Dispatched, "")
		b.store.setBroken(false)
		b.at(22 * time.Second)
		b.wantState(1, receipt.Succeeded, "")
	})
}

// Done, but told failed: the receipt is read again and the outcome stands.
func TestOutcomeDoneButToldFailed(t *testing.T) {
	run(t, func(b *bench) {
		b.store.onApply = func(_ receipt.Event, do func() (receipt.Receipt, error)) (receipt.Receipt, error) {
			_, _ = do()
			return receipt.Receipt{}, errBroken
		}
		b.bind(1)
		b.at(5 * time.Second)
		b.wantState(1, receipt.Succeeded, "")
		b.wantTrace("start", "0s start r1")
	})
}

// The master's own answer that it sent nothing is proof; no answer isn't.
func TestSending(t *testing.T) {
	for _, c := range []struct {
		sending exchange.Sending
		state   receipt.State
		code    problem.Code
	}{
		{exchange.SendingSent, receipt.Dispatched, ""},
		{exchange.SendingNothing, receipt.Failed, problem.NotSent},
		{exchange.SendingUnknown, receipt.Dispatching, ""},
		{exchange.SendingNotTried, receipt.Dispatching, ""},
	} {
		run(t, func(b *bench) {
			b.x.onStart = func(context.Context, exchange.Question, string, chan<- message.Answer) (exchange.Sending, error) {
				return c.sending, errLost
			}
			b.x.onEvidence = fencesWhenAllowed
			b.bind(1)
			b.wantState(1, c.state, c.code)
			b.at(10 * time.Minute)
			b.wantTrace("start", "0s start r1") // never sent again
			if c.state != receipt.Failed {
				b.wantState(1, receipt.Failed, problem.NeverStarted)
			}
		})
	}
}

// Evidence after a terminal state is kept; where it contradicts, it is marked
// and changes nothing.
func TestEvidenceConflictIsKept(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onStart = goesOut
		b.x.onEvidence = fencesWhenAllowed
		b.bind(1)
		b.at(131 * time.Second)
		b.wantState(1, receipt.Failed, problem.NeverStarted)
		q := exchange.Question{Kind: message.Start, Target: web, Instance: instance, Request: req(1), Digest: b.receipt(1).Body.Digest}
		b.x.late(exchange.Late{Kind: message.Start, Request: req(1), Target: web, Answer: finished(q, "")})
		b.wantState(1, receipt.Failed, problem.NeverStarted)
		all := b.store.Witnesses(req(1))
		if last := all[len(all)-1]; !last.Conflict || last.Result != "finished" || last.Kind != "start" {
			t.Errorf("witnesses %+v", all)
		}
	})
}

// A late answer to a question that was given up is taken like any other.
func TestLateAnswerCounts(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onStart = goesOut
		b.bind(1)
		b.at(60 * time.Second)
		q := exchange.Question{Kind: message.Evidence, Target: web, Instance: instance, Request: req(1), Digest: b.receipt(1).Body.Digest}
		b.x.late(exchange.Late{Kind: message.Evidence, Request: req(1), Target: web, Answer: finished(q, problem.StateFailed)})
		b.wantState(1, receipt.Failed, problem.StateFailed)
	})
}

// Of two machines with one ledger, before it is known that there are two: what the
// other one says of a record that was never claimed comes late, and proves nothing.
func TestLatePrepareProvesNothing(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onStart = goesOut
		b.bind(1)
		b.at(60 * time.Second)
		lines, err := b.store.Lines(t.Context(), web)
		if err != nil {
			t.Fatal(err)
		}
		q := exchange.Question{Kind: message.Prepare, Target: web, Instance: instance, Request: req(1), Digest: b.receipt(1).Body.Digest}
		a := answer(q, message.Fenced)
		a.Code = problem.NeverStarted
		b.x.late(exchange.Late{Kind: message.Prepare, Request: req(1), Target: web, Answer: a, Lines: lines})
		b.at(61 * time.Second)
		b.wantState(1, receipt.Dispatched, "")
	})
}

// duplicate_target: two executors answer for one target. What isn't claimed yet
// is refused, and everything later, also after a restart, until adopted.
func TestDuplicateTarget(t *testing.T) {
	run(t, func(b *bench) {
		second := func(q exchange.Question) exchange.Late {
			a := answer(q, message.Prepared)
			a.Ticket = "ffffffffffffffffffffffffffffffff"
			return exchange.Late{Kind: q.Kind, Request: q.Request, Target: q.Target, Answer: a, Duplicate: true}
		}
		b.x.onPrepare = func(_ context.Context, q exchange.Question) exchange.Reply {
			b.x.late(second(q))
			synctestPause()
			return b.x.ticket(q)
		}
		b.bind(1)
		b.at(time.Second)
		b.wantState(1, receipt.Refused, problem.DuplicateTarget)
		b.x.onPrepare = nil
		b.bind(2)
		b.wantState(2, receipt.Refused, problem.DuplicateTarget)
		b.restart()
		b.bind(3)
		b.wantState(3, receipt.Refused, problem.DuplicateTarget)
		b.wantTrace("claim")
		b.wantTrace("prepare", "0s prepare r1")
		_ = b.store.Adopt(t.Context(), receipt.Target{ID: web, Instance: instance, Fingerprint: "fp", Ledger: ledger, Machine: machine, AdoptedAt: b.clock.Now()})
		b.bind(4)
		b.wantState(4, receipt.Succeeded, "")
	})
	// After the claim the receipt goes on, but a twin's word that it never
	// started proves nothing.
	run(t, func(b *bench) {
		b.x.onStart = goesOut
		b.x.onEvidence = fencesWhenAllowed
		b.bind(1)
		b.at(time.Second)
		q := exchange.Question{Kind: message.Prepare, Target: web, Instance: instance, Request: req(1), Digest: b.receipt(1).Body.Digest}
		a := answer(q, message.Prepared)
		a.Ticket = "ffffffffffffffffffffffffffffffff"
		b.x.late(exchange.Late{Kind: message.Prepare, Request: req(1), Target: web, Answer: a, Duplicate: true})
		b.at(10 * time.Minute)
		b.wantState(1, receipt.Dispatched, "")
		b.at(2*time.Hour + time.Minute)
		b.wantState(1, receipt.Uncertain, problem.NoAnswer)
	})
}

// targetless is a store whose targets can't be read at times.
type targetless struct {
	dispatch.Store
	fails atomic.Bool
}

func (s *targetless) Target(ctx context.Context, id string) (*receipt.Target, error) {
	if s.fails.Load() {
		return nil, errBroken
	}
	return s.Store.Target(ctx, id)
}

// Nor does it where the store can't say, after a restart, that there are two.
func TestDuplicateTargetThatCannotBeRead(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onStart = goesOut
		b.bind(1)
		b.at(time.Second)
		q := exchange.Question{Kind: message.Prepare, Target: web, Instance: instance, Request: req(1), Digest: b.receipt(1).Body.Digest}
		a := answer(q, message.Prepared)
		a.Ticket = "ffffffffffffffffffffffffffffffff"
		b.x.late(exchange.Late{Kind: message.Prepare, Request: req(1), Target: web, Answer: a, Duplicate: true})
		b.at(2 * time.Second)
		s := &targetless{Store: b.store}
		b.x.onEvidence = func(_ context.Context, q exchange.Question) exchange.Reply {
			s.fails.Store(true)
			return fencesWhenAllowed(context.Background(), q)
		}
		b.startOn(s, nil)
		b.at(3 * time.Minute)
		b.wantState(1, receipt.Dispatched, "")
		s.fails.Store(false)
		b.at(2*time.Hour + time.Minute)
		if r := b.receipt(1); r.State == receipt.Failed {
			t.Errorf("%s %s", r.State, r.Code)
		}
	})
}

func synctestPause() {
	timer := time.NewTimer(10 * time.Millisecond)
	<-timer.C
}

// A restart finds receipts that another process bound: the ledger is asked
// about one before it is refused, since the database may be an older copy.
func TestLedgerIsAskedBeforeARestoredReceiptIsRefused(t *testing.T) {
	run(t, func(b *bench) {
		b.kill()
		b.bindQuietly(1)
		b.at(10 * time.Minute)
		b.x.onEvidence = func(_ context.Context, q exchange.Question) exchange.Reply {
			a := finished(q, "")
			return exchange.Reply{Answer: &a}
		}
		b.start()
		b.wantState(1, receipt.Succeeded, "")
		b.wantTrace("prepare")
	})
	run(t, func(b *bench) {
		b.kill()
		b.bindQuietly(1)
		b.at(10 * time.Minute)
		b.x.onEvidence = func(_ context.Context, q exchange.Question) exchange.Reply { return replied(q, message.Absent) }
		b.start()
		b.wantState(1, receipt.Refused, problem.StartWindowPassed)
		b.wantTrace("prepare")
	})
}
