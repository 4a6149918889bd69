package sim

import (
	"context"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// run is one effect on one minion: what really happened.
type run struct {
	request  string
	minion   *minion
	state    runState
	undone   bool // the disk that it happened on was put back to before it
	survivor bool // its Salt process is gone

	// What is left of it. The witness of a run dies with its boot.
	ticket    string
	boot      int
	lost      bool // the database was put back to before its claim
	misplaced bool // its ledger was lost or put back to before its end
	forgotten bool // and its witness is gone
}

// unknowable says that nobody can know of a run any more (design.md, invariant
// 4): it never happened, on a machine whose whole disk was put back, or database
// and ledger were both lost or put back to before it, and neither tells.
func (r *run) unknowable() bool {
	return r.undone || r.lost && r.forgotten && !r.minion.tells()
}

// tells says that what the database knows of a ledger's generation shows that it
// was put back, as long as it isn't adopted again.
func (m *minion) tells() bool { return m.stale && m.ledger.Generation() < m.w.floors[m.id] }

type runState int

const (
	running runState = iota
	ranOK
	ranBadly
	aborted // ended half way: whatever it did, it neither succeeded nor failed
)

func (s runState) String() string { return [...]string{"running", "ok", "failed", "aborted"}[s] }

// effectBegins counts an effect.
func (w *World) effectBegins(m *minion, request, ticket string) *run {
	w.mu.Lock()
	defer w.mu.Unlock()
	x, known := w.store.Receipt(request)
	r := &run{request: request, minion: m, ticket: ticket, boot: m.boot, lost: !known || x.Ticket != ticket}
	w.stats.effects++
	if known && x.Body.Instance != m.instance {
		w.violateLocked("the server that was meant: %s begins on %s, another instance than %s", requestName(request), m.name, x.Body.Instance)
	}
	for _, other := range w.runs[request] {
		if !other.unknowable() {
			w.violateLocked("at most once: %s begins on %s, and it was %s on %s", requestName(request), m.name, other.state, other.minion.name)
		}
	}
	for name, runs := range w.runs {
		for _, other := range runs {
			if name != request && other.minion == m && other.state == running {
				w.violateLocked("one at a time: %s begins on %s while %s runs", requestName(request), m.name, requestName(name))
			}
		}
	}
	w.runs[request] = append(w.runs[request], r)
	if known && w.saysFailed(x, r) {
		w.violateLocked("no false failed: %s begins on %s, and its receipt is %s (%s)", requestName(request), m.name, x.State, x.Code)
	}
	w.noteLocked("%s: EFFECT of %s begins", m.name, requestName(request))
	return r
}

// effectEnds ends an effect.
func (w *World) effectEnds(r *run, state runState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.state != running {
		return
	}
	r.state = state
	w.noteLocked("%s: EFFECT of %s ends: %s", r.minion.name, requestName(r.request), state)
	if state != ranOK {
		return
	}
	if x, ok := w.store.Receipt(r.request); ok && w.saysFailed(x, r) {
		w.violateLocked("no false failed: %s succeeds on %s, and its receipt is %s (%s)", requestName(r.request), r.minion.name, x.State, x.Code)
	}
}

// saysFailed says that a receipt wrongly says that a run didn't happen, or
// failed. Two things it may say: what an operator said while nobody answered;
// and, of a start that was lost with the database, what the copy that was put
// back had said already, or that the request was refused when it was bound anew
// and its ledger didn't answer. What waited in the copy is never refused so.
func (w *World) saysFailed(x receipt.Receipt, r *run) bool {
	waited := x.Carried && w.carried[x.Request] == receipt.Queued
	switch {
	case r.undone || x.Settled && w.blind[x.Request]:
		return false
	case r.lost && x.State.Terminal() && w.carried[x.Request] == x.State:
		return false
	case x.State == receipt.Refused && r.lost && waited:
		// Only a ledger that was put back, too, looks as if it had never run.
		return !r.forgotten || !r.minion.stale || r.minion.tells()
	case x.State == receipt.Refused:
		return !r.lost
	}
	return x.State == receipt.Failed && !r.unknowable()
}

// startGoesOut checks what must be durable before the first byte of a start.
func (w *World) startGoesOut(request, ticket, jid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.starts++
	w.noteLocked("masterd: START of %s", requestName(request))
	key := startKey{w.timeline, request}
	if w.starts[key]++; w.starts[key] > 1 {
		w.violateLocked("one start a receipt: %s is published a second time", requestName(request))
	}
	r, ok := w.store.Receipt(request)
	if !ok || r.State != receipt.Dispatching || r.JID != jid || r.Ticket != ticket {
		w.violateLocked("durable first: the start of %s goes out while the store has %s", requestName(request), r.State)
	}
	if w.carried[request] != "" {
		w.violateLocked("what waited stays: the start of %s goes out, and it was bound before the database was put back", requestName(request))
	}
	for _, other := range w.store.Receipts() {
		if other.Request == request || other.Body.Target != r.Body.Target {
			continue
		}
		if other.State.Busy() || other.State == receipt.Uncertain {
			w.violateLocked("quarantine: the start of %s goes out while %s is %s", requestName(request), requestName(other.Request), other.State)
		}
	}
}

// afterWrite looks at every transition that wasn't looked at yet.
func (w *World) afterWrite() {
	w.mu.Lock()
	defer w.mu.Unlock()
	fresh := w.store.Since(w.checked)
	w.checked += len(fresh)
	for _, t := range fresh {
		w.noteLocked("store: %s %s -> %s %s", requestName(t.Request), t.From, t.To, t.Code)
		if t.Event == receipt.EventSettle {
			w.maySettle(t.Request)
			continue
		}
		x, _ := w.store.Receipt(t.Request)
		switch t.To {
		case receipt.Succeeded:
			w.mustHave(t.Request, ranOK)
		case receipt.Failed:
			w.mustNotHaveRun(t.Request, t.Code)
		case receipt.Refused:
			for _, r := range w.runs[t.Request] {
				if x.State = receipt.Refused; w.saysFailed(x, r) && !w.refusedUnasked(x, t.Code) {
					w.violateLocked("no false failed: %s is refused (%s) after it ran", requestName(t.Request), t.Code)
				}
			}
		case receipt.Queued, receipt.Dispatching, receipt.Dispatched, receipt.Uncertain:
		}
	}
}

// ran gives what happened of a request and can be known.
func (w *World) ran(request string) (out []*run) {
	for _, r := range w.runs[request] {
		if !r.unknowable() {
			out = append(out, r)
		}
	}
	return out
}

func (w *World) mustHave(request string, state runState) {
	for _, r := range w.runs[request] {
		if r.state == state {
			return
		}
	}
	w.violateLocked("proof: %s succeeded, and no effect of it did", requestName(request))
}

func (w *World) mustNotHaveRun(request string, code problem.Code) {
	for _, r := range w.ran(request) {
		switch {
		case r.state != ranBadly:
			w.violateLocked("no false failed: %s is failed (%s), and its effect is %s", requestName(request), code, r.state)
		case code != problem.StateFailed:
			w.violateLocked("no false failed: %s is failed (%s), and its effect ran", requestName(request), code)
		}
	}
}

// bind binds a request, and checks what the answer may be.
func (w *World) bind(ctx context.Context, b receipt.Binding, source, canonical []byte) (receipt.Bound, error) {
	_, unknown := w.store.Lookup(ctx, b.Request)
	before := w.quarantines(b.Body.Target)
	bound, err := w.store.Bind(ctx, b, source, canonical)
	if err != nil || unknown == nil {
		return bound, err
	}
	x := bound.Execution
	if now := w.quarantines(b.Body.Target); now != "" && now == before && !bound.Reused && x.State == receipt.Queued {
		w.violate("quarantine: %s may wait for its turn while %s is uncertain", requestName(b.Request), requestName(now))
	}
	if w.plan.DatabaseBack > 0 && x.State == receipt.Queued && w.chance("copy what waits", .4) {
		w.copyDatabase()
	}
	if bound.Reused && x.Settled && x.State == receipt.Succeeded {
		w.violate("settled isn't proved: %s is answered with what an operator said of %s", requestName(b.Request), requestName(x.Request))
	}
	return bound, nil
}

// quarantines gives the first uncertain receipt of a target.
func (w *World) quarantines(target string) string {
	for _, r := range w.store.Receipts() {
		if r.Body.Target == target && r.State == receipt.Uncertain {
			return r.Request
		}
	}
	return ""
}

// atTheEnd checks that everything ended, as well as it can.
func (w *World) atTheEnd() {
	for _, r := range w.store.Receipts() {
		switch {
		case r.State.Terminal():
		case r.State != receipt.Uncertain:
			w.violate("everything ends: %s is still %s", requestName(r.Request), r.State)
		case w.provable(r):
			w.violate("evidence counts: %s is uncertain (%s), and its ledger knows its outcome", requestName(r.Request), r.Code)
		}
	}
}

// provable says that the only minion of a receipt's target has a record that
// says what came of it.
func (w *World) provable(r receipt.Receipt) bool {
	var found *minion
	for _, m := range w.minions {
		if m.id == r.Body.Target {
			if found != nil {
				return false // nobody knows which of them is asked
			}
			found = m
		}
	}
	target, _ := w.store.Target(context.Background(), r.Body.Target)
	if target == nil || target.Duplicate {
		return false
	}
	return found != nil && found.knows(r)
}
