package dispatch

import (
	"context"
	"time"

	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/fault"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// attempt is a receipt's turn: key, prepare, claim, one start. Whatever stops
// it before the claim is a refusal, and final; whatever happens after it is
// left to evidence. If masterd is told to stop before the claim, the receipt
// stays queued; after it, the start still goes out.
func (l *lane) attempt(ctx context.Context, e *entry) func() {
	prepared, refusal := l.prepare(ctx, e)
	switch {
	case ctx.Err() != nil && (refusal == nil || refusal.silent):
		if prepared != nil {
			prepared.launch.Close()
		}
		return func() {} // still queued; the next start prepares anew
	case refusal != nil && refusal.gap:
		return func() { e.lost++ } // its turn comes again, with a new prepare
	case refusal != nil && refusal.silent && refusal.code == problem.ExecutorSilent && !l.d.cfg.Joined():
		return func() {} // nobody could be heard, and until the bus is back nobody's turn comes
	case refusal != nil && refusal.err != nil:
		return func() { l.failed(e, refusal.err) }
	case refusal != nil && refusal.answer != nil:
		return func() {
			l.statements = append(l.statements, &statement{e: e, kind: message.Prepare, answer: *refusal.answer, lines: refusal.lines})
		}
	case refusal != nil:
		event := receipt.Refuse(l.d.cfg.Now(), refusal.code, refusal.blocker)
		event.Detail = string(refusal.silence)
		written := l.write(ctx, e, event)
		l.unfinished(ctx, e.r, refusal)
		return written
	}
	return l.claimAndStart(ctx, e, prepared)
}

// prepared is what a claim needs: a live ticket and a start that is sealed.
type prepared struct {
	claim   receipt.Claim
	launch  Launch
	lines   receipt.Lines // known before the start
	askedAt time.Time
}

// refused says why there is nothing to claim. Either answer is set (the ledger
// knows this very request already), or err (the store or masterd itself failed:
// try again), or code.
type refused struct {
	code    problem.Code
	blocker *receipt.Blocker
	silence exchange.Silence
	silent  bool // nobody answered; if masterd stops, that says nothing
	gap     bool // the answer may have been lost in a gap of the bus: try again
	answer  *message.Answer
	lines   receipt.Lines // of answer
	err     error
}

// prepare fetches the accepted key, compares it with what was adopted, asks the
// executor for leave to start and seals the start.
func (l *lane) prepare(ctx context.Context, e *entry) (*prepared, *refused) {
	target, err := l.d.cfg.Store.Target(ctx, l.target)
	if err != nil {
		return nil, &refused{err: err}
	}
	switch {
	case l.d.duplicated(ctx, l.target):
		return nil, &refused{code: problem.DuplicateTarget}
	case target != nil && target.PutBack:
		return nil, &refused{code: problem.LedgerChanged}
	}
	canonical, err := l.d.cfg.Store.Canonical(ctx, e.r.Body.Digest)
	if err != nil {
		return nil, &refused{err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, receipt.PrepareTimeout)
	defer cancel()
	pem, fingerprint, err := l.d.cfg.Exchange.Key(ctx, l.target)
	if err != nil {
		return nil, l.keyRefused(e, err)
	}
	if target == nil || fingerprint != target.Fingerprint {
		return nil, &refused{code: problem.KeyChanged}
	}
	lines, err := l.d.cfg.Store.Lines(ctx, l.target)
	if err != nil {
		return nil, &refused{err: err}
	}
	fault.Before(fault.StepPrepare.On(l.target))
	asking, gapped := ctx, func() bool { return false }
	if e.lost < prepareAgain {
		asking, gapped = l.untilGap(ctx)
	}
	reply := l.d.cfg.Exchange.Ask(asking, exchange.Question{
		Kind: message.Prepare, Target: l.target, Instance: e.r.Body.Instance,
		Request: e.r.Request, Digest: e.r.Body.Digest,
		Body:  message.Body{Profile: string(e.r.Body.Profile), Owed: l.owed(ctx, e.r.Body.Instance)},
		Lines: lines,
	}, pem)
	fault.After(fault.StepPrepare.On(l.target))
	if gapped() && reply.Answer == nil {
		return nil, &refused{gap: true}
	}
	told, r := l.prepareAnswered(context.WithoutCancel(ctx), e.r, *target, lines, reply)
	if r != nil {
		return nil, r
	}
	lines = lines.With(reply.Answer.Ledger, reply.Answer.Generation)
	launch, err := l.d.cfg.Exchange.NewLaunch(exchange.Question{
		Kind: message.Start, Target: l.target, Instance: e.r.Body.Instance,
		Request: e.r.Request, Digest: e.r.Body.Digest, Ticket: reply.Answer.Ticket,
		Body:  message.Body{Profile: string(e.r.Body.Profile), Canonical: canonical},
		Lines: lines,
	}, pem)
	if err != nil {
		return nil, &refused{err: err}
	}
	return &prepared{launch: launch, lines: lines, askedAt: reply.AskedAt, claim: receipt.Claim{
		Ticket: reply.Answer.Ticket, Fingerprint: fingerprint, Ledger: reply.Answer.Ledger, TicketAt: reply.EndedAt, Told: told,
	}}, nil
}

// keyRefused: without the accepted key nothing can be sealed. A target that the
// master doesn't know is final; a master that doesn't answer is silence.
func (l *lane) keyRefused(e *entry, err error) *refused {
	l.d.cfg.Logger.Warn("the accepted key can't be had", "request", e.r.Request, "target", l.target, "error", err)
	if code := problem.CodeOf(err); code == problem.TargetUnknown || code == problem.KeyChanged {
		return &refused{code: code}
	}
	return &refused{code: problem.ExecutorSilent, silence: exchange.SilenceNoListener, silent: true}
}

// judgePrepare is pure: nil means that the answer is a ticket to claim on. Where
// the ledger tells less than it had told before, nothing is claimed on it.
func judgePrepare(r receipt.Receipt, t receipt.Target, told receipt.Told, reply exchange.Reply) *refused {
	a := reply.Answer
	if a == nil {
		if reply.Silence == exchange.SilenceUnpublished {
			return &refused{code: problem.TargetUnknown, silence: reply.Silence, silent: true}
		}
		return &refused{code: problem.ExecutorSilent, silence: reply.Silence, silent: true}
	}
	if a.Protocol < message.MinProtocol {
		return &refused{code: problem.ExecutorOutdated}
	}
	switch a.Result {
	case message.Prepared:
		switch {
		case a.Ledger != t.Ledger || a.Machine != t.Machine || told.Behind():
			return &refused{code: problem.LedgerChanged}
		case a.Instance != r.Body.Instance:
			return &refused{code: problem.InstanceDiffers}
		case a.Digest != r.Body.Digest || len(a.Ticket) != 2*message.TicketSize:
			return &refused{code: problem.ExecutorOutdated}
		}
		return nil
	case message.Refused:
		code := a.Code
		if told.PutBack() { // whatever else it says of itself
			return &refused{code: problem.LedgerChanged}
		}
		if problem.RowOf(code).Kind != problem.KindRefused {
			code = problem.ExecutorOutdated
		}
		ref := &refused{code: code}
		if a.Unfinished != "" {
			ref.blocker = &receipt.Blocker{Request: a.Unfinished, Profile: r.Body.Profile}
		}
		return ref
	case message.Finished, message.Fenced, message.Running, message.Interrupted, message.NeverBegan,
		message.Settled, message.Lapsed:
		if a.Ledger != t.Ledger {
			return &refused{code: problem.LedgerChanged}
		}
		return &refused{answer: a}
	case message.NotStartedYet, message.Absent, message.Disregarded, message.Updated:
		return &refused{code: problem.ExecutorOutdated}
	}
	return &refused{code: problem.ExecutorOutdated}
}

// claimAndStart makes the claim durable, then sends the start: once, from here
// and from nowhere else.
func (l *lane) claimAndStart(ctx context.Context, e *entry, p *prepared) func() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if l.d.cfg.Now().Sub(p.askedAt) > receipt.TicketTrust {
		p.launch.Close()
		return func() {} // its turn comes again, with a new prepare
	}
	if l.d.duplicated(ctx, l.target) {
		p.launch.Close()
		return l.write(ctx, e, receipt.Refuse(l.d.cfg.Now(), problem.DuplicateTarget, nil))
	}
	fault.Before(fault.StepClaim.On(l.target))
	r, err := l.d.cfg.Store.Claim(ctx, e.r.Request, e.r.Seq, p.claim)
	fault.After(fault.StepClaim.On(l.target))
	err = fault.Told(fault.StepClaim.On(l.target), err)
	if err != nil || r.State != receipt.Dispatching {
		// If the claim's outcome isn't known it may be on disk. Then this start
		// is the one that is never sent, and evidence will fence it.
		p.launch.Close()
		return func() {
			if err != nil {
				l.failed(e, err)
				return
			}
			l.changed(e, r)
		}
	}
	e.times.learn(r, l.d.cfg.Now())
	l.d.cfg.Changed(r)
	e.unwatch = l.d.cfg.Exchange.WatchJID(r.JID, l.hint)
	e.lines = p.lines
	return l.acknowledged(ctx, e, r, p.launch, l.publishStart(ctx, r, p.launch))
}

// published is what a start came to.
type published struct {
	sending exchange.Sending
	err     error           // for the log
	answer  *message.Answer // the executor's own, where it was quicker than the master's
}

// publishStart sends the start. The executor's answer may be on the bus long
// before the master's own, which may never come: whoever answers first ends the
// wait, and nothing of what was sent is taken back by that.
func (l *lane) publishStart(ctx context.Context, r receipt.Receipt, launch Launch) published {
	ctx, cancel := context.WithTimeout(ctx, publishWait)
	defer cancel()
	done := make(chan published, 1)
	go func() {
		fault.Before(fault.StepStart.On(l.target))
		sending, err := launch.Publish(ctx, r.JID)
		fault.After(fault.StepStart.On(l.target))
		if told := fault.Told(fault.StepStart.On(l.target), nil); told != nil {
			sending, err = exchange.SendingUnknown, told
		}
		done <- published{sending: sending, err: err}
	}()
	var p published
	select {
	case p = <-done:
	case a := <-launch.Answers():
		cancel()
		p = <-done
		p.answer = &a
		if p.sending == exchange.SendingNothing { // the answer proves that it went out
			p.sending = exchange.SendingUnknown
		}
	}
	log := l.d.cfg.Logger.Info
	if p.answer == nil && (p.err != nil || p.sending != exchange.SendingSent) {
		log = l.d.cfg.Logger.Warn
	}
	log("start published", "request", r.Request, "target", l.target, "jid", r.JID, "sending", int(p.sending),
		"answered", p.answer != nil, "error", p.err)
	return p
}

// acknowledged writes what the master answered to the start, if that is worth
// anything.
func (l *lane) acknowledged(ctx context.Context, e *entry, claimed receipt.Receipt, launch Launch, p published) func() {
	next, err := claimed, error(nil)
	fault.Before(fault.StepAcknowledge.On(l.target))
	switch p.sending {
	case exchange.SendingSent:
		next, err = l.d.cfg.Store.Apply(ctx, claimed.Request, claimed.Seq, receipt.Acknowledge(l.d.cfg.Now()))
	case exchange.SendingNothing:
		next, err = l.d.cfg.Store.Apply(ctx, claimed.Request, claimed.Seq, receipt.SentNothing(l.d.cfg.Now()))
	case exchange.SendingUnknown, exchange.SendingNotTried:
	}
	fault.After(fault.StepAcknowledge.On(l.target))
	err = fault.Told(fault.StepAcknowledge.On(l.target), err)
	return func() {
		e.launch = launch
		e.lastLook = time.Time{}
		if p.answer != nil {
			l.answered(e, *p.answer)
		}
		l.changed(e, claimed)
		if err != nil {
			l.failed(e, err)
			return
		}
		if next.Seq != claimed.Seq {
			l.changed(e, next)
		}
	}
}
