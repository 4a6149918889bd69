package sim

import (
	"github.com/oduflow/oduflow-salt/internal/ledger"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// settle closes a started record with what an operator found out.
func (x *salt) settle() (message.Answer, error) {
	return x.in("settle", func(s ledgerSession) (message.Answer, error) {
		q := x.j.message
		id, err := s.Identity()
		if err != nil {
			return refused(problem.LedgerUnwritable), nil
		}
		if !x.isOurs(id) {
			return refused(problem.LedgerChanged), nil
		}
		a, err := x.settleIn(s, message.Settlement{Request: q.Request, Digest: q.Digest, Outcome: x.j.body.Outcome}, q.Instance)
		if x.gone() && err != nil {
			return a, errGone
		}
		if err != nil {
			a = refused(problem.LedgerUnwritable)
		}
		if a.Ledger == "" {
			a.Ledger, a.Instance = id.Ledger, id.Instance
		}
		return a, nil
	})
}

// settleIn settles one record, of any instance where instance is "". What the
// ledger knows by itself is answered instead and stays.
func (x *salt) settleIn(s ledgerSession, word message.Settlement, instance string) (message.Answer, error) {
	r, err := s.Record(word.Request)
	switch {
	case err != nil:
		return message.Answer{}, err
	case r == nil:
		return message.Answer{Result: message.Absent}, nil
	case r.Digest != word.Digest:
		return about(r, refused(problem.RequestConflict)), nil
	case instance != "" && r.Instance != instance:
		return about(r, refused(problem.InstanceDiffers)), nil
	}
	if x.m.w.opts.Broken != SettlesWhatRuns || !r.unfinished() {
		if a, err := x.look(s, r); err != nil || a.Result != message.Interrupted {
			return a, err
		}
		if held, _ := x.m.held(); held {
			return about(r, message.Answer{Result: message.Running}), nil
		}
	}
	if !x.step("before " + string(ledger.Settled)) {
		return message.Answer{}, errGone
	}
	x.m.mustNotRun(word.Request)
	err = s.Settle(r, word.Outcome)
	if err == nil {
		x.m.w.note("%s: record of %s is settled: %s", x.m.name, requestName(r.Request), r.Outcome)
	}
	if !x.step("after "+string(ledger.Settled)) && err == nil {
		return message.Answer{}, errGone
	}
	if err != nil && !isTaken(err) {
		return message.Answer{}, err
	}
	if r, err = s.Record(word.Request); err != nil || r == nil {
		return message.Answer{}, err
	}
	return x.look(s, r)
}

// owed does what masterd couldn't deliver before, and says what came of it.
func (x *salt) owed(s ledgerSession) *message.SettlementStates {
	if len(x.j.body.Owed) == 0 {
		return nil
	}
	states := message.SettlementStates{}
	for _, word := range x.j.body.Owed[:min(len(x.j.body.Owed), message.MaxOwed)] {
		a, err := x.settleIn(s, word, "")
		if err != nil {
			a = refused(problem.LedgerUnwritable)
		}
		states = append(states, message.SettlementState{Request: word.Request, Result: a.Result, Code: a.Code, Outcome: a.Outcome})
	}
	return &states
}

// mustNotRun checks what a settlement of a record stands for.
func (m *minion) mustNotRun(request string) {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	for _, r := range m.w.runs[request] {
		if r.minion == m && r.state == running {
			m.w.violateLocked("settled while it runs: the ledger of %s settles %s", m.name, requestName(request))
		}
	}
}
