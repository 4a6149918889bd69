package sim

import (
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// update writes the identity of an instance, as `masterd adopt` asks for it.
func (x *salt) update() (message.Answer, error) {
	return x.in("update", func(s ledgerSession) (message.Answer, error) {
		id, err := s.Identity()
		if err != nil {
			return message.Answer{}, err
		}
		if x.isOurs(id) && id.Instance == x.j.message.Instance {
			return message.Answer{Result: message.Updated, Ledger: id.Ledger, Instance: id.Instance}, nil
		}
		if busy, err := x.busy(s); err != nil || busy {
			return refused(problem.TargetBusy), err
		}
		if id, err = s.Adopt(x.j.message.Instance); err != nil {
			return message.Answer{}, err
		}
		return message.Answer{Result: message.Updated, Ledger: id.Ledger, Instance: id.Instance}, nil
	})
}

// busy says what forbids another identity: the lease is held, a ticket lives,
// or an unfinished record has survivors.
func (x *salt) busy(s ledgerSession) (bool, error) {
	if held, _ := x.m.held(); held {
		return true, nil
	}
	open, err := s.OpenRecords()
	if err != nil {
		return false, err
	}
	for _, r := range open {
		if lives, err := s.TicketLives(r); err != nil || lives {
			return lives, err
		}
		if !r.unfinished() {
			continue
		}
		if a, err := x.look(s, r); err != nil || a.Result == message.Running {
			return true, err
		}
	}
	return false, nil
}
