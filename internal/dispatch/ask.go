package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// Records is what a lane tells of a target's ledger besides the request that it
// prepares, and what the ledger has to be told. nil: nobody.
type Records interface {
	// Owed gives the operators' settlements that this server's ledger doesn't
	// know of. They travel with the next prepare.
	Owed(ctx context.Context, target, instance string) []message.Settlement
	// Paid says what came of them.
	Paid(ctx context.Context, target string, states []message.SettlementState)
	// Unfinished says that a prepare of asked was refused for a record of
	// another request. asked is refused already.
	Unfinished(ctx context.Context, asked receipt.Receipt, request string)
}

// asked is an operator's question about one receipt. It waits for its turn like
// any other: one question at a time for a target.
type asked struct {
	e     *entry
	reply chan exchange.Reply // capacity 1
}

// Look asks a target's executor about a receipt now, whatever its state. It
// returns once an authentic answer is kept and judged, with the receipt as it is
// then. Reply.Answer is nil where nobody answered.
func (d *Dispatcher) Look(ctx context.Context, request string) (receipt.Receipt, exchange.Reply, error) {
	bound, err := d.cfg.Store.Lookup(ctx, request)
	if err != nil {
		return receipt.Receipt{}, exchange.Reply{}, err
	}
	q := &asked{reply: make(chan exchange.Reply, 1)}
	if !d.tell(arrival{r: bound.Execution, asked: q}) {
		return receipt.Receipt{}, exchange.Reply{}, d.notRunning()
	}
	select {
	case reply := <-q.reply:
		bound, err = d.cfg.Store.Lookup(ctx, request)
		return bound.Execution, reply, err
	case <-d.ctx.Done():
		return receipt.Receipt{}, exchange.Reply{}, stopping()
	case <-ctx.Done():
		return receipt.Receipt{}, exchange.Reply{}, ctx.Err()
	}
}

func (d *Dispatcher) notRunning() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx == nil {
		return problem.New(problem.Starting, "masterd is starting; nothing was asked").WithHint("try again in a moment")
	}
	return stopping()
}

func stopping() error {
	return problem.New(problem.NotWritable, "masterd is stopping; nothing was asked")
}

// Moved tells the lane of a target that somebody else has changed a receipt or
// made one. It never blocks.
func (d *Dispatcher) Moved(r receipt.Receipt) { d.tell(arrival{r: r, moved: true}) }

// ask does what the operator asked for. It runs beside the lane.
func (l *lane) ask(ctx context.Context, q *asked, r receipt.Receipt, fence bool) func() {
	reply, lines := l.askOnce(ctx, r, fence)
	return func() {
		l.asked = slices.DeleteFunc(l.asked, func(x *asked) bool { return x == q })
		if !reply.AskedAt.IsZero() {
			q.e.lastLook = reply.AskedAt
		}
		if reply.Answer == nil {
			q.reply <- reply
			return
		}
		l.statements = append(l.statements, &statement{
			e: q.e, kind: message.Evidence, answer: *reply.Answer, lines: lines, then: func() { q.reply <- reply },
		})
	}
}

func (l *lane) askOnce(ctx context.Context, r receipt.Receipt, fence bool) (exchange.Reply, receipt.Lines) {
	ctx, cancel := context.WithTimeout(ctx, evidenceWait)
	defer cancel()
	lines, err := l.d.cfg.Store.Lines(ctx, l.target)
	if err != nil {
		l.d.cfg.Logger.Warn("an operator's question isn't asked", "request", r.Request, "target", l.target, "error", err)
		return exchange.Reply{Silence: exchange.SilenceNoListener}, nil
	}
	pem, _, err := l.d.cfg.Exchange.Key(ctx, l.target)
	if err != nil {
		l.d.cfg.Logger.Warn("the accepted key can't be had", "request", r.Request, "target", l.target, "error", err)
		silence := exchange.SilenceNoListener
		if problem.CodeOf(err) == problem.TargetUnknown {
			silence = exchange.SilenceUnpublished
		}
		return exchange.Reply{Silence: silence}, nil
	}
	return l.d.cfg.Exchange.Ask(ctx, exchange.Question{
		Kind: message.Evidence, Target: l.target, Instance: r.Body.Instance,
		Request: r.Request, Digest: r.Body.Digest, Ticket: r.Ticket,
		Body: message.Body{Fence: fence}, Lines: lines,
	}, pem), lines
}

// owed gives what travels with a prepare, at most as much as one answer can
// tell of.
func (l *lane) owed(ctx context.Context, instance string) []message.Settlement {
	if l.d.cfg.Records == nil {
		return nil
	}
	owed := l.d.cfg.Records.Owed(ctx, l.target, instance)
	return owed[:min(len(owed), message.MaxOwed)]
}

func (l *lane) paid(ctx context.Context, reply exchange.Reply) {
	if l.d.cfg.Records == nil || reply.Answer == nil || reply.Answer.Settlements == nil {
		return
	}
	l.d.cfg.Records.Paid(ctx, l.target, *reply.Answer.Settlements)
}

// unfinished tells of a record that stood in the way of a prepare.
func (l *lane) unfinished(ctx context.Context, r receipt.Receipt, refusal *refused) {
	if l.d.cfg.Records == nil || refusal.code != problem.RecordUnfinished || refusal.blocker == nil {
		return
	}
	l.d.cfg.Records.Unfinished(ctx, r, refusal.blocker.Request)
}

// A receipt that waited when its database was restored may have run since, in
// a past that was lost. It never gets a turn: its ledger is asked, and says
// what became of it (adopted), or that it has no such record (refused). What
// is prepared there is fenced once any ticket is dead. If nobody has answered
// by then, nobody knows.

// carriedLook says when the ledger is to be asked about such a receipt.
func (l *lane) carriedLook(e *entry, now time.Time) (time.Time, bool) {
	if !l.d.cfg.Joined() {
		return now.Add(deafRetry), true
	}
	last := e.times.learned.Add(receipt.FenceAfter)
	switch {
	case e.lastLook.IsZero():
		return now, true
	case e.lastLook.Before(last):
		if early := e.times.learned.Add(receipt.FirstLook); e.lastLook.Before(early) {
			return early, true
		}
		return last, true
	}
	return e.lastLook.Add(receipt.LookInterval), true
}

// carried says that an entry is such a receipt.
func (e *entry) carried() bool { return e.r.State == receipt.Queued && e.r.Carried }

// carriedEnds says when asking about it is over without an answer that ends it.
func (e *entry) carriedEnds(now time.Time) (time.Time, bool) {
	return now, !e.lastLook.Before(e.times.learned.Add(receipt.FenceAfter))
}

// neverRan says that an answer proves that such a receipt didn't run: the very
// ledger that was adopted has no record of it, and whoever might have had leave
// to start it is gone with the past that was lost. A ledger that was adopted
// after it came, perhaps because the former one is lost too, proves nothing. Which
// came first no clock says, since it may have been set: only where the target
// never had another ledger it is that one on which the request would have run.
func (l *lane) neverRan(ctx context.Context, r receipt.Receipt, a message.Answer) bool {
	if !r.Carried || r.State != receipt.Queued || a.Result != message.Absent {
		return false
	}
	t, err := l.d.cfg.Store.Target(ctx, l.target)
	if err != nil || t == nil || a.Ledger != t.Ledger || a.Machine != t.Machine || t.AdoptedAt.After(r.AcceptedAt) {
		return false
	}
	lines, err := l.d.cfg.Store.Lines(ctx, l.target)
	return err == nil && len(lines) == 1
}

// fences says whether a question about a receipt may fence a prepared record. Where
// its start was never claimed here, nobody knows its ticket: whichever its record
// may have is from before. Without that it might start for ever, as far as anybody
// can say, and no operator could settle it.
func (e *entry) fences(now time.Time) bool {
	if e.carried() || e.r.State == receipt.Uncertain && e.r.Ticket == "" {
		return mayFence(e.times.learned, now)
	}
	return mayFence(e.times.ticket, now)
}
