package sim

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// Broken is a defect that is put into a schedule on purpose, to see that the
// invariants catch it. It lives in the ports and models of this package; no
// production code knows of it.
type Broken string

// The defects.
const (
	PublishBeforeSync    Broken = "publish before the claim is synced"
	PublishUnknownClaim  Broken = "publish after a claim whose outcome isn't known"
	RetryOnTimeout       Broken = "publish again where the master didn't answer"
	RepublishOnRestart   Broken = "publish again after a restart what is dispatching"
	TrustTheBus          Broken = "believe a return without its MAC"
	AbsentIsUnseen       Broken = "take absent for never started"
	InterruptedIsFailed  Broken = "take interrupted for failed"
	FailedAtDeadline     Broken = "take the deadline for a failure"
	QuarantineForgotten  Broken = "forget the quarantine"
	NotExclusive         Broken = "fence and start don't exclude each other"
	TicketNotBoundToBoot Broken = "a ticket outlives a reboot"
	TicketLivesForEver   Broken = "a ticket doesn't expire"
	AnyTicketStarts      Broken = "start under a ticket that isn't the record's"
	AnyTicketFences      Broken = "fence a record that has another ticket than was claimed"
	UnfinishedIgnored    Broken = "prepare beside an unfinished record"
	EffectBeforeBegun    Broken = "the effect begins before that is recorded"
	ReplayRuns           Broken = "a replayed start runs again"

	SettledWhileRunning  Broken = "settle what runs"
	SettlesWhatRuns      Broken = "a ledger settles what runs"
	SettledIsReused      Broken = "reuse an operator's success"
	DebtForgotten        Broken = "forget what a ledger has to be told"
	DebtWrittenOff       Broken = "take a settlement for delivered before the ledger has it"
	WaitingStarts        Broken = "start what waited in a database that was put back"
	AnyAbsentIsProof     Broken = "take another ledger's absent for never started"
	ForgetsAndIsBelieved Broken = "believe a ledger that was put back"
	RecordForgotten      Broken = "forget what only a ledger knows"
	RecordIsNoObstacle   Broken = "what only a ledger knows doesn't quarantine"
)

// misread is how broken copies of masterd read an answer.
func (p *masterd) misread(q exchange.Question, a message.Answer) message.Answer {
	known := func() receipt.Target {
		t, err := p.w.store.Target(context.Background(), q.Target)
		if err != nil || t == nil {
			return receipt.Target{}
		}
		return *t
	}
	switch {
	case p.w.opts.Broken == AbsentIsUnseen && a.Result == message.Absent:
		a.Result, a.Code, a.Digest = message.Fenced, problem.NeverStarted, q.Digest
		a.Generation = max(a.Generation, known().Generation)
	case p.w.opts.Broken == ForgetsAndIsBelieved && a.Generation > 0:
		a.Generation = max(a.Generation, known().Generation)
	case p.w.opts.Broken == InterruptedIsFailed && a.Result == message.Interrupted:
		a.Result = message.NeverBegan
	case p.w.opts.Broken == AnyAbsentIsProof && a.Result == message.Absent:
		if t := known(); t.Ledger != "" {
			a.Ledger, a.Machine, a.Generation = t.Ledger, t.Machine, t.Generation
		}
	}
	return a
}

// overlook is how a broken copy of `masterd reconcile` reads an answer.
func (p *masterd) overlook(reply exchange.Reply) exchange.Reply {
	if p.w.opts.Broken == SettledWhileRunning && reply.Answer != nil && reply.Answer.Result == message.Running {
		a := *reply.Answer
		a.Result, a.Survivors = message.Interrupted, 0
		reply.Answer = &a
	}
	return reply
}

// again publishes a start a second time.
func (p *masterd) again(ctx context.Context, e *pending, jid string) (exchange.Sending, error) {
	if p.dead.Load() {
		return exchange.SendingUnknown, errDead
	}
	return p.publish(ctx, e.seal("again", message.Start), e.q.Target, jid)
}

// sendAgain publishes every dispatching receipt's start again.
func (p *masterd) sendAgain() {
	if p.w.opts.Broken != RepublishOnRestart {
		return
	}
	for _, r := range p.w.store.Receipts() {
		if r.State != receipt.Dispatching {
			continue
		}
		e := &pending{nonce: strings.Repeat("0", 2*message.NonceSize), unlock: func() {}, q: exchange.Question{
			Kind: message.Start, Target: r.Body.Target, Instance: r.Body.Instance, Request: r.Request,
			Digest: r.Body.Digest, Ticket: r.Ticket, Body: message.Body{Profile: string(r.Body.Profile)},
		}}
		p.w.after(time.Second, func() { _, _ = p.again(context.Background(), e, r.JID) })
	}
}

// pretend makes the receipt that a claim would give.
func (s *storePort) pretend(request string, c receipt.Claim) receipt.Receipt {
	r, _ := s.p.w.store.Receipt(request)
	now := s.p.w.clock.Now()
	c.JID = receipt.NextJID("", now)
	next, err := receipt.Apply(r, receipt.ClaimStart(now, c))
	if err != nil {
		return r
	}
	return next
}

func (s *storePort) claimLater(request string, c receipt.Claim, claim func() (receipt.Receipt, error)) (receipt.Receipt, error) {
	if s.p.dead.Load() {
		return receipt.Receipt{}, errDead
	}
	s.p.w.after(20*time.Millisecond, func() {
		if !s.p.dead.Load() {
			_, _ = claim()
			s.p.w.afterWrite()
		}
	})
	return s.pretend(request, c), nil
}

// deliver hands a return to masterd; a broken copy believes it as it is.
func (p *masterd) deliver(jid, id, text string) {
	if p.w.opts.Broken == TrustTheBus {
		p.believe(text)
	}
	p.x.Deliver(jid, id, text)
}

func (p *masterd) believe(text string) {
	raw, _, ok := strings.Cut(strings.TrimPrefix(text, "odf1."), ".")
	if !ok {
		return
	}
	decoded, err := base64.RawURLEncoding.DecodeString(raw)
	if err != nil {
		return
	}
	var a message.Answer
	if json.Unmarshal(decoded, &a) != nil || a.Kind != message.Start {
		return
	}
	p.launchesMu.Lock()
	defer p.launchesMu.Unlock()
	if l := p.launches[a.Request]; l != nil {
		select {
		case l.fake <- a:
		default:
		}
	}
}

// Answers carries what was believed, where everything is.
func (l *launch) Answers() <-chan message.Answer {
	if l.p.w.opts.Broken == TrustTheBus {
		return l.fake
	}
	return l.Launch.Answers()
}
