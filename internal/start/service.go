package start

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/fault"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/state"
)

// Store is what this package needs of the receipts.
type Store interface {
	// Bind decides and writes in one transaction; see receipt.Decide for its
	// errors. NotWritable means that nothing is known to be stored: the caller
	// repeats its UUID.
	Bind(ctx context.Context, b receipt.Binding, source, canonical []byte) (receipt.Bound, error)
	// Lookup gives UnknownRequest for a request that isn't here.
	Lookup(ctx context.Context, request string) (receipt.Bound, error)
}

// Config of a Service. Bound is told of every receipt that may need work.
// Joined says whether answers can be learned now.
type Config struct {
	Store  Store
	Now    func() time.Time
	Bound  func(receipt.Receipt)
	Joined func() bool
	Logger hclog.Logger
}

// Service is the use case. It is safe for concurrent use.
type Service struct {
	cfg     Config
	changes *changes
}

// New makes a Service.
func New(cfg Config) *Service { return &Service{cfg: cfg, changes: newChanges()} }

// CustomStart binds the canonical payload to the request before anything is
// done with it (A13), or finds what the request is bound to already.
func (s *Service) CustomStart(ctx context.Context, q CustomRequest) (Answer, error) {
	doc, refused := state.Parse(q.Source)
	if len(refused) > 0 {
		return Answer{}, &SourceRefusedError{Errors: refused}
	}
	now := s.cfg.Now()
	b := receipt.Binding{
		Request: q.Request,
		Body: receipt.Body{
			Target: q.Target, Instance: q.Instance, Profile: receipt.Custom, Digest: doc.Digest(),
			Revision: q.Revision, Previous: q.Previous, Again: q.Again,
		},
		Requester: q.Requester, AcceptUntil: q.AcceptUntil, Claimed: q.Digest,
		Declared: doc.Declared(), AcceptedAt: now,
	}
	if !s.cfg.Joined() {
		return s.whileDeaf(ctx, b)
	}
	step := fault.StepBind.On(q.Target)
	fault.Before(step)
	bound, err := s.cfg.Store.Bind(ctx, b, q.Source, doc.Canonical())
	fault.After(step)
	err = fault.Told(step, err)
	if err != nil {
		return Answer{}, err
	}
	s.cfg.Bound(bound.Execution)
	return s.answer(bound), nil
}

// whileDeaf answers a known request as always, and takes no new one: its
// outcome couldn't be learned.
func (s *Service) whileDeaf(ctx context.Context, b receipt.Binding) (Answer, error) {
	bound, err := s.cfg.Store.Lookup(ctx, b.Request)
	switch {
	case problem.CodeOf(err) == problem.UnknownRequest:
		return Answer{}, problem.New(problem.Deaf, "Salt's event bus can't be heard, so no start is taken").
			WithHint("nothing was stored; repeat the same request later")
	case err != nil:
		return Answer{}, err
	}
	known := receipt.Known{Body: bound.Body, Execution: bound.Execution}
	if _, err := receipt.Decide(b, receipt.Facts{Known: &known}, s.cfg.Now()); err != nil {
		return Answer{}, err
	}
	s.remind(bound)
	return s.answer(bound), nil
}

// remind tells of a receipt that waits. Where its first call was told that the
// store failed, and it was stored all the same, nobody has told of it yet.
func (s *Service) remind(b receipt.Bound) {
	if b.Execution.State == receipt.Queued {
		s.cfg.Bound(b.Execution)
	}
}

// CustomStatus tells what became of a request. With a wait it answers as soon
// as the receipt changes, or when the wait is over.
func (s *Service) CustomStatus(ctx context.Context, request string, wait time.Duration) (Answer, error) {
	bound, err := s.cfg.Store.Lookup(ctx, request)
	if err != nil {
		return Answer{}, err
	}
	s.remind(bound)
	if wait <= 0 || bound.Execution.State.Terminal() {
		return s.answer(bound), nil
	}
	changed, stop := s.changes.watch(bound.Execution.Request)
	defer stop()
	// It may have changed between the first look and the watch.
	if again, err := s.cfg.Store.Lookup(ctx, request); err != nil || again.Execution.Seq != bound.Execution.Seq {
		return s.answer(again), err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
	bound, err = s.cfg.Store.Lookup(ctx, request)
	return s.answer(bound), err
}

// StateValidate checks a source and executes nothing (A1).
func (s *Service) StateValidate(_ context.Context, source []byte) Validation {
	doc, refused := state.Parse(source)
	if len(refused) > 0 {
		return Validation{Errors: refused}
	}
	return Validation{OK: true, Digest: doc.Digest(), States: doc.Declared(), Warnings: doc.Warnings()}
}

// Changed wakes up whoever waits for a receipt. It never blocks.
func (s *Service) Changed(r receipt.Receipt) { s.changes.tell(r.Request) }

func (s *Service) answer(b receipt.Bound) Answer {
	r := b.Execution
	return Answer{
		Request: b.Request, Reused: b.Reused, Revision: b.Body.Revision, Execution: r, Status: r.State.Status(), Hint: hint(r),
		Blocked: r.BlockedBy, PollAfter: PollAfter(r, b.Request, s.cfg.Now()),
	}
}

// hint explains a code to people. It is made of fixed sentences.
func hint(r receipt.Receipt) string {
	if r.Code != problem.ExecutorSilent && r.Code != problem.TargetUnknown {
		return ""
	}
	return exchange.Hint(exchange.Silence(r.Detail))
}
