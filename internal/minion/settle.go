package minion

import (
	"context"

	"github.com/oduflow/oduflow-salt/internal/ledger"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// settle closes a started record with what an operator found out.
func (c *call) settle(ctx context.Context) (message.Answer, error) {
	s, err := c.session(ctx)
	if err != nil {
		return refused(ledgerCode(err)), nil
	}
	defer s.Close()
	id, err := s.Identity()
	if err != nil {
		return refused(ledgerCode(err)), nil
	}
	if !c.isOurs(id) {
		return refused(problem.LedgerChanged), nil
	}
	a, err := c.settleIn(s, message.Settlement{Request: c.m.Request, Digest: c.m.Digest, Outcome: c.body.Outcome}, c.m.Instance)
	if err != nil {
		c.Log.Warn("a settlement is refused", "request", c.m.Request, "code", ledgerCode(err), "error", err)
		a = refused(ledgerCode(err))
	}
	if a.Ledger == "" {
		a.Ledger, a.Instance = id.Ledger, id.Instance
	}
	return a, nil
}

// settleIn settles one record, of any instance where instance is "". What the
// ledger knows by itself is answered instead and stays as it is.
func (c *call) settleIn(s *ledger.Session, w message.Settlement, instance string) (message.Answer, error) {
	if !w.Outcome.Valid() {
		return refused(problem.RequestConflict), nil
	}
	r, err := s.Record(w.Request)
	if err != nil {
		return message.Answer{}, err
	}
	switch {
	case r == nil:
		return message.Answer{Result: message.Absent}, nil
	case r.Digest != w.Digest:
		return about(r, refused(problem.RequestConflict)), nil
	case instance != "" && r.Instance != instance:
		return about(r, refused(problem.InstanceDiffers)), nil
	}
	a, err := c.look(s, r)
	if err != nil || a.Result != message.Interrupted {
		return a, err
	}
	// Since the look somebody may have taken the lease. Whoever has it now keeps
	// the record from being settled; nobody can take it while this probe lasts.
	lease, err := c.ledger.ProbeLease()
	if err != nil {
		return message.Answer{}, err
	}
	defer lease.Release()
	if lease.Held {
		return about(r, message.Answer{Result: message.Running}), nil
	}
	err = s.Settle(r, w.Outcome, lease)
	if err != nil && !ledger.IsTaken(err) {
		return message.Answer{}, err
	}
	return c.lookAgain(s, r)
}

// owed does what masterd couldn't deliver before, and says what came of it.
func (c *call) owed(s *ledger.Session) *message.SettlementStates {
	if len(c.body.Owed) == 0 {
		return nil
	}
	states := message.SettlementStates{}
	for _, w := range c.body.Owed[:min(len(c.body.Owed), message.MaxOwed)] {
		a, err := c.settleIn(s, w, "")
		if err != nil {
			c.Log.Warn("an owed settlement is refused", "request", w.Request, "code", ledgerCode(err), "error", err)
			a = refused(ledgerCode(err))
		}
		states = append(states, message.SettlementState{Request: w.Request, Result: a.Result, Code: a.Code, Outcome: a.Outcome})
	}
	return &states
}
