package dispatch

import (
	"context"
	"slices"

	"github.com/oduflow/oduflow-salt/internal/evidence"
	"github.com/oduflow/oduflow-salt/internal/fault"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// take keeps an authentic answer as a witness, and writes what it decides. It
// is done again until the store has both.
func (l *lane) take(ctx context.Context, s *statement) func() {
	ctx = context.WithoutCancel(ctx)
	e, a := s.e, s.answer
	now := l.d.cfg.Now()
	told := s.lines.Tell(a.Ledger, a.Generation)
	verdict, err := l.judge(ctx, s, told)
	if err != nil {
		return func() { l.failed(e, err) }
	}
	if !s.witnessed {
		w := receipt.Witness{
			Request: e.r.Request, At: now, Kind: string(s.kind), Result: string(a.Result),
			Code: a.Code, Ledger: a.Ledger, Conflict: verdict.Conflict, Told: told,
		}
		if a.Counts != nil {
			w.Counts = &receipt.Counts{Declared: a.Counts.Declared, Passed: a.Counts.Passed, Failed: a.Counts.Failed, NotRun: a.Counts.NotRun}
		}
		switch {
		case s.duplicate:
			w.Code = problem.DuplicateTarget
		case told.Behind() && a.Result != message.Finished:
			w.Code = problem.LedgerChanged
		}
		if err := l.d.cfg.Store.Witness(ctx, w); err != nil {
			return func() { l.failed(e, err) }
		}
		l.sayPutBack(e.r, told)
		if verdict.Conflict {
			l.d.cfg.Logger.Error("evidence_conflict", "request", e.r.Request, "target", l.target,
				"state", e.r.State, "result", a.Result, "code", w.Code)
		}
	}
	if verdict.Event == nil {
		return func() { e.last = &a; l.taken(s) }
	}
	fault.Before(fault.StepFinish.On(l.target))
	r, err := l.d.cfg.Store.Apply(ctx, e.r.Request, e.r.Seq, *verdict.Event)
	fault.After(fault.StepFinish.On(l.target))
	err = fault.Told(fault.StepFinish.On(l.target), err)
	return func() {
		if err != nil {
			s.witnessed = true
			l.failed(e, err)
			return
		}
		l.taken(s)
		l.changed(e, r)
	}
}

// judge decides what a statement means now. The error is the store's: it has to
// be judged later.
func (l *lane) judge(ctx context.Context, s *statement, told receipt.Told) (evidence.Verdict, error) {
	if s.duplicate {
		return evidence.Verdict{Conflict: true}, nil
	}
	r, a, m := s.e.r, s.answer, evidence.Whole
	if evidence.Negative(a.Result) || a.Result == message.Absent && r.Carried {
		// What never happened on one of two machines, or on a ledger that was put
		// back, may have happened on the other one, or before.
		var err error
		if m, err = l.memory(ctx, r, a, told); err != nil {
			return evidence.Verdict{}, err
		}
		switch {
		case s.lines == nil: // a late answer to somebody who didn't look what was known
			m = evidence.Doubtful
		case s.kind == message.Prepare && r.JID != "":
			// It was asked before the claim, so it may be of a record that another
			// machine has: of two with one ledger that isn't the one that was claimed.
			m = evidence.Doubtful
		}
	}
	if m == evidence.Whole && l.neverRan(ctx, r, a) {
		event := receipt.Refuse(l.d.cfg.Now(), problem.EpochEnded, nil)
		return evidence.Verdict{Event: &event}, nil
	}
	return evidence.DecideBy(m, r, a, l.d.cfg.Now()), nil
}

// taken runs in the lane: the store has the statement.
func (l *lane) taken(s *statement) {
	l.statements = slices.DeleteFunc(l.statements, func(x *statement) bool { return x == s })
	if s.then != nil {
		s.then()
	}
}
