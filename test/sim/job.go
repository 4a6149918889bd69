package sim

import (
	"math/rand/v2"
	"time"

	"github.com/oduflow/oduflow-salt/internal/ledger"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// start runs a prepared request, once.
func (x *salt) start() (message.Answer, error) {
	if a, err := x.in("admit", x.admit); err != nil || a.Result != "" {
		return a, err
	}
	if !x.takeLease() {
		if x.gone() {
			return message.Answer{}, errGone
		}
		return x.in("fence locked", func(s ledgerSession) (message.Answer, error) {
			if a, err := x.admit(s); err != nil || a.Result != "" {
				return a, err
			}
			return x.fenceStart(s, problem.StartRefusedLocked)
		})
	}
	if a, err := x.in("begin", x.begin); err != nil || a.Result != "" {
		return a, err
	}
	if !x.step("convert") || !x.m.w.sleep(x.m.w.span("convert", 10*time.Millisecond, 300*time.Millisecond)) {
		return message.Answer{}, errGone
	}
	if x.m.w.opts.Broken == EffectBeforeBegun {
		r := x.m.w.effectBegins(x.m, x.j.message.Request, x.j.message.Ticket)
		defer x.m.w.effectEnds(r, aborted)
		if a, err := x.in("begun", x.begun); err != nil || a.Result != "" {
			return a, err
		}
		return x.effect(r)
	}
	if a, err := x.in("begun", x.begun); err != nil || a.Result != "" {
		return a, err
	}
	if !x.step("run") { // the shim runs only what it is told to
		return message.Answer{}, errGone
	}
	return x.effect(x.m.w.effectBegins(x.m, x.j.message.Request, x.j.message.Ticket))
}

// admit answers every start that needs no lease.
func (x *salt) admit(s ledgerSession) (message.Answer, error) {
	q := x.j.message
	id, err := s.Identity()
	if err != nil {
		return message.Answer{}, err
	}
	r, err := s.Record(q.Request)
	if err != nil {
		return message.Answer{}, err
	}
	if !x.isOurs(id) || r == nil || !x.hasTicket(s, r) || r.Instance != q.Instance || r.Instance != id.Instance {
		return message.Answer{Result: message.Disregarded}, nil
	}
	if r.State != ledger.Prepared {
		if x.m.w.opts.Broken == ReplayRuns && r.State == ledger.Finished {
			return message.Answer{}, nil
		}
		return x.look(s, r)
	}
	lives, err := s.TicketLives(r)
	if err != nil {
		return message.Answer{}, err
	}
	if !lives {
		return x.fenceStart(s, problem.StartRefusedTicket)
	}
	return message.Answer{}, nil
}

func (x *salt) hasTicket(s ledgerSession, r *record) bool {
	return s.HasTicket(r, x.j.message.Ticket) || x.m.w.opts.Broken == AnyTicketStarts
}

func (x *salt) fenceStart(s ledgerSession, code problem.Code) (message.Answer, error) {
	r, err := s.Record(x.j.message.Request)
	if err != nil || r == nil {
		return message.Answer{}, errDamaged
	}
	if err := x.decide(s, r, ledger.Fenced, code, nil); err != nil && !isTaken(err) {
		return message.Answer{}, err
	}
	return x.lookAgain(s)
}

func (x *salt) lookAgain(s ledgerSession) (message.Answer, error) {
	r, err := s.Record(x.j.message.Request)
	if err != nil {
		return message.Answer{}, err
	}
	if r == nil {
		return message.Answer{Result: message.Disregarded}, nil
	}
	return x.look(s, r)
}

// takeLease waits at most 10 s for the lease.
func (x *salt) takeLease() bool {
	w := x.m.w
	for until := time.Now().Add(leaseWait); ; {
		w.mu.Lock()
		if x.m.lease == nil {
			x.m.lease = x
			w.mu.Unlock()
			return x.step("lease")
		}
		w.mu.Unlock()
		if x.gone() || !time.Now().Before(until) || !w.sleep(100*time.Millisecond) {
			return false
		}
	}
}

// begin decides, under the lease, that the record is started.
func (x *salt) begin(s ledgerSession) (message.Answer, error) {
	if a, err := x.admit(s); err != nil || a.Result != "" {
		return a, err
	}
	r, err := s.Record(x.j.message.Request)
	if err != nil {
		return message.Answer{}, err
	}
	open, err := s.OpenRecords()
	if err != nil {
		return message.Answer{}, err
	}
	for _, other := range open {
		if other.Request != r.Request && other.unfinished() && x.m.w.opts.Broken != UnfinishedIgnored {
			return x.fenceStart(s, problem.StartRefusedLocked)
		}
	}
	if x.m.w.opts.Broken == ReplayRuns && r.State == ledger.Finished {
		return message.Answer{}, nil
	}
	if err := x.decide(s, r, ledger.Started, "", nil); err != nil {
		if isTaken(err) {
			return x.lookAgain(s)
		}
		return message.Answer{}, err
	}
	return message.Answer{}, nil
}

func (x *salt) begun(s ledgerSession) (message.Answer, error) {
	r, err := s.Record(x.j.message.Request)
	if err != nil || r == nil {
		return message.Answer{}, errDamaged
	}
	if x.m.w.opts.Broken == ReplayRuns && r.State == ledger.Finished {
		return message.Answer{}, nil
	}
	if err := x.decide(s, r, ledger.Begun, "", nil); err != nil {
		if isTaken(err) {
			return x.lookAgain(s)
		}
		return message.Answer{}, err
	}
	x.m.setAlive(r.Request, x)
	return message.Answer{}, nil
}

// effect is state.high in the Salt process. The executor waits for it, and
// writes what came of it.
func (x *salt) effect(r *run) (message.Answer, error) {
	m, w := x.m, x.m.w
	name := requestName(r.request)
	outcome := ranOK
	if w.chance("effect "+name, w.plan.EffectFails) {
		outcome = ranBadly
	}
	length := w.span("effect "+name, 100*time.Millisecond, 20*time.Second)
	if w.chance("long "+name, w.plan.EffectLong) {
		length = w.span("effect "+name, 20*time.Second, 20*time.Minute)
		if w.chance("very long "+name, .1) {
			length = w.span("effect "+name, 2*time.Hour, 3*time.Hour)
		}
	}
	if w.chance("salt killed "+name, w.plan.SaltKilled) {
		return x.killSalt(r, outcome, length)
	}
	if w.chance("executor killed "+name, w.plan.ExecutorKilled*3) {
		w.note("%s: the executor of %s is killed while it runs", m.name, name)
		x.executorDead.Store(true)
	}
	if !w.sleep(length) || x.rebooted() {
		w.effectEnds(r, aborted)
		return message.Answer{}, errGone
	}
	w.effectEnds(r, outcome)
	var code problem.Code
	counts := message.Counts{Declared: declared, Passed: declared}
	if outcome == ranBadly {
		code, counts = problem.StateFailed, message.Counts{Declared: declared, Failed: declared}
	}
	return x.finish(code, counts)
}

func (x *salt) rebooted() bool {
	x.m.w.mu.Lock()
	defer x.m.w.mu.Unlock()
	return x.boot != x.m.boot
}

// killSalt ends the Salt job process half way. Its lease is free at once. What
// it executed may die with it, or live on and end as it would have.
func (x *salt) killSalt(r *run, outcome runState, length time.Duration) (message.Answer, error) {
	m, w := x.m, x.m.w
	draw := w.draw("salt killed how/" + m.name)
	at := time.Duration(draw.Int64N(int64(length)) + 1)
	w.sleep(at)
	w.mu.Lock()
	w.noteLocked("%s: the Salt process of %s is killed", m.name, requestName(r.request))
	r.survivor = draw.IntN(2) == 0
	survives := r.survivor && x.boot == m.boot
	w.mu.Unlock()
	x.saltDead.Store(true)
	x.executorDead.Store(true)
	x.release()
	if !survives {
		w.effectEnds(r, aborted)
		return message.Answer{}, errGone
	}
	if !w.sleep(length-at) || x.rebooted() {
		outcome = aborted
	}
	w.effectEnds(r, outcome)
	return message.Answer{}, errGone
}

// finish writes the outcome, with three tries, and answers it.
func (x *salt) finish(code problem.Code, counts message.Counts) (a message.Answer, err error) {
	for range 3 {
		a, err = x.inWithin(finishWait, "finish", func(s ledgerSession) (message.Answer, error) {
			r, err := s.Record(x.j.message.Request)
			if err != nil || r == nil {
				return message.Answer{}, errDamaged
			}
			if err := x.decide(s, r, ledger.Finished, code, &counts); err != nil {
				if isTaken(err) {
					return x.lookAgain(s)
				}
				return message.Answer{}, err
			}
			return about(r, message.Answer{Result: message.Finished, Code: code, Counts: &counts}), nil
		})
		if err == nil || x.gone() {
			return a, err
		}
	}
	return a, err
}

func drawBytes(r *rand.Rand, n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(r.Uint32())
	}
	return out
}
