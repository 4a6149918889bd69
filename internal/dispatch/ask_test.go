package dispatch_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oduflow/oduflow-salt/internal/dispatch"
	"github.com/oduflow/oduflow-salt/internal/evidence"
	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// carrying is a store after a restore: the first request was bound before it.
type carrying struct{ dispatch.Store }

func carried(r receipt.Receipt) receipt.Receipt {
	r.Carried = r.Request == req(1)
	return r
}

func (s carrying) Lookup(ctx context.Context, request string) (receipt.Bound, error) {
	b, err := s.Store.Lookup(ctx, request)
	b.Execution = carried(b.Execution)
	return b, err
}

func (s carrying) Unresolved(ctx context.Context) ([]receipt.Receipt, error) {
	all, err := s.Store.Unresolved(ctx)
	for i := range all {
		all[i] = carried(all[i])
	}
	return all, err
}

func (s carrying) Apply(ctx context.Context, request string, seq int, e receipt.Event) (receipt.Receipt, error) {
	r, err := s.Store.Apply(ctx, request, seq, e)
	return carried(r), err
}

// ledgerBook is a dispatch.Records by hand.
type ledgerBook struct {
	mu         sync.Mutex
	owed       []message.Settlement
	paid       []message.SettlementState
	unfinished []string
}

func (l *ledgerBook) Owed(context.Context, string, string) []message.Settlement {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owed
}

func (l *ledgerBook) Paid(_ context.Context, _ string, states []message.SettlementState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.paid = append(l.paid, states...)
}

func (l *ledgerBook) Unfinished(_ context.Context, _ receipt.Receipt, request string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unfinished = append(l.unfinished, request)
}

// startOn starts a masterd on another store than the bench's, and with a book.
func (b *bench) startOn(store dispatch.Store, records dispatch.Records) {
	b.kill()
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	b.cancel, b.ended = cancel, make(chan struct{})
	b.d = dispatch.New(dispatch.Config{
		Store: store, Exchange: b.x, Now: b.clock.Now, Jitter: rand.New(rand.NewPCG(1, 2)), Records: records,
		Logger: hclog.NewNullLogger(), Changed: func(receipt.Receipt) {}, Joined: func() bool { return !b.deaf.Load() },
	})
	d, ended := b.d, b.ended
	go func() {
		defer close(ended)
		if err := d.Run(ctx); err != nil {
			b.t.Error(err)
		}
	}()
	synctest.Wait()
}

// Issue 5, yesterday's database: what waited then never starts. Its ledger says
// what became of it; no answer in two minutes leaves it uncertain.
func TestCarriedReceiptNeverStarts(t *testing.T) {
	for what, c := range map[string]struct {
		answer func(ctx context.Context, q exchange.Question) exchange.Reply
		state  receipt.State
		code   problem.Code
		after  time.Duration
	}{
		"it ran": {func(_ context.Context, q exchange.Question) exchange.Reply {
			a := finished(q, "")
			return exchange.Reply{Answer: &a}
		}, receipt.Succeeded, "", time.Second},
		"no record": {func(_ context.Context, q exchange.Question) exchange.Reply {
			return replied(q, message.Absent)
		}, receipt.Refused, problem.EpochEnded, time.Second},
		"no record in another ledger": {func(_ context.Context, q exchange.Question) exchange.Reply {
			a := answer(q, message.Absent)
			a.Ledger = "ledger-2"
			return exchange.Reply{Answer: &a}
		}, receipt.Uncertain, problem.NoAnswer, 131 * time.Second},
		"half way": {func(_ context.Context, q exchange.Question) exchange.Reply {
			return replied(q, message.Interrupted)
		}, receipt.Uncertain, problem.Interrupted, time.Second},
		"prepared, then fenced": {fencesWhenAllowed, receipt.Failed, problem.NeverStarted, 131 * time.Second},
		"silence": {func(ctx context.Context, _ exchange.Question) exchange.Reply {
			return silent(ctx)
		}, receipt.Uncertain, problem.NoAnswer, 3 * time.Minute},
	} {
		t.Run(what, func(t *testing.T) {
			run(t, func(b *bench) {
				b.x.onEvidence = c.answer
				b.bindQuietly(1)
				b.startOn(carrying{b.store}, nil)
				b.at(c.after)
				b.wantState(1, c.state, c.code)
				b.wantTrace("prepare r1")
				b.wantTrace("start r1")
			})
		})
	}
}

// While masterd is deaf nothing is decided about it.
func TestCarriedReceiptWaitsWhileDeaf(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onEvidence = func(_ context.Context, q exchange.Question) exchange.Reply { return replied(q, message.Absent) }
		b.deaf.Store(true)
		b.bindQuietly(1)
		b.startOn(carrying{b.store}, nil)
		b.at(10 * time.Minute)
		b.wantState(1, receipt.Queued, "")
		b.deaf.Store(false)
		b.at(10*time.Minute + time.Second)
		b.wantState(1, receipt.Refused, problem.EpochEnded)
	})
}

// A new request of the target isn't held up by it, nor started before it is
// asked about.
func TestCarriedReceiptLetsOthersPass(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onEvidence = func(ctx context.Context, _ exchange.Question) exchange.Reply { return silent(ctx) }
		b.bindQuietly(1)
		b.startOn(carrying{b.store}, nil)
		b.d.Bound(b.bindQuietly(2))
		b.at(25 * time.Second)
		b.wantState(2, receipt.Succeeded, "")
		b.wantTrace("start r1")
	})
}

// B13: an operator's question is asked at once, also about what has ended, and
// is answered when the answer is kept.
func TestLook(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onStart = goesOut
		b.x.onEvidence = func(_ context.Context, q exchange.Question) exchange.Reply { return replied(q, message.Running) }
		b.bind(1)
		b.wantState(1, receipt.Dispatched, "")
		r, reply, err := b.d.Look(b.t.Context(), req(1))
		if err != nil || reply.Answer == nil || reply.Answer.Result != message.Running || r.State != receipt.Dispatched {
			t.Errorf("%+v %+v %v", r, reply, err)
		}
		b.x.onEvidence = func(_ context.Context, q exchange.Question) exchange.Reply {
			a := finished(q, "")
			return exchange.Reply{Answer: &a}
		}
		for range 2 { // the second time it has ended
			r, reply, err = b.d.Look(b.t.Context(), req(1))
			if err != nil || reply.Answer == nil || r.State != receipt.Succeeded {
				t.Errorf("%+v %+v %v", r, reply, err)
			}
		}
		b.x.onEvidence = func(ctx context.Context, _ exchange.Question) exchange.Reply { return silent(ctx) }
		_, reply, err = b.d.Look(b.t.Context(), req(1))
		if err != nil || reply.Answer != nil {
			t.Errorf("silence: %+v %v", reply, err)
		}
		if _, _, err = b.d.Look(b.t.Context(), req(9)); problem.CodeOf(err) != problem.UnknownRequest {
			t.Error(err)
		}
		b.kill()
		if _, _, err = b.d.Look(b.t.Context(), req(1)); problem.CodeOf(err) != problem.NotWritable {
			t.Errorf("a masterd that has stopped: %v", err)
		}
		b.start()
	})
}

// A receipt that an operator has settled frees its target at once.
func TestMovedFreesTheTarget(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onStart = goesOut
		b.x.onEvidence = func(_ context.Context, q exchange.Question) exchange.Reply { return replied(q, message.Interrupted) }
		b.bind(1)
		b.at(31 * time.Second)
		lost := b.wantState(1, receipt.Uncertain, problem.Interrupted)
		settled, err := b.store.Store.Apply(b.t.Context(), lost.Request, lost.Seq, receipt.Settle(receipt.Settlement{
			Request: lost.Request, Outcome: receipt.Failed, Reason: "r", Observed: "o", By: "uid 0", At: b.clock.Now(),
		}))
		if err != nil {
			t.Fatal(err)
		}
		b.d.Moved(settled)
		synctest.Wait()
		b.x.onStart = nil
		b.bind(2)
		b.wantState(2, receipt.Succeeded, "")
	})
}

// A receipt whose start was never claimed here has no ticket. What may be prepared
// of it is given up all the same, once any ticket is dead: else it might start for
// ever, and nobody could settle it.
func TestUncertainWithoutATicketIsFenced(t *testing.T) {
	run(t, func(b *bench) {
		var fences []bool
		b.x.onEvidence = func(_ context.Context, q exchange.Question) exchange.Reply {
			fences = append(fences, q.Body.Fence)
			if q.Body.Fence {
				return replied(q, message.Lapsed)
			}
			return replied(q, message.NotStartedYet)
		}
		r := b.bindQuietly(1)
		r, err := b.store.Store.Apply(b.t.Context(), r.Request, r.Seq, evidence.LoseCarried(b.clock.Now()))
		if err != nil {
			t.Fatal(err)
		}
		b.d.Moved(r)
		b.at(receipt.FenceAfter - time.Second)
		if len(fences) == 0 || slices.Contains(fences, true) {
			t.Errorf("asked too early with a fence: %v", fences)
		}
		b.at(receipt.FenceAfter + receipt.LookInterval)
		if !fences[len(fences)-1] {
			t.Errorf("asked without a fence for ever: %v", fences)
		}
	})
}

// A receipt that was made of a ledger's record quarantines its lane too.
func TestMovedBringsAQuarantine(t *testing.T) {
	run(t, func(b *bench) {
		r := b.bindQuietly(1)
		e := evidence.LoseCarried(b.clock.Now())
		r, err := b.store.Store.Apply(b.t.Context(), r.Request, r.Seq, e)
		if err != nil {
			t.Fatal(err)
		}
		b.d.Moved(r)
		synctest.Wait()
		b.bind(2)
		b.wantState(2, receipt.Refused, problem.TargetQuarantined)
	})
}

// What is owed to a ledger travels with each prepare, what came of it is told,
// and so is a record that stood in the way.
func TestPrepareTellsOfTheLedger(t *testing.T) {
	run(t, func(b *bench) {
		book := &ledgerBook{}
		for range message.MaxOwed + 3 {
			book.owed = append(book.owed, message.Settlement{Request: req(8), Outcome: message.OutcomeFailed})
		}
		states := message.SettlementStates{{Request: req(8), Result: message.Settled}}
		b.x.onPrepare = func(_ context.Context, q exchange.Question) exchange.Reply {
			if len(q.Body.Owed) != message.MaxOwed {
				t.Errorf("%d owed travel", len(q.Body.Owed))
			}
			a := answer(q, message.Refused)
			a.Code, a.Unfinished, a.Settlements = problem.RecordUnfinished, req(7), &states
			return exchange.Reply{Answer: &a}
		}
		b.startOn(b.store, book)
		b.bind(1)
		b.wantState(1, receipt.Refused, problem.RecordUnfinished)
		if len(book.paid) != 1 || book.paid[0] != states[0] || len(book.unfinished) != 1 || book.unfinished[0] != req(7) {
			t.Errorf("paid %v, unfinished %v", book.paid, book.unfinished)
		}
	})
}
