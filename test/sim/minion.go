package sim

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/oduflow/oduflow-salt/internal/ledger"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

const (
	declared   = 1
	lockWait   = 5 * time.Second
	finishWait = time.Hour
	leaseWait  = 10 * time.Second
)

// minion is one machine. Two of them may have the same id.
type minion struct {
	w       *World
	id      string // its Salt id
	name    string // in traces
	machine string // its machine-id

	instance string
	ledger   ledgerStore

	// Under the world's lock.
	up     bool
	boot   int
	bootAt time.Time
	lease  *salt
	seen   map[string]bool // JIDs that this minion process has run
	copies []diskCopy

	tickets map[string]ticketGiven // the last of each request

	// alive are the executors that have handed an effect over: the lock on a
	// witness tells, also where the lease is a file that was put back.
	alive     map[string]*salt
	destroyed bool
	cloned    bool // there is a second machine with its id
	stale     bool // its ledger was put back from a copy
}

// lives says that the executor that handed over the effect of a request is
// there still.
func (m *minion) lives(request string) bool {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	x := m.alive[request]
	return x != nil && x.boot == m.boot && !x.executorDead.Load()
}

func (m *minion) setAlive(request string, x *salt) {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	m.alive[request] = x
}

type ticketGiven struct {
	boot int
	at   time.Time
}

// diskCopy is what a snapshot holds, and which effects had begun by then.
type diskCopy struct {
	ledger ledgerCopy
	at     time.Time
	runs   map[*run]bool
}

func (w *World) newMinion(id, name, machine, instance string) *minion {
	m := &minion{w: w, id: id, name: name, machine: machine, instance: instance, up: true, boot: 1, bootAt: time.Now().Add(-time.Hour), seen: map[string]bool{}, tickets: map[string]ticketGiven{}, alive: map[string]*salt{}}
	if w.opts.Ledgers != nil {
		m.ledger = w.opts.Ledgers(name, m)
	} else {
		m.ledger = newModel(m.facts(), newLedgerID(name), w.opts.Broken)
	}
	w.mu.Lock()
	w.minions = append(w.minions, m)
	w.mu.Unlock()
	return m
}

// facts are what the ledger has to know of the machine.
func (m *minion) facts() ledger.Machine {
	return ledger.Machine{
		BootID: func() (string, error) {
			m.w.mu.Lock()
			defer m.w.mu.Unlock()
			return fmt.Sprintf("boot-%s-%d", m.name, m.boot), nil
		},
		SinceBoot: func() (time.Duration, error) {
			m.w.mu.Lock()
			defer m.w.mu.Unlock()
			return time.Since(m.bootAt), nil
		},
		MachineID: func() (string, error) { return m.machine, nil },
		Now:       time.Now,
	}
}

// salt is one Salt job process with the executor that it spawned.
type salt struct {
	m    *minion
	j    job
	boot int
	// behind: its ledger tells less than masterd knew. was is its generation then.
	behind bool
	was    uint64
	// executor and process die alone or together.
	executorDead atomic.Bool
	saltDead     atomic.Bool
}

func (x *salt) gone() bool {
	x.m.w.mu.Lock()
	rebooted := x.boot != x.m.boot
	x.m.w.mu.Unlock()
	return rebooted || x.executorDead.Load()
}

// step is a moment at which an executor may be stopped, killed, or overtaken.
func (x *salt) step(name string) bool {
	w := x.m.w
	if x.gone() {
		return false
	}
	key := name + "/" + x.m.name
	wait := w.span("step "+key, 50*time.Microsecond, 3*time.Millisecond)
	if w.chance("stall "+key, w.plan.Stalled) {
		wait = w.span("step "+key, time.Second, 200*time.Second)
		w.note("%s: stopped at %s for %s", x.m.name, name, wait)
	}
	if !w.sleep(wait) {
		return false
	}
	if w.chance("kill executor "+key, w.plan.ExecutorKilled) {
		w.note("%s: the executor of %s is killed at %s", x.m.name, x.j.name, name)
		x.executorDead.Store(true)
	}
	return !x.gone()
}

// receive is a job that reached the machine.
func (m *minion) receive(j job) {
	w := m.w
	w.mu.Lock()
	if !m.up || m.destroyed || m.seen[j.jid] {
		w.mu.Unlock()
		return
	}
	m.seen[j.jid] = true
	boot := m.boot
	w.mu.Unlock()
	if j.message.Kind != message.Evidence && w.chance("queued "+j.name, w.plan.JobQueued) {
		// Written to disk, and run later: also after a reboot, and in some
		// releases under another JID.
		wait := w.span("queued "+j.name, time.Second, 6*time.Minute)
		w.note("%s: %s waits on its disk for %s", m.name, j.name, wait)
		w.after(wait, func() { m.run(j) })
		return
	}
	_ = boot
	m.run(j)
}

// run is one Salt job.
func (m *minion) run(j job) {
	w := m.w
	w.mu.Lock()
	x := &salt{m: m, j: j, boot: m.boot}
	up := m.up && !m.destroyed
	w.mu.Unlock()
	if !up {
		return
	}
	w.wg.Go(func() {
		defer x.release()
		defer x.end()
		w.opened(j)
		if !w.sleep(w.span("spawn "+m.name, time.Millisecond, 30*time.Millisecond)) {
			return
		}
		a, err := x.answer()
		w.mischief(j, m)
		if x.gone() || x.saltDead.Load() {
			return
		}
		text := "oduflow: rejected " + string(problem.CodeOf(err))
		if err == nil {
			if text, err = message.EncodeAnswer(x.fill(a), j.body.ResultKey); err != nil {
				return
			}
		}
		w.note("%s: %s answers %s %s", m.name, j.name, a.Result, a.Code)
		w.carryBack(m, j, text)
	})
}

// end is the end of the executor.
func (x *salt) end() {
	x.m.w.mu.Lock()
	defer x.m.w.mu.Unlock()
	if request := x.j.message.Request; x.m.alive[request] == x {
		delete(x.m.alive, request)
	}
}

// release ends the Salt job process: the kernel frees its lease.
func (x *salt) release() {
	x.m.w.mu.Lock()
	defer x.m.w.mu.Unlock()
	if x.m.lease == x {
		x.m.lease = nil
	}
}

func (x *salt) answer() (message.Answer, error) {
	switch x.j.message.Kind {
	case message.Prepare:
		return orBusy(x.prepare())
	case message.Start:
		return x.start()
	case message.Evidence:
		return x.evidence()
	case message.Update:
		return orBusy(x.update())
	case message.Settle:
		return orBusy(x.settle())
	}
	return message.Answer{}, problem.New(message.WrongKind, "unknown")
}

// orBusy is what prepare, update and settle say where another executor has its
// turn and doesn't end it.
func orBusy(a message.Answer, err error) (message.Answer, error) {
	if problem.CodeOf(err) == ledger.Locked {
		return refused(problem.TargetBusy), nil
	}
	return a, err
}

func (x *salt) fill(a message.Answer) message.Answer {
	q := x.j.message
	a.Protocol, a.Kind, a.Request, a.Target, a.Nonce = message.Protocol, q.Kind, q.Request, q.Target, q.Nonce
	a.Machine = x.m.machine
	a.Generation = x.m.ledger.Generation()
	if x.behind {
		a.Generation = x.was
	}
	return a
}

// session takes a turn at the ledger.
func (x *salt) session(wait time.Duration) (ledgerSession, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	return x.m.ledger.Lock(ctx)
}

var errGone = problem.New(problem.Internal, "the executor is gone")

// in does something in a turn of its own.
func (x *salt) in(name string, f func(s ledgerSession) (message.Answer, error)) (message.Answer, error) {
	return x.inWithin(lockWait, name, f)
}

func (x *salt) inWithin(wait time.Duration, name string, f func(s ledgerSession) (message.Answer, error)) (message.Answer, error) {
	if !x.step(name) {
		return message.Answer{}, errGone
	}
	s, err := x.session(wait)
	if err != nil {
		return message.Answer{}, err
	}
	defer s.Close()
	if !x.step(name + " (locked)") {
		return message.Answer{}, errGone
	}
	return f(s)
}

// decide writes a fact, with a moment before and one after it.
func (x *salt) decide(s ledgerSession, r *record, to ledger.State, code problem.Code, counts *message.Counts) error {
	if !x.step("before " + string(to)) {
		return errGone
	}
	if to == ledger.Started {
		x.m.ticketMustLive(r.Request)
	}
	err := s.Decide(r, to, code, counts)
	if err == nil {
		x.m.w.note("%s: record of %s is %s %s", x.m.name, requestName(r.Request), r.State, r.Code)
	}
	if !x.step("after "+string(to)) && err == nil {
		return errGone
	}
	return err
}

func (x *salt) isOurs(id *ledger.Identity) bool { return id != nil && id.Machine == x.m.machine }

func refused(code problem.Code) message.Answer {
	return message.Answer{Result: message.Refused, Code: code}
}

func about(r *record, a message.Answer) message.Answer {
	a.Digest, a.Ledger, a.Instance = r.Digest, r.Ledger, r.Instance
	return a
}

func (x *salt) prepare() (message.Answer, error) {
	return x.in("prepare", func(s ledgerSession) (message.Answer, error) {
		id, err := s.Identity()
		if err != nil {
			return refused(problem.LedgerUnwritable), nil
		}
		x.recall(id)
		var settlements *message.SettlementStates
		if x.isOurs(id) && !x.behind {
			settlements = x.owed(s)
		}
		a, err := x.prepareIn(s, id)
		if x.gone() && err != nil {
			return a, errGone
		}
		if err != nil {
			a = refused(problem.LedgerUnwritable)
		}
		if id != nil && a.Ledger == "" {
			a.Ledger, a.Instance = id.Ledger, id.Instance
		}
		a.Settlements = settlements
		return a, nil
	})
}

func (x *salt) prepareIn(s ledgerSession, id *ledger.Identity) (message.Answer, error) {
	q := x.j.message
	if !x.isOurs(id) {
		return refused(problem.LedgerChanged), nil
	}
	r, err := s.Record(q.Request)
	switch {
	case err != nil:
		return message.Answer{}, err
	case r != nil && r.State != ledger.Prepared:
		return x.look(s, r)
	case x.behind:
		return refused(problem.LedgerChanged), nil
	case r != nil && r.Digest != q.Digest:
		return about(r, refused(problem.RequestConflict)), nil
	case id.Instance != q.Instance:
		return refused(problem.InstanceDiffers), nil
	}
	if r != nil {
		if ticket := s.TicketFor(r, q.Nonce); ticket != "" {
			return about(r, message.Answer{Result: message.Prepared, Ticket: ticket}), nil
		}
	}
	if x.m.w.opts.Broken != UnfinishedIgnored {
		if a, err := x.clear(s); err != nil || a.Result != "" {
			return a, err
		}
	}
	salt, ticket, err := s.NewTicket(q.Nonce, drawBytes(x.m.w.draw("ticket/"+x.m.name), message.TicketSize))
	if err != nil {
		return message.Answer{}, err
	}
	if !x.step("before prepared") {
		return message.Answer{}, errGone
	}
	if err := s.Prepare(ledger.Preparation{
		Request: q.Request, Target: q.Target, Instance: q.Instance, Profile: x.j.body.Profile, Digest: q.Digest, Ledger: id.Ledger,
		Salt: salt,
	}, ticket); err != nil {
		return message.Answer{}, err
	}
	x.m.prepared(q.Request)
	if !x.step("after prepared") {
		return message.Answer{}, errGone
	}
	return message.Answer{Result: message.Prepared, Ticket: ticket, Digest: q.Digest, Ledger: id.Ledger, Instance: id.Instance}, nil
}

// prepared notes when a ticket was given.
func (m *minion) prepared(request string) {
	w := m.w
	w.mu.Lock()
	defer w.mu.Unlock()
	m.tickets[request] = ticketGiven{boot: m.boot, at: time.Now()}
	w.noteLocked("%s: record of %s is prepared", m.name, requestName(request))
}

// ticketMustLive checks that what starts now has a live ticket. An executor
// that was stopped between its look and its write may be somewhat late.
func (m *minion) ticketMustLive(request string) {
	const stopped = 201 * time.Second
	w := m.w
	w.mu.Lock()
	defer w.mu.Unlock()
	t := m.tickets[request]
	if t.boot != m.boot || time.Since(t.at) > ledger.TicketLife+stopped {
		w.violateLocked("tickets die: %s starts on %s under a ticket of boot %d that is %s old", requestName(request), m.name, t.boot, time.Since(t.at))
	}
}

func (x *salt) clear(s ledgerSession) (message.Answer, error) {
	open, err := s.OpenRecords()
	if err != nil {
		return message.Answer{}, err
	}
	for _, r := range open {
		if !r.unfinished() {
			continue
		}
		if _, err := x.look(s, r); err != nil {
			return message.Answer{}, err
		}
		if r.unfinished() {
			return message.Answer{Result: message.Refused, Code: problem.RecordUnfinished, Unfinished: r.Request}, nil
		}
	}
	if held, _ := x.m.held(); held {
		return refused(problem.StateRunning), nil
	}
	return message.Answer{}, nil
}

// held says whether the lease is held, and for which request.
func (m *minion) held() (bool, string) {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	if m.lease == nil {
		return false, ""
	}
	return true, m.lease.j.message.Request
}

// look answers what a record proves.
func (x *salt) look(s ledgerSession, r *record) (message.Answer, error) {
	if r.unfinished() {
		if a, err := x.lookUnfinished(s, r); err != nil || a.Result != "" {
			return about(r, a), err
		}
	}
	a := message.Answer{Code: r.Code, Outcome: r.Outcome}
	switch r.State {
	case ledger.Prepared:
		a.Result = message.NotStartedYet
	case ledger.Fenced, ledger.Refused:
		a.Result = message.Fenced
	case ledger.NeverBegan:
		a.Result = message.NeverBegan
	case ledger.Finished:
		a.Result, a.Counts = message.Finished, r.Counts
	case ledger.Lapsed:
		a.Result = message.Lapsed
	case ledger.Settled:
		a.Result = message.Settled
	case ledger.Started, ledger.Begun:
		a.Result = message.Interrupted
	}
	return about(r, a), nil
}

func (x *salt) lookUnfinished(s ledgerSession, r *record) (message.Answer, error) {
	w := x.m.w
	held, holder := x.m.held()
	if held && (holder == r.Request || r.State == ledger.Started) || x.m.lives(r.Request) {
		return message.Answer{Result: message.Running}, nil
	}
	if r.State == ledger.Started && !x.behind {
		if err := x.decide(s, r, ledger.NeverBegan, problem.NeverBegan, nil); err != nil || r.State != ledger.Started {
			return message.Answer{}, err
		}
	}
	w.mu.Lock()
	survivors := 0
	for _, run := range w.runs[r.Request] {
		if run.minion == x.m && run.state == running {
			survivors++
		}
	}
	w.mu.Unlock()
	if survivors > 0 {
		return message.Answer{Result: message.Running, Survivors: survivors}, nil
	}
	return message.Answer{Result: message.Interrupted}, nil
}

func (x *salt) evidence() (message.Answer, error) {
	return x.in("evidence", func(s ledgerSession) (message.Answer, error) {
		q := x.j.message
		id, err := s.Identity()
		if err != nil {
			return message.Answer{}, err
		}
		if !x.isOurs(id) {
			return refused(problem.LedgerChanged), nil
		}
		r, err := s.Record(q.Request)
		if err != nil {
			return message.Answer{}, err
		}
		if r == nil {
			return message.Answer{Result: message.Absent, Ledger: id.Ledger, Instance: id.Instance}, nil
		}
		x.recall(id)
		if a, err := x.fence(s, r); err != nil || a.Result != "" {
			return a, err
		}
		a, err := x.look(s, r)
		if (a.Result == message.Fenced || a.Result == message.NeverBegan) && x.isOfAnother(s, r) {
			a.Result, a.Code = message.Lapsed, ""
		}
		return a, err
	})
}

func (x *salt) isOfAnother(s ledgerSession, r *record) bool {
	ticket := x.j.message.Ticket
	return ticket != "" && !s.Knew(r, ticket) && x.m.w.opts.Broken != AnyTicketFences
}

// recall looks whether the ledger was put back since masterd heard of it last.
func (x *salt) recall(id *ledger.Identity) {
	if b := x.j.body; id != nil && id.Ledger == b.Ledger && b.Generation > 0 {
		now := x.m.ledger.Generation()
		x.behind, x.was = now < b.Generation, now
	}
}

// fence fences a prepared record for an evidence that may, if its ticket is the
// claimed one and dead. Another one can only be said to start no more.
func (x *salt) fence(s ledgerSession, r *record) (message.Answer, error) {
	if r.State != ledger.Prepared || !x.j.body.Fence {
		return message.Answer{}, nil
	}
	lives, err := s.TicketLives(r)
	if err != nil || lives {
		return message.Answer{}, err
	}
	if x.behind || x.isOfAnother(s, r) {
		return about(r, message.Answer{Result: message.Lapsed}), nil
	}
	err = x.decide(s, r, ledger.Fenced, problem.NeverStarted, nil)
	if isTaken(err) {
		err = nil
	}
	return message.Answer{}, err
}

// knows says that the ledger of a minion has the outcome of a receipt.
func (m *minion) knows(r receipt.Receipt) bool {
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	s, err := m.ledger.Lock(ctx)
	if err != nil {
		return false
	}
	defer s.Close()
	id, err := s.Identity()
	if err != nil || id == nil || id.Machine != m.machine {
		return false
	}
	known, err := s.Record(r.Request)
	if err != nil || known == nil || r.Ledger != "" && known.Ledger != r.Ledger {
		return false
	}
	switch known.State {
	case ledger.Finished:
		return true
	case ledger.Fenced, ledger.Refused, ledger.NeverBegan:
		// Where it was seen running before, or the ledger is known to forget, that
		// it never ran is no outcome.
		forgotten, err := m.w.store.Forgotten(ctx, r.Request, known.Ledger)
		return err == nil && !forgotten && r.Code != problem.Interrupted && r.Code != problem.StillRunning
	case ledger.Prepared: // the claimed ticket is long dead: it is fenced by now
		forgotten, err := m.w.store.Forgotten(ctx, r.Request, known.Ledger)
		return err == nil && !forgotten && r.Ticket != "" && s.Knew(known, r.Ticket)
	case ledger.Started, ledger.Begun, ledger.Lapsed, ledger.Settled:
	}
	return false
}

func (m *minion) ledgerID() string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	s, err := m.ledger.Lock(ctx)
	if err != nil {
		return ""
	}
	defer s.Close()
	if id, err := s.Identity(); err == nil && id != nil {
		return id.Ledger
	}
	return ""
}
