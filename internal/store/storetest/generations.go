package storetest

import (
	"math"
	"time"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/receipt/receipttest"
)

const alphasLedger = "ledger-" + alpha

func (r *rig) lines(target string) receipt.Lines {
	r.Helper()
	lines, err := r.Lines(r.ctx, target)
	r.ok(err)
	return lines
}

// tells keeps an answer that was asked for just now.
func (r *rig) tells(generation uint64) {
	r.Helper()
	r.ok(r.Told(r.ctx, r.lines(alpha).Tell(alphasLedger, generation)))
}

// wantLine wants what is known of alpha's adopted ledger.
func (r *rig) wantLine(generation uint64, putBack bool) {
	r.Helper()
	equal(r, r.lines(alpha)[alphasLedger].Generation, generation)
	t, err := r.Target(r.ctx, alpha)
	r.ok(err)
	equal(r, t.Generation, generation)
	equal(r, t.PutBack, putBack)
}

func (r *rig) wantForgotten(request, ledger string, want bool) {
	r.Helper()
	got, err := r.Forgotten(r.ctx, request, ledger)
	r.ok(err)
	equal(r, got, want)
}

// highest: what is known only grows, whoever tells it, and answers may overtake
// each other.
func highest(r *rig) {
	r.wantLine(0, false)
	r.tells(0) // an executor that tells none
	r.wantLine(0, false)
	early := r.lines(alpha)
	r.tells(7)
	r.wantLine(7, false)
	r.tells(7)
	r.tells(0)
	r.wantLine(7, false)
	r.ok(r.Told(r.ctx, early.Tell(alphasLedger, 3))) // asked before the 7 was known
	r.wantLine(7, false)
	r.ok(r.Told(r.ctx, early.Tell("another's", 99)))
	r.wantLine(7, false)
	equal(r, len(r.lines(beta)), 1)
	equal(r, r.lines(beta)["ledger-"+beta].Generation, 0)
	equal(r, len(r.lines("gamma")), 0)

	x := r.bind(receipttest.Binding(1, alpha, word), word).Execution
	claim := receipttest.Claim(alpha)
	claim.Told = r.lines(alpha).Tell(alphasLedger, 9)
	x, err := r.Claim(r.ctx, x.Request, x.Seq, claim)
	r.ok(err)
	equal(r, x.State, receipt.Dispatching)
	r.wantLine(9, false)
	r.ok(r.Witness(r.ctx, receipt.Witness{
		Request: x.Request, At: r.clock.Now(), Kind: "start", Result: "finished",
		Told: r.lines(alpha).Tell(alphasLedger, 12),
	}))
	r.wantLine(12, false)
	r.tells(math.MaxUint64) // no executor of ours
	r.wantLine(math.MaxInt64, false)
	r.wantForgotten(x.Request, alphasLedger, false)
}

// putsBack: one that tells less than was known before stays marked, and nothing
// is claimed on it, until it is adopted again. What was bound before stays in doubt.
func putsBack(r *rig) {
	before := r.bind(receipttest.Binding(1, alpha, word), word).Execution
	r.tells(20)
	r.tells(5)
	r.wantLine(20, true)
	r.tells(30) // it goes on from there, and may get past what was known
	r.wantLine(30, true)
	equal(r, r.claim(before).Code, problem.LedgerChanged)
	r.wantForgotten(before.Request, alphasLedger, true)
	r.wantForgotten(before.Request, "another's", false)
	r.wantForgotten(receipttest.Request(99), alphasLedger, false)
	other := r.bind(receipttest.Binding(2, beta, word), word).Execution
	equal(r, r.claim(other).State, receipt.Dispatching)
	r.wantForgotten(other.Request, alphasLedger, false)

	t := receipttest.Target(alpha)
	t.AdoptedAt, t.Generation = r.clock.Now(), 6
	late := r.lines(alpha)
	r.ok(r.Adopt(r.ctx, t))
	r.wantLine(6, false)
	r.ok(r.Told(r.ctx, late.Tell(alphasLedger, 31))) // asked before the adoption
	r.ok(r.Told(r.ctx, late.Tell(alphasLedger, 4)))
	r.wantLine(6, false)
	after := r.bind(receipttest.Binding(3, alpha, "three"), "three").Execution
	equal(r, r.claim(after).State, receipt.Dispatching)
	r.wantForgotten(before.Request, alphasLedger, true)
	r.wantForgotten(after.Request, alphasLedger, false)
}

// adoptedUntold: an adoption whose answer tells no generation, of a ledger that
// had told some, leaves what was bound before in doubt.
func adoptedUntold(r *rig) {
	x := r.bind(receipttest.Binding(1, alpha, word), word).Execution
	t := receipttest.Target(alpha)
	r.ok(r.Adopt(r.ctx, t)) // it has never told any
	r.wantForgotten(x.Request, alphasLedger, false)
	r.tells(20)
	r.ok(r.Adopt(r.ctx, t))
	r.wantLine(0, false)
	r.wantForgotten(x.Request, alphasLedger, true)
	equal(r, r.claim(x).State, receipt.Dispatching)
	y := r.bind(receipttest.Binding(2, alpha, "two"), "two").Execution
	r.wantForgotten(y.Request, alphasLedger, false)
}

// twoLedgers: a ledger that was adopted before another one is still held to what it told.
func twoLedgers(r *rig) {
	r.tells(20)
	x := r.dispatched(1, alpha, word)
	t := receipttest.Target(alpha)
	t.Ledger, t.AdoptedAt, t.Generation = "ledger-2", r.clock.Now(), 1
	r.ok(r.Adopt(r.ctx, t))
	lines := r.lines(alpha)
	equal(r, lines[alphasLedger].Generation, 20)
	equal(r, lines["ledger-2"].Generation, 1)
	told := lines.Tell(alphasLedger, 3)
	equal(r, told.PutBack(), true)
	r.ok(r.Witness(r.ctx, receipt.Witness{Request: x.Request, At: r.clock.Now(), Kind: "evidence", Result: "fenced", Told: told}))
	r.wantForgotten(x.Request, alphasLedger, true)
	now, err := r.Target(r.ctx, alpha)
	r.ok(err)
	equal(r, now.PutBack, false) // the adopted one is whole
}

// undone: what a ledger that was put back had done may be undone with it, so its
// result isn't reused.
func undone(r *rig) {
	r.ended(1, alpha, word, 3)
	equal(r, r.bind(receipttest.Binding(2, alpha, word), word).Reused, true)
	r.tells(20)
	r.tells(19)
	t := receipttest.Target(alpha)
	t.AdoptedAt, t.Generation = r.clock.Now(), 19
	r.ok(r.Adopt(r.ctx, t))
	fresh := r.bind(receipttest.Binding(3, alpha, word), word)
	equal(r, fresh.Reused, false)
	r.apply(r.claim(fresh.Execution), receipttest.Finish(r.clock.Now(), 3, 3))
	equal(r, r.bind(receipttest.Binding(4, alpha, word), word).Reused, true)
}

// blockers: since when somebody is kept away, wherever it is asked.
func blockers(r *rig) {
	busy := r.dispatched(1, alpha, word)
	waits := r.bind(receipttest.Binding(2, alpha, "two"), "two").Execution
	equal(r, r.claim(waits).BlockedBy, busy.Blocker())
	equal(r, busy.Blocker().Since, busy.DispatchedAt)

	at := r.clock.Now().Add(time.Hour)
	lost := r.apply(busy, receipttest.Lose(at))
	equal(r, lost.Blocker().Since, at)
	equal(r, lost.DispatchedAt, busy.DispatchedAt)
	refused := r.bind(receipttest.Binding(3, alpha, "three"), "three").Execution
	equal(r, refused.BlockedBy, lost.Blocker())
	open, err := r.Unresolved(r.ctx)
	r.ok(err)
	equal(r, open[0].Blocker(), lost.Blocker()) // as a restarted masterd reads it
	ended := r.apply(lost, receipttest.Finish(at.Add(time.Minute), 3, 0))
	equal(r, ended.LostAt, time.Time{})
}
