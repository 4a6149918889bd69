// Package reconcile is the use case behind `masterd evidence` and `masterd
// reconcile`: an operator has a target asked again, and, where nobody can prove
// what became of a request, records what he found out (A21 to A23). It also
// carries that word to the target's own ledger, and makes receipts of records
// that a ledger has and the database doesn't know.
package reconcile

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

const (
	// lookWait is how long an operator waits for the target's turn and answer.
	lookWait = 45 * time.Second
	// settleWait is how long the target's ledger may take to record a settlement.
	settleWait = 10 * time.Second
	// recordWait is how long the question about an unknown record may take.
	recordWait = 20 * time.Second
)

// Store is what this package needs of the receipts.
type Store interface {
	Lookup(ctx context.Context, request string) (receipt.Bound, error)
	Apply(ctx context.Context, request string, believedSeq int, e receipt.Event) (receipt.Receipt, error)
	Witness(ctx context.Context, w receipt.Witness) error
	Witnesses(ctx context.Context, request string) ([]receipt.Witness, error)
	Target(ctx context.Context, id string) (*receipt.Target, error)
	Settlement(ctx context.Context, request string) (*receipt.Settlement, error)
	Owed(ctx context.Context, target, instance string) ([]receipt.Debt, error)
	Delivered(ctx context.Context, request string) error
	FromLedger(ctx context.Context, r receipt.Record) (receipt.Receipt, error)
}

// Exchange is how a target is asked and told.
type Exchange interface {
	Key(ctx context.Context, target string) (pem, fingerprint string, err error)
	Ask(ctx context.Context, q exchange.Question, pem string) exchange.Reply
}

// Config of a Service.
type Config struct {
	Store    Store
	Exchange Exchange
	// Look asks about a receipt when it is the target's turn, and returns once
	// the answer is kept and judged.
	Look func(ctx context.Context, request string) (receipt.Receipt, exchange.Reply, error)
	// Moved is told of every receipt that was changed or made here. It must not
	// block.
	Moved  func(receipt.Receipt)
	Joined func() bool
	Now    func() time.Time
	Logger hclog.Logger
}

// Service is safe for concurrent use.
type Service struct{ cfg Config }

// New makes a Service.
func New(cfg Config) *Service { return &Service{cfg: cfg} }

// Finding is what asking again has brought.
type Finding struct {
	Receipt receipt.Receipt
	Answer  *message.Answer // nil: nobody answered
	Silence exchange.Silence
	AskedAt time.Time
}

// Ask has the target asked about a request now, whatever its receipt says. What
// it proves is written into the receipt as always.
func (s *Service) Ask(ctx context.Context, request string) (Finding, error) {
	if !s.cfg.Joined() {
		return Finding{}, deaf()
	}
	bound, err := s.cfg.Store.Lookup(ctx, request)
	if err != nil {
		return Finding{}, err
	}
	return s.ask(ctx, bound.Execution.Request)
}

func deaf() error {
	return problem.New(problem.Deaf, "Salt's event bus can't be heard, so no answer can be learned").
		WithHint("nothing was asked or changed; is salt-master running?")
}

func (s *Service) ask(ctx context.Context, request string) (Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	r, reply, err := s.cfg.Look(ctx, request)
	if errors.Is(err, context.DeadlineExceeded) {
		return Finding{}, problem.Wrap(problem.ExecutorSilent, err, "the target's turn didn't come in %s", lookWait).
			WithHint("another request is being prepared or asked about there; try again")
	}
	return Finding{Receipt: r, Answer: reply.Answer, Silence: reply.Silence, AskedAt: reply.AskedAt}, err
}

// Order is an operator's settlement, before anything is checked.
type Order struct {
	Request    string
	Outcome    receipt.State // Succeeded or Failed
	Reason     string
	Observed   string
	Confirm    string // the target's name, typed again
	ServerGone bool
	By         string // by peer credentials
}

// How says who said the outcome of a receipt in the end.
type How string

// The ways.
const (
	ByEvidence How = "evidence" // the ledger proved it; the operator's word wasn't needed
	ByOperator How = "operator" // just now
	Already    How = "already"  // an operator had said the same before
)

// Report is what came of a settlement.
type Report struct {
	Finding    Finding
	How        How
	Settlement *receipt.Settlement // nil where the ledger proved the outcome
}

// Reconcile settles an uncertain receipt, unless the target's ledger proves
// what became of it or says that it still runs. The ledger is always asked
// first, but where its server is gone.
func (s *Service) Reconcile(ctx context.Context, o Order) (Report, error) {
	bound, err := s.cfg.Store.Lookup(ctx, o.Request)
	if err != nil {
		return Report{}, err
	}
	r := bound.Execution
	o.Request = r.Request
	if r.State.Terminal() {
		return s.ended(ctx, r, o)
	}
	finding := Finding{Receipt: r}
	if o.ServerGone {
		err = s.checkReplaced(ctx, r)
	} else if finding, err = s.askFirst(ctx, r); err == nil {
		r = finding.Receipt
		if r.State.Terminal() {
			return proved(finding, o)
		}
		err = s.checkIdle(ctx, finding)
	}
	if err != nil {
		return Report{}, err
	}
	if r.State != receipt.Uncertain {
		return Report{}, problem.New(problem.NotUncertain, "request %s is %s, not uncertain", r.Request, r.State.Status()).
			WithHint("masterd itself still looks for its outcome; masterd evidence %s asks again", r.Request)
	}
	if o.Confirm != r.Body.Target {
		return Report{}, problem.New(problem.NotConfirmed, "this settles a run on %s by hand", r.Body.Target).
			WithHint("confirm it with the target's name: --confirm %s", r.Body.Target)
	}
	return s.settle(ctx, finding, r, o)
}

func (s *Service) askFirst(ctx context.Context, r receipt.Receipt) (Finding, error) {
	if !s.cfg.Joined() {
		return Finding{}, deaf()
	}
	return s.ask(ctx, r.Request)
}

// ended: there is nothing to settle. The same settlement again is no error, and
// another try to tell the ledger.
func (s *Service) ended(ctx context.Context, r receipt.Receipt, o Order) (Report, error) {
	report := Report{Finding: Finding{Receipt: r}, How: ByEvidence}
	if r.State != o.Outcome || r.State == receipt.Refused {
		return Report{}, problem.New(problem.NotUncertain, "request %s is %s already (%s)", r.Request, r.State.Status(), wordOf(r)).
			WithHint("it doesn't quarantine its target; masterd receipts show %s tells who said so", r.Request)
	}
	if !r.Settled {
		return report, nil
	}
	var err error
	if report.Settlement, err = s.cfg.Store.Settlement(ctx, r.Request); err != nil || report.Settlement == nil {
		return Report{}, errors.Join(err, problem.New(problem.Internal, "request %s is settled, and nothing says by whom", r.Request))
	}
	report.How = Already
	if report.Settlement.Owed() && s.cfg.Joined() {
		err = s.deliver(ctx, r, report.Settlement)
	}
	return report, err
}

func wordOf(r receipt.Receipt) string {
	switch {
	case r.Settled:
		return "settled by an operator"
	case r.Code == "":
		return "proved"
	}
	return string(r.Code)
}

// proved: the ledger has just said what became of it. That stands, whatever
// the operator says.
func proved(f Finding, o Order) (Report, error) {
	r := f.Receipt
	if r.State != o.Outcome {
		return Report{}, problem.New(problem.OutcomeProved, "the ledger of %s proves that request %s %s (%s); that is recorded now",
			r.Body.Target, r.Request, r.State, wordOf(r)).
			WithHint("the target isn't quarantined by it any more; masterd receipts show %s", r.Request)
	}
	return Report{Finding: f, How: ByEvidence}, nil
}

// checkIdle refuses while the run, or something it left, may still work.
func (s *Service) checkIdle(ctx context.Context, f Finding) error {
	r := f.Receipt
	running := func(what string) *problem.Error {
		return problem.New(problem.JobRunning, "request %s can't be settled: %s", r.Request, what)
	}
	if a := f.Answer; a != nil {
		switch a.Result { //nolint:exhaustive // the others don't run
		case message.Running:
			if a.Survivors > 0 {
				return running("processes that it started still run").
					WithHint("%d of them carry ODUFLOW_REQUEST=%s in their environment on %s: let them end, or end them, then ask again",
						a.Survivors, r.Request, r.Body.Target)
			}
			return running("it still runs").WithHint("wait, then: masterd evidence %s", r.Request)
		case message.NotStartedYet:
			return running("it may still start").WithHint("in about two minutes it can't any more; then: masterd evidence %s", r.Request)
		case message.Refused: // it says nothing of the request: see below
		default:
			return nil
		}
	}
	// Nobody says anything of it. What the ledger said last still counts where it
	// said that something runs.
	last, err := s.lastWord(ctx, r.Request)
	if err != nil {
		return err
	}
	if last == message.Running && f.Answer != nil {
		return running("its executor said last that it runs, and now refuses to say anything ("+string(f.Answer.Code)+")").
			WithHint("find out what became of the server, then: masterd adopt %s; that lifts no quarantine. Then repeat this", r.Body.Target)
	}
	if last == message.Running {
		return running("its executor said last that it runs, and doesn't answer now").
			WithHint("%s. Once it answers again, repeat this. Is the server destroyed: adopt its successor, then --server-gone",
				exchange.Hint(f.Silence))
	}
	return nil
}

// lastWord is the newest authentic statement about a record of the request.
func (s *Service) lastWord(ctx context.Context, request string) (message.Result, error) {
	all, err := s.cfg.Store.Witnesses(ctx, request)
	for _, w := range slices.Backward(all) {
		if result := message.Result(w.Result); result != message.Refused && result != message.Disregarded {
			return result, err
		}
	}
	return "", err
}

// checkReplaced: the server behind the receipt was destroyed, and an operator
// has adopted another under its name.
func (s *Service) checkReplaced(ctx context.Context, r receipt.Receipt) error {
	t, err := s.cfg.Store.Target(ctx, r.Body.Target)
	if err != nil {
		return err
	}
	if t == nil || t.Instance == r.Body.Instance {
		return problem.New(problem.NotReplaced, "%s is still recorded as instance %s, on which request %s was started",
			r.Body.Target, r.Body.Instance, r.Request).
			WithHint("--server-gone is for a destroyed server: first adopt the new one under this name, with its own instance UUID")
	}
	return nil
}

func (s *Service) settle(ctx context.Context, f Finding, r receipt.Receipt, o Order) (Report, error) {
	settlement := receipt.Settlement{
		Request: r.Request, Outcome: o.Outcome, Reason: o.Reason, Observed: o.Observed,
		ServerGone: o.ServerGone, By: o.By, At: s.cfg.Now(),
	}
	// An operator who goes away must not leave it open whether it is written.
	settled, err := s.cfg.Store.Apply(context.WithoutCancel(ctx), r.Request, r.Seq, receipt.Settle(settlement))
	if err != nil {
		return Report{}, s.lost(ctx, r, err)
	}
	s.cfg.Logger.Warn("receipt settled by an operator", "request", r.Request, "target", r.Body.Target,
		"outcome", o.Outcome, "by", o.By, "server_gone", o.ServerGone)
	s.cfg.Moved(settled)
	f.Receipt = settled
	report := Report{Finding: f, How: ByOperator, Settlement: &settlement}
	if settlement.Owed() {
		// The receipt is settled whatever comes of this: what can't be delivered
		// now travels with the next prepare.
		err := s.deliver(context.WithoutCancel(ctx), settled, &settlement)
		if err != nil {
			s.cfg.Logger.Warn("the target's ledger isn't told yet", "request", r.Request, "target", r.Body.Target, "error", err)
		}
	}
	return report, nil
}

// lost tells a receipt that changed at the last moment from other failures.
func (s *Service) lost(ctx context.Context, r receipt.Receipt, err error) error {
	now, lookErr := s.cfg.Store.Lookup(context.WithoutCancel(ctx), r.Request)
	if lookErr != nil {
		unknown := r
		unknown.Seq++ // the lane reads it itself, as soon as it can be read
		s.cfg.Moved(unknown)
		return err
	}
	if now.Execution.Seq == r.Seq {
		return err
	}
	s.cfg.Moved(now.Execution) // it may be our own write, of which the store told an error
	if now.Execution.Settled {
		return problem.Wrap(problem.NotUncertain, err, "request %s is settled as %s", r.Request, now.Execution.State.Status()).
			WithHint("who settled it, and whether its ledger knows: masterd receipts show %s", r.Request)
	}
	return problem.Wrap(problem.NotUncertain, err, "request %s has just become %s", r.Request, now.Execution.State.Status()).
		WithHint("nothing was settled; masterd receipts show %s", r.Request)
}
