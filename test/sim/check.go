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
}

type runState int

const (
	running runState = iota
	ranOK
	ranBadly
	aborted // ended half way: whatever it did, it neither succeeded nor failed
)

func (s runState) String() string { return [...]string{"running", "ok", "failed", "aborted"}[s] }

// effectBegins counts an effect.
func (w *World) effectBegins(m *minion, request string) *run {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &run{request: request, minion: m}
	w.stats.effects++
	for _, other := range w.runs[request] {
		if !other.undone {
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
	if x, ok := w.store.Receipt(request); ok && (x.State == receipt.Failed || x.State == receipt.Refused) {
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
	// What is refused in a timeline that knows nothing of the start, while the
	// ledger is silent, is the one thing that can't be known.
	if x, ok := w.store.Receipt(r.request); ok && (x.State == receipt.Failed || x.State == receipt.Refused && !w.lost[r.request]) {
		w.violateLocked("no false failed: %s succeeds on %s, and its receipt is %s (%s)", requestName(r.request), r.minion.name, x.State, x.Code)
	}
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
		if t.To == receipt.Dispatching {
			w.lost[t.Request] = false
		}
		switch t.To {
		case receipt.Succeeded:
			w.mustHave(t.Request, ranOK)
		case receipt.Failed:
			w.mustNotHaveRun(t.Request, t.Code)
		case receipt.Refused:
			if !w.lost[t.Request] && len(w.ran(t.Request)) > 0 {
				w.violateLocked("no false failed: %s is refused (%s) after it ran", requestName(t.Request), t.Code)
			}
		case receipt.Queued, receipt.Dispatching, receipt.Dispatched, receipt.Uncertain:
		}
	}
}

// ran gives what happened of a request and wasn't undone.
func (w *World) ran(request string) (out []*run) {
	for _, r := range w.runs[request] {
		if !r.undone {
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
