package dispatch_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// A13, A19: prepare, then the claim, then the one start.
func TestOrderPrepareClaimStart(t *testing.T) {
	run(t, func(b *bench) {
		b.bind(1)
		b.wantState(1, receipt.Succeeded, "")
		b.wantTrace("r1", "0s prepare r1", "0s claim r1 dispatching", "0s start r1", "0s write r1 dispatched", "0s write r1 succeeded")
	})
}

// A19: a claim whose outcome isn't known never leads to a publish, whether it
// is on disk or not; the receipt is read again.
func TestClaimUnknownIsNeverPublished(t *testing.T) {
	t.Run("done", func(t *testing.T) {
		run(t, func(b *bench) {
			b.store.onClaim = func(do func() (receipt.Receipt, error)) (receipt.Receipt, error) {
				_, _ = do()
				return receipt.Receipt{}, errBroken
			}
			b.x.onEvidence = fencesWhenAllowed
			b.bind(1)
			b.wantState(1, receipt.Dispatching, "")
			b.at(129 * time.Second)
			b.wantState(1, receipt.Dispatching, "")
			b.at(131 * time.Second)
			b.wantState(1, receipt.Failed, problem.NeverStarted)
			b.wantTrace("start r1")
			b.wantTrace("lookup r1", "1s lookup r1")
		})
	})
	t.Run("not done", func(t *testing.T) {
		run(t, func(b *bench) {
			tries := 0
			b.store.onClaim = func(do func() (receipt.Receipt, error)) (receipt.Receipt, error) {
				if tries++; tries == 1 {
					return receipt.Receipt{}, errBroken
				}
				return do()
			}
			b.bind(1)
			b.wantState(1, receipt.Queued, "")
			b.at(2 * time.Second)
			b.wantState(1, receipt.Succeeded, "")
			b.wantTrace("start r1", "1s start r1")
			b.wantTrace("prepare r1", "0s prepare r1", "1s prepare r1") // a new ticket
		})
	})
}

func fencesWhenAllowed(_ context.Context, q exchange.Question) exchange.Reply {
	if !q.Body.Fence {
		return replied(q, message.NotStartedYet)
	}
	a := answer(q, message.Fenced)
	a.Code = problem.NeverStarted
	return exchange.Reply{Answer: &a}
}

// While it isn't known whether a receipt was claimed, nobody else gets a turn,
// and nobody is refused for it.
func TestUnknownClaimKeepsTheTurn(t *testing.T) {
	run(t, func(b *bench) {
		b.store.onClaim = func(do func() (receipt.Receipt, error)) (receipt.Receipt, error) {
			if len(b.notes("claim")) > 0 {
				return do()
			}
			_, _ = do()
			return receipt.Receipt{}, errBroken
		}
		b.x.onEvidence = fencesWhenAllowed
		b.bindQuietly(2) // same moment
		b.d.Bound(b.bindQuietly(1))
		b.d.Bound(b.receipt(2))
		b.at(5 * time.Second)
		b.wantState(1, receipt.Dispatching, "")
		b.wantState(2, receipt.Queued, "")
		b.wantTrace("prepare r2")
	})
}

// Masterd stops before the claim: the receipt waits for the next start. After
// the claim: the start still goes out.
func TestStop(t *testing.T) {
	t.Run("before the claim", func(t *testing.T) {
		run(t, func(b *bench) {
			b.x.onPrepare = func(ctx context.Context, _ exchange.Question) exchange.Reply { return silent(ctx) }
			b.bind(1)
			b.at(5 * time.Second)
			b.kill()
			b.wantState(1, receipt.Queued, "")
			b.x.onPrepare = nil
			b.start()
			b.wantState(1, receipt.Succeeded, "")
			b.wantTrace("prepare", "0s prepare r1", "5s prepare r1")
		})
	})
	t.Run("after the claim", func(t *testing.T) {
		run(t, func(b *bench) {
			claimed, goOn := make(chan struct{}), make(chan struct{})
			b.store.onClaim = func(do func() (receipt.Receipt, error)) (receipt.Receipt, error) {
				r, err := do()
				close(claimed)
				<-goOn
				return r, err
			}
			b.bind(1)
			<-claimed
			b.cancel()
			synctest.Wait()
			close(goOn)
			<-b.ended
			b.wantState(1, receipt.Dispatched, "")
			b.wantTrace("start r1", "0s start r1")
			b.x.onEvidence = func(_ context.Context, q exchange.Question) exchange.Reply {
				a := finished(q, "")
				return exchange.Reply{Answer: &a}
			}
			b.start()
			b.at(31 * time.Second)
			b.wantState(1, receipt.Succeeded, "")
			b.wantTrace("start r1", "0s start r1")
			b.wantTrace("prepare r1", "0s prepare r1") // never after the claim
		})
	})
}

// A15, A16: the others wait in order of acceptance, at most 60 s from
// acceptance, across restarts, and are then refused with what blocks them.
func TestBusyTarget(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onStart = goesOut
		b.x.onEvidence = func(ctx context.Context, q exchange.Question) exchange.Reply {
			if time.Since(b.began) > 3*time.Minute {
				a := finished(q, "")
				return exchange.Reply{Answer: &a}
			}
			return silent(ctx) // for 20 s, over somebody's 60 s
		}
		b.bind(1)
		b.at(10 * time.Second)
		b.bind(2)
		b.at(40 * time.Second)
		b.restart()
		b.at(75 * time.Second)
		b.bind(3)
		b.wantState(2, receipt.Refused, problem.TargetBusy)
		b.wantTrace("write r2", "1m10s write r2 refused")
		b.at(140 * time.Second) // evidence of r1 is being asked for since 130 s
		b.wantTrace("write r3", "2m15s write r3 refused")
		r3 := b.wantState(3, receipt.Refused, problem.TargetBusy)
		if r3.BlockedBy == nil || r3.BlockedBy.Request != req(1) || r3.BlockedBy.Profile != receipt.Custom || r3.BlockedBy.Since.IsZero() {
			t.Errorf("blocked by %+v", r3.BlockedBy)
		}
		if r3.Preflight != (receipt.Preflight{Passed: 0, Total: 1}) {
			t.Errorf("preflight %+v", r3.Preflight)
		}
		b.wantTrace("prepare", "0s prepare r1")
	})
}

// A15: the turn goes to whoever was accepted first, whatever order the bindings
// were told in.
func TestOrderOfAcceptance(t *testing.T) {
	run(t, func(b *bench) {
		release := make(chan struct{})
		b.x.onStart = func(_ context.Context, q exchange.Question, _ string, answers chan<- message.Answer) (exchange.Sending, error) {
			if q.Request == req(1) {
				go func() { <-release; answers <- finished(q, "") }()
			} else {
				answers <- finished(q, "")
			}
			return exchange.SendingSent, nil
		}
		b.bind(1)
		b.at(time.Second)
		r2 := b.bindQuietly(2)
		b.at(2 * time.Second)
		r3 := b.bindQuietly(3)
		b.d.Bound(r3)
		b.d.Bound(r2)
		b.at(10 * time.Second)
		close(release)
		synctest.Wait()
		b.wantTrace("start", "0s start r1", "10s start r2", "10s start r3")
	})
}

// A21, A22: an uncertain receipt refuses whoever waits, at once, also while its
// evidence is being asked for.
func TestQuarantineRefusesWaiting(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onStart = goesOut
		b.x.onEvidence = func(ctx context.Context, q exchange.Question) exchange.Reply {
			if time.Since(b.began) < 40*time.Second {
				return replied(q, message.Interrupted)
			}
			return silent(ctx)
		}
		b.bind(1)
		b.at(10 * time.Second)
		b.bind(2)
		b.at(31 * time.Second)
		b.wantState(1, receipt.Uncertain, problem.Interrupted)
		r2 := b.wantState(2, receipt.Refused, problem.TargetQuarantined)
		b.wantTrace("write r2", "30s write r2 refused")
		if r2.BlockedBy == nil || r2.BlockedBy.Request != req(1) {
			t.Errorf("blocked by %+v", r2.BlockedBy)
		}
		b.wantTrace("prepare r2")
	})
}

// A15: 90 s after acceptance nothing can be started any more; a deaf masterd
// starts nothing.
func TestStartWindow(t *testing.T) {
	run(t, func(b *bench) {
		b.deaf.Store(true)
		b.bind(1)
		b.at(89 * time.Second)
		b.wantState(1, receipt.Queued, "")
		b.at(91 * time.Second)
		b.wantState(1, receipt.Refused, problem.StartWindowPassed)
		b.wantTrace("prepare")
		b.bind(2)
		b.at(100 * time.Second)
		b.deaf.Store(false)
		b.at(101 * time.Second)
		b.wantState(2, receipt.Succeeded, "")
	})
}

// A claim is made within 30 s of having sent the prepare, or not at all.
func TestTicketTrust(t *testing.T) {
	run(t, func(b *bench) {
		first := true
		b.x.onPrepare = func(_ context.Context, q exchange.Question) exchange.Reply {
			r := b.x.ticket(q)
			if first {
				r.AskedAt = b.clock.Now().Add(-receipt.TicketTrust - time.Second)
				first = false
			}
			return r
		}
		b.bind(1)
		b.wantState(1, receipt.Succeeded, "")
		b.wantTrace("prepare", "0s prepare r1", "0s prepare r1")
		b.wantTrace("claim", "0s claim r1 dispatching")
	})
}

// A16: whatever prepare finds is a refusal, final, with 0 of 1 checks.
func TestRefusals(t *testing.T) {
	refusedWith := func(code problem.Code, unfinished string) func(context.Context, exchange.Question) exchange.Reply {
		return func(_ context.Context, q exchange.Question) exchange.Reply {
			a := answer(q, message.Refused)
			a.Code, a.Unfinished = code, unfinished
			return exchange.Reply{Answer: &a}
		}
	}
	changed := func(change func(*message.Answer)) func(context.Context, exchange.Question) exchange.Reply {
		return func(_ context.Context, q exchange.Question) exchange.Reply {
			a := answer(q, message.Prepared)
			a.Ticket = "00112233445566778899aabbccddeeff"
			change(&a)
			return exchange.Reply{Answer: &a}
		}
	}
	quiet := func(s exchange.Silence) func(context.Context, exchange.Question) exchange.Reply {
		return func(ctx context.Context, _ exchange.Question) exchange.Reply {
			<-ctx.Done()
			return exchange.Reply{Silence: s}
		}
	}
	for _, c := range []struct {
		name    string
		key     func(context.Context) (string, string, error)
		prepare func(context.Context, exchange.Question) exchange.Reply
		after   time.Duration
		code    problem.Code
		detail  string
	}{
		{name: "no accepted key", code: problem.TargetUnknown,
			key: func(context.Context) (string, string, error) {
				return "", "", problem.New(problem.TargetUnknown, "no")
			}},
		{name: "master doesn't answer", code: problem.ExecutorSilent, detail: "not_tried",
			key: func(context.Context) (string, string, error) { return "", "", errLost }},
		{name: "another key", code: problem.KeyChanged,
			key: func(context.Context) (string, string, error) { return "pem", "other", nil }},
		{name: "a key that can't be read", code: problem.KeyChanged,
			key: func(context.Context) (string, string, error) { return "", "", problem.New(problem.KeyChanged, "no") }},
		{name: "silent", code: problem.ExecutorSilent, after: 20 * time.Second, prepare: quiet(exchange.SilenceNothing)},
		{name: "no module", code: problem.ExecutorSilent, after: 20 * time.Second, detail: "no_module", prepare: quiet(exchange.SilenceUnavailable)},
		{name: "not published", code: problem.TargetUnknown, after: 20 * time.Second, detail: "not_sent", prepare: quiet(exchange.SilenceUnpublished)},
		{name: "another ledger", code: problem.LedgerChanged, prepare: changed(func(a *message.Answer) { a.Ledger = "other" })},
		{name: "another machine", code: problem.LedgerChanged, prepare: changed(func(a *message.Answer) { a.Machine = "other" })},
		{name: "another instance", code: problem.InstanceDiffers, prepare: changed(func(a *message.Answer) { a.Instance = "other" })},
		{name: "an old protocol", code: problem.ExecutorOutdated, prepare: changed(func(a *message.Answer) { a.Protocol = 0 })},
		{name: "another digest", code: problem.ExecutorOutdated, prepare: changed(func(a *message.Answer) { a.Digest = "other" })},
		{name: "no ticket", code: problem.ExecutorOutdated, prepare: changed(func(a *message.Answer) { a.Ticket = "" })},
		{name: "pillar", code: problem.PillarError, prepare: refusedWith(problem.PillarError, "")},
		{name: "state running", code: problem.StateRunning, prepare: refusedWith(problem.StateRunning, "")},
		{name: "unfinished", code: problem.RecordUnfinished, prepare: refusedWith(problem.RecordUnfinished, req(9))},
		{name: "a code of another list", code: problem.ExecutorOutdated, prepare: refusedWith(problem.StateFailed, "")},
		{name: "nonsense", code: problem.ExecutorOutdated, prepare: func(_ context.Context, q exchange.Question) exchange.Reply {
			return replied(q, message.Updated)
		}},
		{name: "its record, of another ledger", code: problem.LedgerChanged, prepare: func(_ context.Context, q exchange.Question) exchange.Reply {
			a := finished(q, "")
			a.Ledger = "other"
			return exchange.Reply{Answer: &a}
		}},
		{name: "its record, with another digest", code: problem.RequestConflict, prepare: func(_ context.Context, q exchange.Question) exchange.Reply {
			a := finished(q, "")
			a.Digest = digestOf("canonical")
			return exchange.Reply{Answer: &a}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, func(b *bench) {
				b.x.onKey, b.x.onPrepare = c.key, c.prepare
				b.bind(1)
				if c.after > 0 {
					b.at(c.after - time.Second)
					b.wantState(1, receipt.Queued, "")
					b.at(c.after)
				}
				r := b.wantState(1, receipt.Refused, c.code)
				if r.Detail != c.detail || r.Preflight != (receipt.Preflight{Passed: 0, Total: 1}) || r.Counts.NotRun != declared {
					t.Errorf("got %+v", r)
				}
				if c.code == problem.RecordUnfinished && (r.BlockedBy == nil || r.BlockedBy.Request != req(9)) {
					t.Errorf("blocked by %+v", r.BlockedBy)
				}
				b.wantTrace("claim")
				b.wantTrace("start")
			})
		})
	}
}

// A19, B11: prepare meets a record of this very request: the receipt goes where
// the record is, and nothing is started.
func TestPrepareMeetsItsOwnRecord(t *testing.T) {
	for _, c := range []struct {
		name   string
		record func(q exchange.Question) message.Answer
		state  receipt.State
		code   problem.Code
	}{
		{"finished", func(q exchange.Question) message.Answer { return finished(q, "") }, receipt.Succeeded, ""},
		{"finished badly", func(q exchange.Question) message.Answer { return finished(q, problem.StateFailed) }, receipt.Failed, problem.StateFailed},
		{"fenced", func(q exchange.Question) message.Answer {
			a := answer(q, message.Fenced)
			a.Code = problem.NeverStarted
			return a
		}, receipt.Failed, problem.NeverStarted},
		{"never began", func(q exchange.Question) message.Answer { return answer(q, message.NeverBegan) }, receipt.Failed, problem.NeverBegan},
		{"running", func(q exchange.Question) message.Answer { return answer(q, message.Running) }, receipt.Dispatched, ""},
		{"interrupted", func(q exchange.Question) message.Answer { return answer(q, message.Interrupted) }, receipt.Uncertain, problem.Interrupted},
		// It ran, and what it says of it can't be: nobody knows, and nobody asks
		// again and again.
		{"counts that can't be", func(q exchange.Question) message.Answer {
			a := finished(q, "")
			a.Counts.Declared++
			return a
		}, receipt.Uncertain, problem.NoAnswer},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, func(b *bench) {
				b.x.onPrepare = func(_ context.Context, q exchange.Question) exchange.Reply {
					if len(b.notes("prepare")) > 10 {
						t.Fatal("prepared again and again")
					}
					a := c.record(q)
					return exchange.Reply{Answer: &a}
				}
				b.bind(1)
				b.wantState(1, c.state, c.code)
				b.wantTrace("claim")
				b.wantTrace("start")
				b.wantTrace("prepare", "0s prepare r1")
			})
		})
	}
}
