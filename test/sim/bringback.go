package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/oduflow/oduflow-salt/internal/evidence"
	"github.com/oduflow/oduflow-salt/internal/ledger"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/start"
)

// bringBack is what an operator does when all the trouble is over: he settles
// what is uncertain, adopts what has to be adopted, and sends each target one
// more request. Whatever a ledger still held up has to come to light by then,
// and every target has to work again.
func (w *World) bringBack() {
	targets := w.targets()
	for range 60 {
		if !w.working() || !w.sleep(5*time.Minute) {
			break
		}
	}
	for round := range 3 {
		for _, x := range w.store.Receipts() {
			if x.State == receipt.Uncertain && !w.settleAtLast(x) {
				return
			}
		}
		back := true
		for n, m := range targets {
			back = w.probe(m, 16*round+n, round) && back
		}
		if back {
			break
		}
	}
	for n, m := range targets {
		// The first request may have had to fence what the settlement is about.
		if w.owed(m) > 0 && !w.hopeless(m) {
			w.probe(m, 0x40+n, 2)
		}
		w.paid(m)
	}
}

func (w *World) owed(m *minion) int {
	debts, err := w.store.Owed(context.Background(), m.id, m.instance)
	if err != nil {
		return 1
	}
	return len(debts)
}

// working says that an effect is under way.
func (w *World) working() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, runs := range w.runs {
		if slices.ContainsFunc(runs, func(r *run) bool { return r.state == running }) {
			return true
		}
	}
	return false
}

// settleAtLast settles a receipt now that everything can be asked and nothing
// runs: there is no reason left to refuse that.
func (w *World) settleAtLast(x receipt.Receipt) bool {
	outcome := w.truth(x.Request)
	var err error
	for range 6 {
		err = w.reconcile(x.Request, outcome)
		lost := problem.CodeOf(err) == problem.JobRunning && strings.Contains(err.Error(), string(problem.LedgerChanged))
		if lost || problem.CodeOf(err) == problem.NotReplaced { // its ledger was lost, or its adoption with the database
			for _, m := range w.minionsOf(x.Body.Target) {
				_ = w.adoptAgain(m)
			}
		}
		if code := problem.CodeOf(err); err == nil || code == problem.NotUncertain || code == problem.OutcomeProved {
			return true
		}
		if !w.sleep(40 * time.Second) {
			return false
		}
	}
	w.violate("an operator gets through: %s can't be settled: %v", requestName(x.Request), err)
	return false
}

// probe sends one more request to a target. It is true where that ran, or where
// nothing but another machine or a ledger that was put back keeps it from it.
func (w *World) probe(m *minion, n, round int) bool {
	q := start.CustomRequest{
		Request: uuid([16]byte{14: 0xee, 15: 0x80 + byte(n)}), Target: m.id, Instance: m.instance,
		Source: fmt.Appendf(nil, "probe%d:\n  test.nop: []\n", n), Revision: 1,
	}
	code := problem.CodeOf(w.send(q))
	x, ok := w.store.Receipt(q.Request)
	if ok {
		code = x.Code
	}
	switch {
	case ok && x.State == receipt.Succeeded:
		return true
	case ok && x.Code == problem.NeverStarted && w.timeline > 0:
		// JIDs of a past that was lost may come again after steps of the clock, and
		// a minion drops one that it has seen.
		return true
	case w.hopeless(m):
		return true
	case w.endedBesideRecord(x):
		return true
	case round == 2:
		w.violate("a target comes back: the last request to %s is %s (%s)", m.name, x.State, code)
	case code == problem.NotConfigured || code == problem.InstanceMismatch || code == problem.InstanceDiffers ||
		code == problem.LedgerChanged || code == problem.DuplicateTarget:
		_ = w.adoptAgain(m)
	case code == problem.RecordUnfinished:
		w.cameBack(m, x)
	}
	return false
}

// send makes a request and waits for its end.
func (w *World) send(q start.CustomRequest) (err error) {
	for range 40 {
		if p := w.current(); p != nil {
			_, err = p.service.CustomStart(context.Background(), q)
			if problem.RowOf(problem.CodeOf(err)).HTTP == 409 {
				return err
			}
		}
		if x, ok := w.store.Receipt(q.Request); ok && x.State.Terminal() || !w.sleep(15*time.Second) {
			break
		}
	}
	return err
}

// hopeless says that a target may stay as it is: nobody knows which of two
// machines is asked.
func (w *World) hopeless(m *minion) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return m.cloned
}

// cameBack checks what a refusal for an unfinished record has brought.
func (w *World) cameBack(m *minion, x receipt.Receipt) {
	if x.BlockedBy == nil {
		return
	}
	there, ok := w.store.Receipt(x.BlockedBy.Request)
	if reminded := evidence.Ended(there) && m.stale; reminded {
		return // the next request finds its record closed, or the target doesn't come back
	}
	if !ok || there.State != receipt.Uncertain {
		w.violate("quarantines come back: %s was refused for %s, which is %s", requestName(x.Request), requestName(x.BlockedBy.Request), there.State)
	}
}

// paid checks that a target that answered a prepare was told what it is owed.
func (w *World) paid(m *minion) {
	if w.hopeless(m) {
		return
	}
	if n := w.owed(m); n > 0 {
		w.violate("debts are paid: %s isn't told of %d settlements", m.name, n)
	}
	for _, x := range w.store.Receipts() {
		if x.Body.Target == m.id && x.Settled && !m.stale {
			w.agrees(m, x)
		}
	}
}

// agrees checks that a record that was settled is closed, and that where it
// says something else than the operator that is known.
func (w *World) agrees(m *minion, x receipt.Receipt) {
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	s, err := m.ledger.Lock(ctx)
	if err != nil {
		return
	}
	defer s.Close()
	r, err := s.Record(x.Request)
	if err != nil || r == nil {
		return
	}
	differs := false
	switch r.State {
	case ledger.Started, ledger.Begun:
		w.violate("debts are paid: the record of %s, which is settled, is %s", requestName(x.Request), r.State)
	case ledger.Settled:
		differs = string(r.Outcome) != string(x.State)
	case ledger.Finished:
		differs = (r.Code == "") != (x.State == receipt.Succeeded)
	case ledger.Fenced, ledger.Refused, ledger.NeverBegan:
		differs = x.State != receipt.Failed
	case ledger.Prepared, ledger.Lapsed:
	}
	if !differs {
		return
	}
	for _, v := range w.store.Witnesses(x.Request) {
		if v.Conflict {
			return
		}
	}
	w.violate("contradictions are kept: %s is %s, its record is %s, and nothing says so", requestName(x.Request), x.State, r.State)
}
