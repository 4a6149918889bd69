package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/reconcile"
)

// records is what the lanes tell of the targets' ledgers and owe to them.
type records struct{ p *masterd }

func (r records) Owed(ctx context.Context, target, instance string) []message.Settlement {
	if r.p.w.opts.Broken == DebtForgotten {
		return nil
	}
	return r.p.records.Owed(ctx, target, instance)
}

func (r records) Paid(ctx context.Context, target string, states []message.SettlementState) {
	r.p.records.Paid(ctx, target, states)
}

func (r records) Unfinished(ctx context.Context, asked receipt.Receipt, request string) {
	r.p.records.Unfinished(ctx, asked, request)
}

func (p *masterd) moved(r receipt.Receipt) {
	p.w.afterWrite()
	p.d.Moved(r)
	p.service.Changed(r)
}

// seen is what an operator's question about a request has brought.
type seen struct {
	answered bool
	last     message.Result // what was known before, where nobody answered
}

// look asks for `masterd evidence` and `masterd reconcile`.
func (p *masterd) look(ctx context.Context, request string) (receipt.Receipt, exchange.Reply, error) {
	w := p.w
	r, reply, err := p.d.Look(ctx, request)
	if err != nil {
		return r, reply, err
	}
	s := seen{answered: states(reply.Answer)}
	for _, word := range w.store.Witnesses(request) {
		if result := message.Result(word.Result); result != message.Refused && result != message.Disregarded {
			s.last = result
		}
	}
	w.mu.Lock()
	w.seen[request] = s
	w.mu.Unlock()
	return r, p.overlook(reply), nil
}

// states says that an answer states something about a record. A ledger that was
// lost refuses to, and that is silence.
func states(a *message.Answer) bool {
	return a != nil && a.Result != message.Refused && a.Result != message.Disregarded
}

// operate is an operator who looks after an uncertain receipt, if there is one.
// He sees what is on the machine, and is mistaken now and then.
func (w *World) operate(r *rand.Rand) {
	var open []receipt.Receipt
	for _, x := range w.store.Receipts() {
		if x.State == receipt.Uncertain {
			open = append(open, x)
		}
	}
	if len(open) == 0 {
		return
	}
	request := open[r.IntN(len(open))].Request
	outcome := w.truth(request)
	if r.IntN(5) == 0 {
		outcome = receipt.Succeeded
	}
	for range 3 {
		err := w.reconcile(request, outcome)
		if code := problem.CodeOf(err); err == nil || code == problem.NotUncertain || code == problem.OutcomeProved {
			return
		}
		if !w.sleep(w.span("operator", 5*time.Second, time.Minute)) {
			return
		}
	}
}

// truth is what an operator finds on the machine.
func (w *World) truth(request string) receipt.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.ran(request) {
		if r.state == ranOK {
			return receipt.Succeeded
		}
	}
	return receipt.Failed
}

// reconcile is one `masterd reconcile`.
func (w *World) reconcile(request string, outcome receipt.State) error {
	p := w.current()
	if p == nil {
		return errDead
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	x, ok := w.store.Receipt(request)
	if !ok {
		return problem.New(problem.UnknownRequest, "it isn't here")
	}
	report, err := p.records.Reconcile(ctx, reconcile.Order{
		ServerGone: w.isGone(x), Request: request, Outcome: outcome, Reason: "simulated", Observed: "simulated", Confirm: x.Body.Target, By: "uid 0",
	})
	w.note("operator: %s %s: %s %v", requestName(request), outcome, report.How, err)
	return err
}

// isGone says that the server of a receipt is destroyed.
func (w *World) isGone(x receipt.Receipt) bool {
	return !slices.ContainsFunc(w.minionsOf(x.Body.Target), func(m *minion) bool { return m.instance == x.Body.Instance })
}

// maySettle checks an operator's settlement when it is written.
func (w *World) maySettle(request string) {
	s, asked := w.seen[request]
	word, err := w.store.Settlement(context.Background(), request)
	switch {
	case err != nil || word == nil:
		w.violateLocked("ask first: nothing says who settled %s", requestName(request))
	case word.ServerGone:
		w.blind[request] = true
	case !asked:
		w.violateLocked("ask first: %s is settled, and its ledger was never asked", requestName(request))
	case !s.answered && s.last == message.Running:
		w.violateLocked("settled while it runs: %s, and what was known last is that it runs", requestName(request))
	case s.answered:
		for _, r := range w.runs[request] {
			if r.state == running && !r.minion.cloned {
				w.violateLocked("settled while it runs: %s runs on %s", requestName(request), r.minion.name)
			}
		}
	default:
		w.blind[request] = true
	}
	x, _ := w.store.Receipt(request)
	for _, m := range w.minions {
		if m.id == x.Body.Target && m.cloned { // nobody knows which of them was asked
			w.blind[request] = true
		}
	}
}
