package reconcile

import (
	"context"

	"github.com/oduflow/oduflow-salt/internal/evidence"
	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// deliver tells the target's ledger of a settlement. The error is the store's;
// silence is none: it stays owed.
func (s *Service) deliver(ctx context.Context, r receipt.Receipt, settlement *receipt.Settlement) error {
	ctx, cancel := context.WithTimeout(ctx, settleWait)
	defer cancel()
	a, silence := s.tell(ctx, r, settlement.Outcome)
	if a == nil {
		s.cfg.Logger.Warn("a settlement isn't answered", "request", r.Request, "target", r.Body.Target, "silence", silence)
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	paid, err := s.pay(ctx, message.SettlementState{Request: r.Request, Result: a.Result, Code: a.Code, Outcome: a.Outcome}, message.Settle)
	if paid {
		settlement.DeliveredAt = s.cfg.Now()
	}
	return err
}

// tell has a ledger record an outcome. The answer is nil where nobody gave one.
func (s *Service) tell(ctx context.Context, r receipt.Receipt, outcome receipt.State) (*message.Answer, exchange.Silence) {
	pem, _, err := s.cfg.Exchange.Key(ctx, r.Body.Target)
	if err != nil {
		s.cfg.Logger.Warn("the accepted key can't be had", "request", r.Request, "target", r.Body.Target, "error", err)
		return nil, exchange.SilenceNoListener
	}
	reply := s.cfg.Exchange.Ask(ctx, exchange.Question{
		Kind: message.Settle, Target: r.Body.Target, Instance: r.Body.Instance, Request: r.Request, Digest: r.Body.Digest,
		Body: message.Body{Outcome: message.Outcome(outcome)},
	}, pem)
	return reply.Answer, reply.Silence
}

// pay takes what a ledger answered to a settlement. What is final pays the
// debt, whether it agrees or not; what doesn't agree is kept and raised.
func (s *Service) pay(ctx context.Context, st message.SettlementState, kind message.Kind) (paid bool, err error) {
	settlement, err := s.cfg.Store.Settlement(ctx, st.Request)
	if err != nil || settlement == nil {
		return false, err // it answers about what we never told
	}
	switch st.Result {
	case message.Settled, message.Finished, message.Fenced, message.NeverBegan, message.Lapsed, message.Absent:
	case message.Running, message.NotStartedYet, message.Refused, message.Interrupted, message.Prepared,
		message.Disregarded, message.Updated:
		s.cfg.Logger.Warn("a settlement stays owed", "request", st.Request, "result", st.Result, "code", st.Code)
		return false, nil
	}
	conflict := disagrees(*settlement, st)
	err = s.cfg.Store.Witness(ctx, receipt.Witness{
		Request: st.Request, At: s.cfg.Now(), Kind: string(kind), Result: string(st.Result), Code: st.Code, Conflict: conflict,
	})
	if err != nil {
		return false, err
	}
	if conflict {
		s.cfg.Logger.Error("evidence_conflict", "request", st.Request, "state", settlement.Outcome,
			"result", st.Result, "code", st.Code, "outcome", st.Outcome)
	}
	return true, s.cfg.Store.Delivered(ctx, st.Request)
}

// disagrees says that a ledger's final word isn't the operator's.
func disagrees(s receipt.Settlement, st message.SettlementState) bool {
	switch st.Result { //nolint:exhaustive // the others say nothing of the outcome
	case message.Settled:
		return receipt.State(st.Outcome) != s.Outcome
	case message.Finished:
		return (st.Code == "") != (s.Outcome == receipt.Succeeded)
	case message.Fenced, message.NeverBegan:
		return s.Outcome != receipt.Failed
	}
	return false
}

// Owed is part of dispatch.Records.
func (s *Service) Owed(ctx context.Context, target, instance string) []message.Settlement {
	debts, err := s.cfg.Store.Owed(ctx, target, instance)
	if err != nil {
		s.cfg.Logger.Warn("what is owed to a ledger can't be read", "target", target, "error", err)
		return nil
	}
	out := make([]message.Settlement, 0, len(debts))
	for _, d := range debts {
		out = append(out, message.Settlement{Request: d.Request, Digest: d.Digest, Outcome: message.Outcome(d.Outcome)})
	}
	return out
}

// Paid is part of dispatch.Records.
func (s *Service) Paid(ctx context.Context, target string, states []message.SettlementState) {
	for _, st := range states {
		if _, err := s.pay(ctx, st, message.Prepare); err != nil {
			s.cfg.Logger.Warn("what a ledger says of a settlement can't be kept", "request", st.Request, "target", target, "error", err)
		}
	}
}

// Unfinished is part of dispatch.Records: a prepare of asked met an unfinished
// record of another request. One that this database doesn't know becomes an
// uncertain receipt, marked: an older database was put back, or another masterd
// had the target. It quarantines the target as any other does.
func (s *Service) Unfinished(ctx context.Context, asked receipt.Receipt, request string) {
	log := s.cfg.Logger.With("request", request, "target", asked.Body.Target)
	bound, err := s.cfg.Store.Lookup(ctx, request)
	if problem.CodeOf(err) == problem.UnknownRequest {
		err = s.adoptRecord(ctx, asked, request)
	} else if err == nil {
		err = s.contradicted(ctx, asked, bound)
	}
	if err != nil {
		log.Warn("a record that a ledger names can't be taken over yet", "error", err)
	}
}

func (s *Service) adoptRecord(ctx context.Context, asked receipt.Receipt, request string) error {
	ctx, cancel := context.WithTimeout(ctx, recordWait)
	defer cancel()
	target := asked.Body.Target
	pem, _, err := s.cfg.Exchange.Key(ctx, target)
	if err != nil {
		return err
	}
	reply := s.cfg.Exchange.Ask(ctx, exchange.Question{
		Kind: message.Evidence, Target: target, Instance: asked.Body.Instance, Request: request,
	}, pem)
	if reply.Answer == nil {
		return problem.New(problem.ExecutorSilent, "the executor of %q doesn't say what its record is", target)
	}
	a := *reply.Answer
	rec := receipt.Record{
		Request: request, Target: target, Instance: asked.Body.Instance,
		// An executor runs no other profile so far, and says none.
		Profile: receipt.Custom, Digest: a.Digest, Ledger: a.Ledger,
	}
	switch a.Result { //nolint:exhaustive // any other has ended meanwhile
	case message.Interrupted:
		rec.Code = problem.Interrupted
	case message.Running:
		rec.Code = problem.StillRunning
	default:
		return nil
	}
	if a.Instance != "" {
		rec.Instance = a.Instance
	}
	ctx = context.WithoutCancel(ctx)
	r, err := s.cfg.Store.FromLedger(ctx, rec)
	if err != nil {
		// It may be there all the same, and then it is to be asked about.
		if bound, lookErr := s.cfg.Store.Lookup(ctx, request); lookErr == nil {
			s.cfg.Moved(bound.Execution)
		}
		return err
	}
	s.cfg.Logger.Error("record_unknown: a ledger has an unfinished record that this database doesn't know; was an older database put back?",
		"request", request, "target", target, "code", rec.Code)
	s.cfg.Moved(r)
	return s.cfg.Store.Witness(ctx, receipt.Witness{
		Request: request, At: s.cfg.Now(), Kind: string(message.Evidence), Result: string(a.Result), Code: a.Code, Ledger: a.Ledger,
	})
}

// contradicted: the receipts say that the request has ended, and the ledger
// that it hasn't. Where an operator's word just wasn't delivered that is no
// contradiction.
//
// Where the run's end is known here, its ledger was put back to before it. Nothing
// else keeps that from the target's next request, so the ledger is told again; it
// takes our word only where nothing runs. A receipt that says that nothing ran is
// another matter: then nobody knows.
func (s *Service) contradicted(ctx context.Context, asked receipt.Receipt, bound receipt.Bound) error {
	r := bound.Execution
	if !r.State.Terminal() {
		s.cfg.Moved(r) // it is asked about in its own right, by a lane that has to know of it
		return nil
	}
	settlement, err := s.cfg.Store.Settlement(ctx, r.Request)
	if err != nil || settlement != nil && settlement.Owed() {
		return err
	}
	s.cfg.Logger.Error("evidence_conflict", "request", r.Request, "target", r.Body.Target, "state", r.State, "result", "unfinished")
	err = s.cfg.Store.Witness(ctx, receipt.Witness{
		Request: r.Request, At: s.cfg.Now(), Kind: string(message.Prepare), Result: string(message.Refused),
		Code: problem.RecordUnfinished, Conflict: true,
	})
	if err == nil && !bound.Reused && r.Body.Instance == asked.Body.Instance && evidence.Ended(r) {
		s.remind(ctx, r)
	}
	return err
}

// remind tells a ledger that has forgotten it how a run ended. It is tried again
// with the next prepare that meets the record.
func (s *Service) remind(ctx context.Context, r receipt.Receipt) {
	ctx, cancel := context.WithTimeout(ctx, settleWait)
	defer cancel()
	a, silence := s.tell(ctx, r, r.State)
	if a == nil {
		s.cfg.Logger.Warn("a ledger isn't reminded of an outcome", "request", r.Request, "target", r.Body.Target, "silence", silence)
		return
	}
	s.cfg.Logger.Warn("a ledger was reminded of an outcome", "request", r.Request, "target", r.Body.Target,
		"outcome", r.State, "result", a.Result, "code", a.Code)
}
