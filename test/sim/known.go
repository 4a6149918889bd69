package sim

import (
	"context"
	"slices"

	"github.com/oduflow/oduflow-salt/internal/evidence"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// Known is a defect of the product that schedules have found and that isn't
// mended yet. None of them starts anything twice; most leave a target that no
// operator can bring back. Where one of them is what a schedule ends in, that is
// counted and not a violation, unless -strict says so. Whoever mends one takes
// it from here.
type Known string

// The known defects. A seed is for TestSeed with -strict.
const (
	// A ledger's record is unfinished, and its receipt has ended: it was bound
	// anew and refused while its ledger was silent, after its start was lost with
	// the database (-seed 6518); or its UUID was then bound to another execution
	// (-plan "what only a ledger knows doesn't quarantine" -seed 2000416); or the
	// ledger was put back to before it knew that its effect hadn't begun, and
	// adopted again (-seed 3513). The record refuses every prepare from then on,
	// and a receipt that has ended can't be settled. Where the receipt tells how a
	// run ended, the ledger is reminded of it.
	EndedBesideRecord Known = "ended beside its unfinished record"
	// What waited in a database that was put back is refused for another record
	// of the same key that only the ledger knows, before its own is asked about
	// (FromLedger). Rare.
	RefusedForARecord Known = "refused for a record of the same key"
)

// knows counts a known defect. It is false where none is to be overlooked.
func (w *World) knows(k Known) bool {
	if w.opts.Strict {
		return false
	}
	w.note("known: %s", k)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.known = append(w.stats.known, k)
	return true
}

// endedBesideRecord says that a prepare was refused for a record whose own
// receipt has ended without a run, and owes the ledger nothing.
func (w *World) endedBesideRecord(x receipt.Receipt) bool {
	if x.Code != problem.RecordUnfinished || x.BlockedBy == nil {
		return false
	}
	there, err := w.store.Lookup(context.Background(), x.BlockedBy.Request)
	ended := err == nil && (there.Reused || there.Execution.State.Terminal() && !evidence.Ended(there.Execution))
	lost := slices.ContainsFunc(w.minionsOf(x.Body.Target), func(m *minion) bool { return m.stale })
	w.mu.Lock()
	lost = lost || w.timeline > 0
	w.mu.Unlock()
	return ended && lost && w.knows(EndedBesideRecord)
}

// refusedUnasked says that what waited is refused for another reason than what
// its own ledger says of it. It is called with the world's lock held.
func (w *World) refusedUnasked(x receipt.Receipt, code problem.Code) bool {
	if w.opts.Strict || w.opts.Broken == AnyAbsentIsProof || w.opts.Broken == ForgetsAndIsBelieved ||
		code != problem.TargetQuarantined || x.BlockedBy == nil || !w.isFromLedger(x.BlockedBy.Request) {
		return false
	}
	w.stats.known = append(w.stats.known, RefusedForARecord)
	return true
}

func (w *World) isFromLedger(request string) bool {
	x, ok := w.store.Receipt(request)
	return ok && x.FromLedger
}
