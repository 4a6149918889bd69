package sim

import (
	"context"
	"slices"
	"strings"

	"github.com/oduflow/oduflow-salt/internal/ledger"
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
	// A record that is prepared under a ticket that masterd doesn't know (of a
	// past that was lost, or of a late prepare on a ledger that was put back)
	// answers not_started_yet for ever, and reconcile refuses for ever: "it may
	// still start". -seed 109
	PreparedForEver Known = "prepared for ever"
	// A ledger's record is unfinished, and its receipt has ended: it was bound
	// anew and refused while its ledger was silent, after its start was lost with
	// the database (-seed 6518); or its UUID was then bound to another execution
	// (-plan "what only a ledger knows doesn't quarantine" -seed 2000416); or the
	// ledger was put back to before the end, and adopted again (-seed 282). The
	// record refuses every prepare from then on, and a receipt that has ended
	// can't be settled.
	EndedBesideRecord Known = "ended beside its unfinished record"
	// What reconcile has written and the store reported as failed isn't told to
	// the lane. It refuses everything for a quarantine that was settled (-seed
	// 2777), or never asks about what was made of a ledger (rare), until masterd
	// is started again.
	LaneUntold Known = "the lane isn't told of what the store has"
	// What waited in a database that was put back is refused (epoch_ended) for
	// the absent of a ledger that was adopted after it had waited, and so isn't
	// the one that it may have run on. -seed 217
	AbsentOfALaterLedger Known = "absent of a ledger that was adopted later"
	// What waited in a database that was put back is refused for another record
	// of the same key that only the ledger knows, before its own is asked about
	// (FromLedger). Rare.
	RefusedForARecord Known = "refused for a record of the same key"
	// Of two machines with one key and ledger the one that wasn't claimed has
	// fenced its own record of the request (a prepare of another one came late),
	// and its word is taken for the other's, if masterd doesn't know yet that
	// there are two. -plan "a ledger settles what runs" -seed 2000024
	FencedByTheOther Known = "fenced by the other of two machines"
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

// preparedForEver says that a settlement is refused for a dead ticket.
func (w *World) preparedForEver(x receipt.Receipt, err error) bool {
	if problem.CodeOf(err) != problem.JobRunning || !strings.Contains(err.Error(), "may still start") {
		return false
	}
	for _, m := range w.minionsOf(x.Body.Target) {
		if m.isDeadTicket(x.Request) {
			return w.knows(PreparedForEver)
		}
	}
	return false
}

func (m *minion) isDeadTicket(request string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	s, err := m.ledger.Lock(ctx)
	if err != nil {
		return false
	}
	defer s.Close()
	r, err := s.Record(request)
	if err != nil || r == nil || r.State != ledger.Prepared {
		return false
	}
	lives, err := s.TicketLives(r)
	return err == nil && !lives
}

// endedBesideRecord says that a prepare was refused for a record whose own
// receipt has ended, and owes the ledger nothing.
func (w *World) endedBesideRecord(x receipt.Receipt) bool {
	if x.Code != problem.RecordUnfinished || x.BlockedBy == nil {
		return false
	}
	there, err := w.store.Lookup(context.Background(), x.BlockedBy.Request)
	ended := err == nil && (there.Reused || there.Execution.State.Terminal())
	lost := slices.ContainsFunc(w.minionsOf(x.Body.Target), func(m *minion) bool { return m.stale })
	w.mu.Lock()
	lost = lost || w.timeline > 0
	w.mu.Unlock()
	return ended && lost && w.knows(EndedBesideRecord)
}

// laneRemembers says that a request is refused for a quarantine that isn't. It
// starts masterd again.
func (w *World) laneRemembers(x receipt.Receipt) bool {
	if x.Code != problem.TargetQuarantined || w.quarantines(x.Body.Target) != "" || !w.knows(LaneUntold) {
		return false
	}
	w.killMaster("by an operator")
	return true
}

// refusedUnasked says that what waited is refused for another reason than what
// its own ledger says of it. It is called with the world's lock held.
func (w *World) refusedUnasked(x receipt.Receipt, r *run, code problem.Code) bool {
	if w.opts.Strict || w.opts.Broken == AnyAbsentIsProof || w.opts.Broken == ForgetsAndIsBelieved {
		return false
	}
	known := AbsentOfALaterLedger
	_, asItWas := w.floors[x.Body.Target]
	switch {
	case code == problem.EpochEnded && (!asItWas || r.minion.destroyed || r.misplaced && !r.minion.stale):
	case code == problem.TargetQuarantined && x.BlockedBy != nil && w.isFromLedger(x.BlockedBy.Request):
		known = RefusedForARecord
	default:
		return false
	}
	w.stats.known = append(w.stats.known, known)
	return true
}

func (w *World) isFromLedger(request string) bool {
	x, ok := w.store.Receipt(request)
	return ok && x.FromLedger
}

// fencedByTheOther says that a receipt may have failed by the word of the other
// of two machines. It is called with the world's lock held.
func (w *World) fencedByTheOther(code problem.Code, r *run) bool {
	negative := code == problem.NeverBegan || code == problem.NeverStarted || strings.HasPrefix(string(code), "start_refused")
	if !negative || !r.minion.cloned || w.opts.Strict || w.opts.Broken == AnyTicketFences || w.opts.Broken == NotExclusive {
		return false
	}
	w.stats.known = append(w.stats.known, FencedByTheOther)
	return true
}
