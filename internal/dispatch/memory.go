package dispatch

import (
	"context"

	"github.com/oduflow/oduflow-salt/internal/evidence"
	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// What a target's ledgers are known to have told is read from the store before a
// question goes out, and goes with it: an answer is judged by that alone. What
// it tells itself is kept together with whatever is written because of it.

// prepareAnswered judges what came of a prepare, and keeps what it told of the
// ledger where no claim and no witness will. r is nil where there is a ticket to
// claim on.
func (l *lane) prepareAnswered(ctx context.Context, x receipt.Receipt, t receipt.Target, lines receipt.Lines,
	reply exchange.Reply,
) (told receipt.Told, r *refused) {
	if reply.Answer == nil {
		return told, judgePrepare(x, t, told, reply)
	}
	a := *reply.Answer
	told = lines.Tell(a.Ledger, a.Generation)
	if !told.Behind() { // else it isn't the ledger that the debt is owed to, or needn't stay it
		l.paid(ctx, reply)
	}
	r = judgePrepare(x, t, told, reply)
	if r == nil {
		return told, nil
	}
	if r.answer != nil && evidence.Negative(a.Result) {
		m, err := l.memory(ctx, x, a, told)
		switch {
		case err != nil:
			return told, &refused{err: err}
		case m != evidence.Whole: // it proves nothing, and nothing may be claimed either
			r = &refused{code: problem.LedgerChanged}
		}
	}
	if r.answer != nil { // it becomes a statement
		r.lines = lines
		return told, r
	}
	l.sayPutBack(x, told)
	if told.News() {
		if err := l.d.cfg.Store.Told(ctx, told); err != nil {
			return told, &refused{err: err}
		}
	}
	return told, r
}

// memory says what the ledger that an answer about x comes from is known to be.
func (l *lane) memory(ctx context.Context, x receipt.Receipt, a message.Answer, told receipt.Told) (evidence.Memory, error) {
	t, err := l.d.cfg.Store.Target(ctx, l.target)
	switch {
	case err != nil: // whether two answer for it isn't known
		return evidence.Doubtful, err
	case told.Behind() || t != nil && t.Duplicate || l.d.duplicated(ctx, l.target):
		return evidence.Doubtful, nil
	}
	forgotten, err := l.d.cfg.Store.Forgotten(ctx, x.Request, a.Ledger)
	if err != nil || forgotten {
		return evidence.Doubtful, err
	}
	return evidence.Whole, nil
}

// sayPutBack tells the operator. Nothing is claimed on the target until he has
// adopted it again.
func (l *lane) sayPutBack(x receipt.Receipt, told receipt.Told) {
	if told.PutBack() {
		l.d.cfg.Logger.Error("ledger_put_back: a ledger tells less than it had told before, so it was put back from a copy, or there are two of it",
			"target", l.target, "request", x.Request, "generation", told.Generation, "known", told.Known)
	}
}
