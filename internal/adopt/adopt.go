// Package adopt is the use case behind `masterd adopt`: an operator records a
// server that was configured before we came. The minion's executor writes its
// identity file; masterd pins key fingerprint, ledger id and machine. It is
// the only way past key_changed and ledger_changed, and lifts no quarantine.
package adopt

import (
	"context"
	"io"
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

// Config of a Service.
type Config struct {
	Store    Store
	Exchange Exchange
	Now      func() time.Time
	NewUUID  func(io.Reader) (string, error)
	Random   io.Reader
	Joined   func() bool
}

// Service is safe for concurrent use.
type Service struct{ cfg Config }

// New makes a Service.
func New(cfg Config) *Service { return &Service{cfg: cfg} }

// Adopt asks the minion to write its identity and records what it answers.
// Nothing is recorded unless an authentic answer came. It may be repeated.
func (s *Service) Adopt(ctx context.Context, target, instance, reason, by string) (receipt.Target, error) {
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
	pem, fingerprint, err := s.cfg.Exchange.Key(ctx, target)
	if err != nil {
		return receipt.Target{}, err
	}
	reply := s.cfg.Exchange.Ask(ctx, exchange.Question{
		Kind: message.Update, Target: target, Instance: instance, Request: request,
		Body: message.Body{Update: message.UpdateIdentity},
	}, pem)
	if err := judge(reply, target, instance); err != nil {
		return receipt.Target{}, err
	}
	t := receipt.Target{
		ID: target, Instance: instance, Fingerprint: fingerprint,
		Ledger: reply.Answer.Ledger, Machine: reply.Answer.Machine,
		AdoptedAt: s.cfg.Now(), AdoptedBy: by, Reason: reason,
	}
	return t, s.cfg.Store.Adopt(context.WithoutCancel(ctx), t)
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
