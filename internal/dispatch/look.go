package dispatch

import (
	"context"
	"sync"
	"time"

	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/fault"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// look asks the target's executor about a receipt. It has no effect on the
// minion but a fence, and may be repeated. r is what the receipt was when the
// question was decided; the answer is judged by what it is then.
func (l *lane) look(ctx context.Context, e *entry, r receipt.Receipt, fence bool) func() {
	fault.Before(fault.StepEvidence.On(l.target))
	x, err := l.askEvidence(ctx, r, fence)
	fault.After(fault.StepEvidence.On(l.target))
	return func() {
		if err != nil {
			l.failed(e, err)
			return
		}
		if x.asked.IsZero() {
			return
		}
		e.lastLook, e.restored = x.asked, false
		newer := e.lookFor.After(x.asked) // there is a reason that is newer than the question
		if !newer {
			e.lookAt = time.Time{}
		}
		if x.answer != nil {
			e.again = 0
			l.statements = append(l.statements, &statement{e: e, kind: message.Evidence, answer: *x.answer, lines: x.lines})
			return
		}
		if !newer {
			e.lookAgain(l.d.cfg.Now(), l.d.spread)
		}
		for _, other := range l.held { // whoever is silent about one is about all
			other.restored = false
		}
	}
}

// looked is what came of a question about evidence.
type looked struct {
	asked  time.Time       // zero where masterd was told to stop first
	answer *message.Answer // authentic, or nil
	lines  receipt.Lines   // known before it was asked
}

// askEvidence asks once. The error is the store's: nothing was asked.
func (l *lane) askEvidence(ctx context.Context, r receipt.Receipt, fence bool) (x looked, err error) {
	select {
	case l.d.asks <- struct{}{}:
	case <-ctx.Done():
		return x, nil
	}
	// What is limited is how fast questions go out. One that nobody answers costs
	// nothing more, and whoever would answer isn't kept waiting for it.
	leave := sync.OnceFunc(func() { <-l.d.asks })
	place := time.AfterFunc(askPlace, leave)
	defer func() {
		place.Stop()
		leave()
	}()
	if x.lines, err = l.d.cfg.Store.Lines(ctx, l.target); err != nil {
		if ctx.Err() != nil {
			err = nil
		}
		return x, err
	}
	x.asked = l.d.cfg.Now()
	ctx, cancel := context.WithTimeout(ctx, evidenceWait)
	defer cancel()
	pem, _, err := l.d.cfg.Exchange.Key(ctx, l.target)
	if err != nil {
		l.d.cfg.Logger.Warn("evidence can't be asked for", "request", r.Request, "target", l.target, "error", err)
		return x, nil
	}
	asking, gapped := l.untilGap(ctx)
	defer gapped()
	// The ticket says which start is asked about: a record that has another one
	// is not the one that was claimed, and is not fenced for it.
	reply := l.d.cfg.Exchange.Ask(asking, exchange.Question{
		Kind: message.Evidence, Target: l.target, Instance: r.Body.Instance,
		Request: r.Request, Digest: r.Body.Digest, Ticket: r.Ticket,
		Body: message.Body{Fence: fence}, Lines: x.lines,
	}, pem)
	x.answer = reply.Answer
	return x, nil
}
