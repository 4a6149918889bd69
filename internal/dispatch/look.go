package dispatch

import (
	"context"
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
	asked, answer := l.askEvidence(ctx, r, fence)
	fault.After(fault.StepEvidence.On(l.target))
	return func() {
		if asked.IsZero() {
			return
		}
		e.lastLook, e.restored = asked, false
		if !e.lookAt.After(asked) { // else the reason is newer than the question
			e.lookAt = time.Time{}
		}
		switch {
		case answer != nil:
			l.statements = append(l.statements, &statement{e: e, kind: message.Evidence, answer: *answer})
		default:
			for _, other := range l.held { // whoever is silent about one is about all
				other.restored = false
			}
		}
	}
}

// askEvidence gives an authentic answer, or nil, and when it was asked for;
// zero where masterd was told to stop first.
func (l *lane) askEvidence(ctx context.Context, r receipt.Receipt, fence bool) (asked time.Time, answer *message.Answer) {
	select {
	case l.d.asks <- struct{}{}:
		defer func() { <-l.d.asks }()
	case <-ctx.Done():
		return asked, nil
	}
	asked = l.d.cfg.Now()
	ctx, cancel := context.WithTimeout(ctx, evidenceWait)
	defer cancel()
	pem, _, err := l.d.cfg.Exchange.Key(ctx, l.target)
	if err != nil {
		l.d.cfg.Logger.Warn("evidence can't be asked for", "request", r.Request, "target", l.target, "error", err)
		return asked, nil
	}
	// The ticket says which start is asked about: a record that has another one
	// is not the one that was claimed, and is not fenced for it.
	reply := l.d.cfg.Exchange.Ask(ctx, exchange.Question{
		Kind: message.Evidence, Target: l.target, Instance: r.Body.Instance,
		Request: r.Request, Digest: r.Body.Digest, Ticket: r.Ticket,
		Body: message.Body{Fence: fence},
	}, pem)
	return asked, reply.Answer
}
