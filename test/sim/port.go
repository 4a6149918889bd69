package sim

import (
	"context"
	"slices"
	"time"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// through is one call of the store by a process, with all that can happen to it.
func through[T any](ctx context.Context, p *masterd, op string, writes bool, f func() (T, error)) (T, error) {
	var zero T
	w := p.w
	if p.dead.Load() {
		return zero, errDead
	}
	if writes {
		if w.chance("kill before "+op, w.plan.KilledAtStep) {
			p.kill("before " + op)
			return zero, errDead
		}
		wait := w.span("store", 100*time.Microsecond, 3*time.Millisecond)
		if w.chance("stall "+op, w.plan.StoreStalls) {
			wait = w.span("store", time.Second, 40*time.Second)
		}
		if !p.sleep(ctx, wait) {
			if p.dead.Load() || ctx.Err() == nil || !w.chance("late commit", .5) {
				return zero, errDead
			}
			// Given up by the caller, and done a little later all the same.
			w.after(w.span("late commit", time.Millisecond, 3*time.Second), func() {
				if !p.dead.Load() {
					w.note("store: a late %s", op)
					_, _ = f()
					w.afterWrite()
				}
			})
			return zero, errDead
		}
		if w.chance("fail "+op, w.plan.StoreFails) {
			return zero, problem.New(problem.NotWritable, "%s failed", op)
		}
	}
	v, err := f()
	if !writes {
		return v, err
	}
	w.afterWrite()
	if w.chance("kill after "+op, w.plan.KilledAtStep) {
		p.kill("after " + op)
		return zero, errDead
	}
	if err == nil && w.chance("told false "+op, w.plan.StoreToldFalse) {
		w.note("store: %s done, told failed", op)
		return zero, problem.New(problem.NotWritable, "%s failed", op)
	}
	return v, err
}

// sleep is false where the process was killed or its caller gave up.
func (p *masterd) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(max(d, 1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-p.gone:
	case <-p.w.stop:
	}
	return false
}

// storePort is the store as one process has it.
type storePort struct{ p *masterd }

// nothing is what a call gives that has no result.
type nothing struct{}

func (s *storePort) Bind(ctx context.Context, b receipt.Binding, source, canonical []byte) (receipt.Bound, error) {
	return through(ctx, s.p, "bind", true, func() (receipt.Bound, error) {
		return s.p.w.bind(context.WithoutCancel(ctx), b, source, canonical)
	})
}

func (s *storePort) Lookup(ctx context.Context, request string) (receipt.Bound, error) {
	return through(ctx, s.p, "lookup", false, func() (receipt.Bound, error) { return s.p.w.store.Lookup(ctx, request) })
}

func (s *storePort) Unresolved(ctx context.Context) ([]receipt.Receipt, error) {
	all, err := through(ctx, s.p, "unresolved", false, func() ([]receipt.Receipt, error) { return s.p.w.store.Unresolved(ctx) })
	if s.p.w.opts.Broken == QuarantineForgotten {
		all = slices.DeleteFunc(all, func(r receipt.Receipt) bool { return r.State == receipt.Uncertain })
	}
	return all, err
}

func (s *storePort) Target(ctx context.Context, id string) (*receipt.Target, error) {
	return through(ctx, s.p, "target", false, func() (*receipt.Target, error) { return s.p.w.store.Target(ctx, id) })
}

func (s *storePort) Canonical(ctx context.Context, digest string) ([]byte, error) {
	return through(ctx, s.p, "canonical", false, func() ([]byte, error) { return s.p.w.store.Canonical(ctx, digest) })
}

func (s *storePort) Claim(ctx context.Context, request string, believed int, c receipt.Claim) (receipt.Receipt, error) {
	claim := func() (receipt.Receipt, error) {
		return s.p.w.store.Claim(context.WithoutCancel(ctx), request, believed, c)
	}
	if s.p.w.opts.Broken == PublishBeforeSync {
		return s.claimLater(request, c, claim)
	}
	r, err := through(ctx, s.p, "claim", true, claim)
	if err != nil && s.p.w.opts.Broken == PublishUnknownClaim && !s.p.dead.Load() {
		return s.pretend(request, c), nil
	}
	return r, err
}

func (s *storePort) Apply(ctx context.Context, request string, believed int, e receipt.Event) (receipt.Receipt, error) {
	if s.p.w.opts.Broken == FailedAtDeadline && e.Name == receipt.EventLose {
		e.Name, e.To, e.Code = receipt.EventFinish, receipt.Failed, problem.StateFailed
	}
	r, err := through(ctx, s.p, "apply "+string(e.To), true, func() (receipt.Receipt, error) {
		return s.p.w.store.Apply(context.WithoutCancel(ctx), request, believed, e)
	})
	if s.p.w.opts.Broken == DebtWrittenOff && err == nil && e.Name == receipt.EventSettle {
		_ = s.p.w.store.Delivered(ctx, request)
	}
	return r, err
}

func (s *storePort) Witness(ctx context.Context, v receipt.Witness) error {
	_, err := through(ctx, s.p, "witness", true, func() (nothing, error) {
		return nothing{}, s.p.w.store.Witness(context.WithoutCancel(ctx), v)
	})
	return err
}

func (s *storePort) Adopt(ctx context.Context, t receipt.Target) error {
	_, err := through(ctx, s.p, "adopt", true, func() (nothing, error) {
		return nothing{}, s.p.w.store.Adopt(context.WithoutCancel(ctx), t)
	})
	return err
}

func (s *storePort) Lines(ctx context.Context, target string) (receipt.Lines, error) {
	return through(ctx, s.p, "lines", false, func() (receipt.Lines, error) { return s.p.w.store.Lines(ctx, target) })
}

func (s *storePort) Told(ctx context.Context, told receipt.Told) error {
	_, err := through(ctx, s.p, "told", true, func() (nothing, error) {
		return nothing{}, s.p.w.store.Told(context.WithoutCancel(ctx), told)
	})
	return err
}

func (s *storePort) Forgotten(ctx context.Context, request, ledger string) (bool, error) {
	return through(ctx, s.p, "forgotten", false, func() (bool, error) { return s.p.w.store.Forgotten(ctx, request, ledger) })
}

func (s *storePort) Witnesses(ctx context.Context, request string) ([]receipt.Witness, error) {
	return through(ctx, s.p, "witnesses", false, func() ([]receipt.Witness, error) {
		return s.p.w.store.Witnesses(request), nil
	})
}

func (s *storePort) Settlement(ctx context.Context, request string) (*receipt.Settlement, error) {
	return through(ctx, s.p, "settlement", false, func() (*receipt.Settlement, error) {
		return s.p.w.store.Settlement(ctx, request)
	})
}

func (s *storePort) Owed(ctx context.Context, target, instance string) ([]receipt.Debt, error) {
	return through(ctx, s.p, "owed", false, func() ([]receipt.Debt, error) {
		return s.p.w.store.Owed(ctx, target, instance)
	})
}

func (s *storePort) Delivered(ctx context.Context, request string) error {
	_, err := through(ctx, s.p, "delivered", true, func() (nothing, error) {
		return nothing{}, s.p.w.store.Delivered(context.WithoutCancel(ctx), request)
	})
	return err
}

func (s *storePort) FromLedger(ctx context.Context, rec receipt.Record) (receipt.Receipt, error) {
	if s.p.w.opts.Broken == RecordForgotten {
		return receipt.Receipt{Binding: receipt.Binding{Request: rec.Request}, State: receipt.Refused}, nil
	}
	return through(ctx, s.p, "from ledger", true, func() (receipt.Receipt, error) {
		return s.p.w.store.FromLedger(context.WithoutCancel(ctx), rec)
	})
}
