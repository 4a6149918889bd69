// Package adopt is the use case behind `masterd adopt`: an operator records a
// server that was configured before we came. The minion's executor writes its
// identity file; masterd pins key fingerprint, ledger id and machine. It is
// the only way past key_changed and ledger_changed, and lifts no quarantine. An
// instance is one server, so no second target is adopted as it, unless the
// server was renamed.
package adopt

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// answerWait is how long the minion may take.
const answerWait = 20 * time.Second

// Store is what adopt needs of the receipts.
type Store interface {
	Adopt(ctx context.Context, t receipt.Target) error
}

// Exchange is how the minion is asked.
type Exchange interface {
	Key(ctx context.Context, target string) (pem, fingerprint string, err error)
	Ask(ctx context.Context, q exchange.Question, pem string) exchange.Reply
}

// Holders says who is recorded as which instance, and what is still open there.
type Holders interface {
	// Holder gives the target that an instance is recorded for, nil for none.
	Holder(ctx context.Context, instance string) (*receipt.Target, error)
	Unresolved(ctx context.Context) ([]receipt.Receipt, error)
	Owed(ctx context.Context, target, instance string) ([]receipt.Debt, error)
}

// Ledgers is what the targets' ledgers have told of their generations. An adoption
// begins that anew, and what its own answer tells is compared with what was known.
type Ledgers interface {
	Lines(ctx context.Context, target string) (receipt.Lines, error)
	Told(ctx context.Context, told receipt.Told) error
}

// Config of a Service.
type Config struct {
	Store    Store
	Ledgers  Ledgers // nil: nothing is compared
	Holders  Holders // nil: instances aren't compared
	Exchange Exchange
	Now      func() time.Time
	NewUUID  func(io.Reader) (string, error)
	Random   io.Reader
	Joined   func() bool
}

// Service is safe for concurrent use.
type Service struct {
	cfg Config
	mu  sync.Mutex // held from the last look at an instance's holder until it is recorded
}

// New makes a Service.
func New(cfg Config) *Service { return &Service{cfg: cfg} }

// Adopt asks the minion to write its identity and records what it answers.
// Nothing is recorded unless an authentic answer came. It may be repeated. An
// instance that is recorded for another target is instance_taken.
func (s *Service) Adopt(ctx context.Context, target, instance, reason, by string) (receipt.Target, error) {
	return s.Replace(ctx, target, "", instance, reason, by)
}

// Replace is Adopt for a server whose minion was renamed from old to target. It
// is refused while anything is still of old: an accepted key, a receipt without
// an outcome, or a settlement that its ledger doesn't know of.
func (s *Service) Replace(ctx context.Context, target, old, instance, reason, by string) (receipt.Target, error) {
	if !s.cfg.Joined() {
		return receipt.Target{}, problem.New(problem.Deaf, "Salt's event bus can't be heard, so the minion's answer couldn't be learned").
			WithHint("nothing was recorded; is salt-master running?")
	}
	request, err := s.cfg.NewUUID(s.cfg.Random)
	if err != nil {
		return receipt.Target{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	// Before the minion writes anything.
	renamed, err := s.checkHolder(ctx, target, old, instance)
	if err == nil && renamed {
		err = s.checkGone(ctx, old, instance)
	}
	if err != nil {
		return receipt.Target{}, err
	}
	pem, fingerprint, err := s.cfg.Exchange.Key(ctx, target)
	if err != nil {
		return receipt.Target{}, err
	}
	var lines receipt.Lines
	if s.cfg.Ledgers != nil {
		if lines, err = s.cfg.Ledgers.Lines(ctx, target); err != nil {
			return receipt.Target{}, err
		}
	}
	reply := s.cfg.Exchange.Ask(ctx, exchange.Question{
		Kind: message.Update, Target: target, Instance: instance, Request: request,
		Body: message.Body{Update: message.UpdateIdentity}, Lines: lines,
	}, pem)
	if err := judge(reply, target, instance); err != nil {
		return receipt.Target{}, err
	}
	t := receipt.Target{
		ID: target, Instance: instance, Fingerprint: fingerprint,
		Ledger: reply.Answer.Ledger, Machine: reply.Answer.Machine, Generation: reply.Answer.Generation,
		AdoptedAt: s.cfg.Now(), AdoptedBy: by, Reason: reason,
	}
	ctx = context.WithoutCancel(ctx) // the answer came: whoever called may be gone
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.checkHolder(ctx, target, old, instance); err != nil { // another adoption may have been quicker
		return receipt.Target{}, err
	}
	// Where this is a ledger that was put back, what was bound before stays in doubt.
	if told := lines.Tell(t.Ledger, t.Generation); told.News() {
		if err := s.cfg.Ledgers.Told(ctx, told); err != nil {
			return receipt.Target{}, err
		}
	}
	return t, s.cfg.Store.Adopt(ctx, t)
}

// checkHolder refuses an instance that is recorded for another target. Where
// that one is old, the target's former name, renamed is true.
func (s *Service) checkHolder(ctx context.Context, target, old, instance string) (renamed bool, err error) {
	if s.cfg.Holders == nil {
		return false, nil
	}
	holder, err := s.cfg.Holders.Holder(ctx, instance)
	switch {
	case err != nil:
		return false, err
	case holder != nil && holder.ID == target: // it is repeated
		return false, nil
	case holder == nil && old == "":
		return false, nil
	case holder == nil:
		return false, problem.New(problem.NotReplaced, "no target is recorded as instance %s, so there is none to replace", instance).
			WithHint("leave --replaces out, or check the UUID")
	case holder.ID != old:
		return false, problem.New(problem.InstanceTaken, "instance %s is recorded for %s, since %s", instance, holder.ID,
			holder.AdoptedAt.UTC().Format(time.RFC3339)).
			WithHint("an instance is one server. A clone, or a new server, takes a UUID of its own. Was the minion %s renamed to %s: "+
				"delete the old key (salt-key -d %s), then adopt with --replaces %s", holder.ID, target, holder.ID, holder.ID)
	}
	return true, nil
}

// checkGone refuses while somebody may answer to a former name, or something
// is open under it: a new name lifts no quarantine, and what a ledger is told
// travels under the name that the request had.
func (s *Service) checkGone(ctx context.Context, old, instance string) error {
	open, err := s.cfg.Holders.Unresolved(ctx)
	if err != nil {
		return err
	}
	for _, r := range open {
		if r.Body.Target != old {
			continue
		}
		if r.State == receipt.Uncertain {
			return problem.New(problem.TargetQuarantined, "request %s left %s with an unknown outcome", r.Request, old).
				WithHint("settle it first, under the old name: masterd evidence %s", r.Request)
		}
		return problem.New(problem.TargetBusy, "request %s on %s hasn't ended", r.Request, old).
			WithHint("wait for its end, under the old name: masterd receipts show %s", r.Request)
	}
	owed, err := s.cfg.Holders.Owed(ctx, old, instance)
	if err != nil {
		return err
	}
	if len(owed) > 0 {
		return problem.New(problem.RecordUnfinished, "the ledger of %s isn't told yet that request %s is settled", old, owed[0].Request).
			WithHint("let it answer under the old name once more, and repeat the settlement: masterd reconcile %s", owed[0].Request)
	}
	_, _, err = s.cfg.Exchange.Key(ctx, old)
	switch {
	case problem.CodeOf(err) == problem.TargetUnknown:
		return nil
	case err != nil:
		return err
	}
	return problem.New(problem.InstanceTaken, "the master still accepts a key for %s", old).
		WithHint("where no server answers to that name any more: salt-key -d %s, then repeat this", old)
}

func judge(reply exchange.Reply, target, instance string) error {
	a := reply.Answer
	switch {
	case a == nil && reply.Silence == exchange.SilenceUnpublished:
		return problem.New(problem.TargetUnknown, "the Salt master didn't publish to %q", target)
	case a == nil:
		return problem.New(problem.ExecutorSilent, "the executor of %q didn't answer", target).
			WithHint("%s", exchange.Hint(reply.Silence))
	case a.Protocol < message.MinProtocol:
		return problem.New(problem.ExecutorOutdated, "the executor of %q is too old (%s)", target, a.Executor)
	case a.Result == message.Refused:
		code := a.Code
		if problem.RowOf(code).Kind != problem.KindRefused { // of no list of ours
			code = problem.ExecutorOutdated
		}
		return problem.New(code, "the executor of %q refused to take an identity", target).
			WithHint("nothing was recorded; try again when no run is prepared or under way there")
	case a.Result != message.Updated || a.Instance != instance || a.Ledger == "" || a.Machine == "":
		return problem.New(problem.ExecutorOutdated, "the executor of %q gave an answer that can't be used", target)
	}
	return nil
}
