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
	verdict := l.judge(ctx, s)
	if !s.witnessed {
		w := receipt.Witness{
			Request: e.r.Request, At: now, Kind: string(s.kind), Result: string(a.Result),
			Code: a.Code, Ledger: a.Ledger, Conflict: verdict.Conflict,
		}
		if a.Counts != nil {
			w.Counts = &receipt.Counts{Declared: a.Counts.Declared, Passed: a.Counts.Passed, Failed: a.Counts.Failed, NotRun: a.Counts.NotRun}
		}
		if s.duplicate {
			w.Code = problem.DuplicateTarget
		}
		if err := l.d.cfg.Store.Witness(ctx, w); err != nil {
			return func() { l.failed(e, err) }
		}
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

// judge decides what a statement means now.
func (l *lane) judge(ctx context.Context, s *statement) evidence.Verdict {
	if s.duplicate {
		return evidence.Verdict{Conflict: true}
	}
	if l.neverRan(ctx, s.e.r, s.answer) {
		event := receipt.Refuse(l.d.cfg.Now(), problem.EpochEnded, nil)
		return evidence.Verdict{Event: &event}
	}
	verdict := evidence.Decide(s.e.r, s.answer, l.d.cfg.Now())
	if verdict.Event == nil || s.e.r.JID == "" {
		return verdict
	}
	// Two executors answer for this target. The one that says that it didn't
	// start anything may not be the one that was started.
	if negative(s.answer.Result) && l.d.duplicated(ctx, l.target) {
		return evidence.Verdict{Conflict: true}
	}
	return verdict
}

func negative(r message.Result) bool { return r == message.Fenced || r == message.NeverBegan }

// taken runs in the lane: the store has the statement.
func (l *lane) taken(s *statement) {
	l.statements = slices.DeleteFunc(l.statements, func(x *statement) bool { return x == s })
	if s.then != nil {
		s.then()
	}
}
