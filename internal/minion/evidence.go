package minion

import (
	"context"

	"github.com/oduflow/oduflow-salt/internal/ledger"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// evidence answers what the ledger proves about a request. It may be repeated.
// It gives a prepared record up where masterd asks for it and the ticket is dead.
func (c *call) evidence(ctx context.Context) (message.Answer, error) {
	s, err := c.session(ctx)
	if err != nil {
		return message.Answer{}, err
	}
	defer s.Close()
	id, err := s.Identity()
	if err != nil {
		return message.Answer{}, err
	}
	if !c.isOurs(id) {
		return refused(problem.LedgerChanged), nil
	}
	c.recall(id)
	r, err := s.Record(c.m.Request)
	if err != nil {
		return message.Answer{}, err
	}
	if r == nil {
		return message.Answer{Result: message.Absent, Ledger: id.Ledger, Instance: id.Instance}, nil
	}
	if r.State == ledger.Prepared && c.body.Fence {
		if a, err := c.giveUp(s, r); err != nil || a.Result != "" {
			return a, err
		}
	}
	a, err := c.look(s, r)
	if (a.Result == message.Fenced || a.Result == message.NeverBegan) && c.isOfAnother(r) {
		a.Result, a.Code = message.Lapsed, ""
	}
	return a, err
}

// isOfAnother says that a record never had the ticket that was claimed. It is not
// the one that is asked about: it is a copy from before, or another minion's, and
// what never happened to it may have happened to the other one. A question without
// a ticket comes from a masterd whose database was restored: it is about whatever
// record there is.
func (c *call) isOfAnother(r *ledger.Record) bool {
	return c.m.Ticket != "" && !r.Knew(c.m.Ticket)
}

// giveUp gives a prepared record up whose ticket is dead, and answers nothing: the
// record says it then.
//
// Of a record that isn't the one that is asked about, as every one may be in a ledger
// that was put back, nothing is concluded but that it can't start any more: else an
// operator would wait for that for ever.
func (c *call) giveUp(s *ledger.Session, r *ledger.Record) (message.Answer, error) {
	lives, err := s.TicketLives(r)
	if err != nil || lives {
		return message.Answer{}, err
	}
	if c.behind || c.isOfAnother(r) {
		return about(r, message.Answer{Result: message.Lapsed}), nil
	}
	return message.Answer{}, s.GiveUp(r, problem.NeverStarted)
}

// update writes what the ledger holds about the minion itself.
func (c *call) update(ctx context.Context) (message.Answer, error) {
	s, err := c.session(ctx)
	if err != nil {
		return refused(ledgerCode(err)), nil
	}
	defer s.Close()
	a, err := c.updateIn(s)
	if err != nil {
		c.Log.Warn("an update is refused", "code", ledgerCode(err), "error", err)
		a = refused(ledgerCode(err))
	}
	if id, err := s.Identity(); err == nil && id != nil {
		a.Ledger, a.Instance = id.Ledger, id.Instance
	}
	return a, nil
}

func (c *call) updateIn(s *ledger.Session) (message.Answer, error) {
	if c.body.Update != message.UpdateIdentity {
		return refused(problem.ExecutorOutdated), nil
	}
	id, err := s.Identity()
	if err != nil {
		return message.Answer{}, err
	}
	c.recall(id)
	if c.isOurs(id) && id.Instance == c.m.Instance {
		return message.Answer{Result: message.Updated}, nil // nothing changes
	}
	if a, err := c.quiet(s); err != nil || a.Result != "" {
		return a, err
	}
	if _, err := s.Adopt(c.m.Instance); err != nil {
		return message.Answer{}, err
	}
	return message.Answer{Result: message.Updated}, nil
}

// quiet says what forbids an update: the lease is held, a ticket lives, or an
// unfinished record has survivors. An interrupted record alone doesn't.
func (c *call) quiet(s *ledger.Session) (message.Answer, error) {
	lease, err := c.ledger.ProbeLease()
	if err != nil {
		return message.Answer{}, err
	}
	lease.Release()
	if lease.Held {
		return message.Answer{Result: message.Refused, Code: problem.TargetBusy, Unfinished: lease.Holder}, nil
	}
	open, err := s.OpenRecords()
	if err != nil {
		return message.Answer{}, err
	}
	for _, r := range open {
		lives, err := s.TicketLives(r)
		if err != nil {
			return message.Answer{}, err
		}
		survivors := 0
		if r.Unfinished() {
			found, err := c.look(s, r)
			if err != nil {
				return message.Answer{}, err
			}
			lives, survivors = found.Result == message.Running, found.Survivors
		}
		if lives {
			return message.Answer{
				Result: message.Refused, Code: problem.TargetBusy, Unfinished: r.Request, Survivors: survivors,
			}, nil
		}
	}
	return message.Answer{}, nil
}
