package sim

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/oduflow/oduflow-salt/internal/ledger"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/start"
)

const instance = "0b5e7a52-6a7e-4a0e-9f0e-2f4d3b1a0001"

// Run runs one schedule. It must be called in a synctest bubble.
func Run(o Options) Result {
	w := newWorld(o)
	for n := range w.plan.Targets {
		w.adopted(w.newMinion(fmt.Sprintf("web-%d", n+1), fmt.Sprintf("web-%d", n+1), fmt.Sprintf("machine-%d", n+1)))
	}
	w.startMaster()
	w.takeCopies()
	for n := range w.plan.Requests {
		w.call(n)
	}
	for _, e := range w.events() {
		w.after(e.at, func() {
			w.note("event: %s", e.name)
			e.do()
		})
	}
	w.sleep(w.plan.Length)
	w.heal()
	w.settle()
	w.atTheEnd()
	close(w.stop)
	if p := w.current(); p != nil {
		p.kill("at the end")
	}
	w.wg.Wait()
	result := Result{Violation: w.violation, Trace: w.trace, Statuses: map[receipt.State]int{}, Effects: w.stats.effects, Starts: w.stats.starts, Opened: w.stats.opened}
	for _, r := range w.store.Receipts() {
		result.Statuses[r.State]++
	}
	return result
}

// adopted writes a minion's identity and records it.
func (w *World) adopted(m *minion) {
	ctx := context.Background()
	s, err := m.ledger.Lock(ctx)
	if err != nil {
		w.violate("setup: %v", err)
		return
	}
	defer s.Close()
	id, err := s.Adopt(instance)
	if err != nil {
		w.violate("setup: %v", err)
		return
	}
	err = w.store.Adopt(ctx, receipt.Target{
		ID: m.id, Instance: instance, Fingerprint: minionFingerprint, Ledger: id.Ledger, Machine: m.machine, AdoptedAt: w.clock.Now(),
	})
	if err != nil {
		w.violate("setup: %v", err)
	}
}

// call is a caller that stored its UUID first, and repeats it until it has an
// answer, and sometimes later.
func (w *World) call(n int) {
	r := w.draw("caller")
	id := uuid([16]byte(append(drawBytes(r, 14), 0, byte(n))))
	source := fmt.Sprintf("state%d:\n  test.nop: []\n", n)
	if n > 0 && r.IntN(5) == 0 {
		source = fmt.Sprintf("state%d:\n  test.nop: []\n", r.IntN(n))
	}
	q := start.CustomRequest{
		Request: id, Target: fmt.Sprintf("web-%d", 1+r.IntN(w.plan.Targets)), Instance: instance,
		Source: []byte(source), Revision: int64(n), Again: r.IntN(4) == 0,
	}
	at := time.Duration(r.Int64N(int64(w.plan.Length)*7/10 + 1))
	if r.IntN(3) == 0 {
		at = time.Duration(r.Int64N(int64(time.Minute)))
	}
	w.after(at, func() {
		w.keepCalling(q)
		w.askStatus(q.Request)
	})
	for range r.IntN(3) {
		w.after(at+time.Duration(r.Int64N(int64(10*time.Minute))), func() { w.keepCalling(q) })
	}
}

// keepCalling repeats a call until there is an answer.
func (w *World) keepCalling(q start.CustomRequest) {
	for range 30 {
		if p := w.current(); p != nil {
			a, err := p.service.CustomStart(context.Background(), q)
			code := problem.CodeOf(err)
			switch {
			case err == nil:
				w.note("caller: %s is %s", requestName(q.Request), a.Status)
				return
			case problem.RowOf(code).HTTP == 409:
				if code == problem.PreviousRequired && q.Previous == "" {
					q.Previous = w.lastFailed(q)
					continue
				}
				w.note("caller: %s is refused: %s", requestName(q.Request), code)
				return
			}
		}
		if !w.sleep(w.span("call again "+requestName(q.Request), time.Second, 20*time.Second)) {
			return
		}
	}
}

// askStatus is what a caller does that has its answer: it polls, now and then,
// until the end.
func (w *World) askStatus(request string) {
	for wait := 10 * time.Second; w.sleep(wait); wait *= 2 {
		p := w.current()
		if p == nil {
			continue
		}
		a, err := p.service.CustomStatus(context.Background(), request, 0)
		if err == nil && a.Execution.State.Terminal() {
			return
		}
	}
}

// lastFailed gives the failure that a new attempt has to name.
func (w *World) lastFailed(q start.CustomRequest) string {
	last := q.Request // names nothing that failed
	for _, r := range w.store.Receipts() {
		if r.Body.Target == q.Target && (r.State == receipt.Failed || r.State == receipt.Refused) {
			last = r.Request
		}
	}
	return last
}

// heal lets everything work from now on. What is under way stays so.
func (w *World) heal() {
	w.mu.Lock()
	w.healed, w.masterUp, w.deaf = true, true, false
	for _, m := range w.minions {
		m.up = true
	}
	w.noteLocked("everything heals")
	p := w.master
	w.mu.Unlock()
	if p != nil {
		p.join()
		return
	}
	w.startMaster()
}

// settle waits until everything has ended that can, and whatever was late has
// arrived.
func (w *World) settle() {
	w.sleep(20 * time.Minute)
	if !w.open() {
		return
	}
	for range 30 {
		w.sleep(5 * time.Minute)
		if !w.busy() {
			break
		}
	}
	if w.open() { // uncertain ones are asked again every 10 minutes
		w.sleep(4*time.Hour + 25*time.Minute)
	}
}

func (w *World) open() bool {
	return slices.ContainsFunc(w.store.Receipts(), func(r receipt.Receipt) bool { return r.State.Unresolved() })
}

func (w *World) busy() bool {
	return slices.ContainsFunc(w.store.Receipts(), func(r receipt.Receipt) bool {
		return r.State.Unresolved() && r.State != receipt.Uncertain
	})
}

func (w *World) masterDown(d time.Duration) {
	w.mu.Lock()
	w.masterUp = false
	p := w.master
	w.mu.Unlock()
	if p != nil {
		p.hears.Store(false)
	}
	w.after(d, func() {
		w.mu.Lock()
		w.masterUp = true
		w.noteLocked("salt-master: is back")
		w.mu.Unlock()
		w.joinLater()
	})
}

func (w *World) joinLater() {
	w.after(w.span("join", 50*time.Millisecond, 3*time.Second), func() {
		if p := w.current(); p != nil {
			p.join()
		}
	})
}

func (w *World) beDeaf(d time.Duration) {
	w.mu.Lock()
	w.deaf = true
	p := w.master
	w.mu.Unlock()
	if p != nil && w.chance("deaf unnoticed", .5) {
		p = nil // the socket is open, and nothing comes
	}
	if p != nil {
		p.hears.Store(false)
	}
	w.after(d, func() {
		w.mu.Lock()
		w.deaf = false
		w.noteLocked("bus: can be heard again")
		w.mu.Unlock()
		w.joinLater()
	})
}

func (w *World) gap() {
	if p := w.current(); p != nil && p.hears.Load() {
		p.d.Gap()
	}
}

func (w *World) stepClock(r *rand.Rand) {
	by := []time.Duration{time.Second, 40 * time.Second, 20 * time.Minute, 3 * time.Hour, 400 * 24 * time.Hour}[r.IntN(5)]
	if r.IntN(2) == 0 {
		by = -by
	}
	w.note("masterd: its clock is set by %s", by)
	w.clock.Step(by)
}

func (w *World) someMinion(r *rand.Rand) *minion {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.minions[r.IntN(len(w.minions))]
}

// reboot ends everything on a machine; tickets die with the boot. With a copy
// its disk, or the folder of its ledger alone, is put back meanwhile.
func (m *minion) reboot(back *diskCopy, how string) {
	w := m.w
	w.mu.Lock()
	m.boot++
	m.up, m.lease, m.seen = false, nil, map[string]bool{}
	w.noteLocked("%s: reboots", m.name)
	for _, runs := range w.runs {
		for _, r := range runs {
			if r.minion == m && r.state == running {
				r.state = aborted
				w.noteLocked("%s: EFFECT of %s ends with the boot", m.name, requestName(r.request))
			}
		}
	}
	w.mu.Unlock()
	m.ledger.Reboot()
	if back != nil {
		m.putBack(*back, how == "disk")
	}
	w.after(w.span("boot", 3*time.Second, 90*time.Second), func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		m.up, m.bootAt = true, time.Now()
		w.noteLocked("%s: is up", m.name)
	})
}

// down stops the minion daemon for a while; what runs goes on.
func (m *minion) down(d time.Duration) {
	w := m.w
	w.mu.Lock()
	m.up, m.seen = false, map[string]bool{}
	w.mu.Unlock()
	w.after(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		m.up = true
		w.noteLocked("%s: is up", m.name)
	})
}

func (w *World) loseLedger(r *rand.Rand) {
	m := w.someMinion(r)
	w.note("%s: its ledger is lost", m.name)
	m.ledger.Lose()
	w.mu.Lock()
	m.lease = nil
	w.mu.Unlock()
	if r.IntN(2) == 0 {
		m.reboot(nil, "")
	}
	if r.IntN(3) > 0 {
		w.after(time.Duration(r.Int64N(int64(6*time.Minute))), func() { w.adoptAgain(m) })
	}
}

// adoptAgain is an operator's `masterd adopt`.
func (w *World) adoptAgain(m *minion) {
	p := w.current()
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := p.adopt.Adopt(ctx, m.id, instance, "lost", "operator")
	w.note("operator: adopts %s: %v", m.id, err)
}

// takeCopies makes copies of disks and of the database, at odd moments.
func (w *World) takeCopies() {
	r := w.draw("copies")
	if w.plan.DatabaseBack > 0 {
		for range 6 {
			w.after(time.Duration(r.Int64N(int64(w.plan.Length))), func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.copies = append(w.copies, w.store.Copy())
			})
		}
	}
	if w.plan.LedgerBack > 0 {
		for _, m := range w.minions {
			for range 6 {
				w.after(time.Duration(r.Int64N(int64(w.plan.Length))), m.takeCopy)
			}
		}
	}
}

// takeCopy is a snapshot of a minion's disk.
func (m *minion) takeCopy() {
	w := m.w
	c := diskCopy{ledger: m.ledger.Copy(), at: time.Now(), runs: map[*run]bool{}, states: m.states()}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, runs := range w.runs {
		for _, r := range runs {
			c.runs[r] = true
		}
	}
	m.copies = append(m.copies, c)
	w.noteLocked("%s: a copy of its disk is taken", m.name)
}

// states gives the state of every record that the world knows of.
func (m *minion) states() map[string]ledger.State {
	out := map[string]ledger.State{}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	s, err := m.ledger.Lock(ctx)
	if err != nil {
		return nil // somebody is at it
	}
	defer s.Close()
	for _, r := range m.w.store.Receipts() {
		if known, err := s.Record(r.Request); err == nil && known != nil {
			out[r.Request] = known.State
		}
	}
	return out
}

// putLedgerBack restores a copy: the whole disk with a reboot, or the folder
// alone. The folder alone is put back without a reboot only from a copy in
// which every ticket is dead by now.
func (w *World) putLedgerBack(r *rand.Rand) {
	m := w.someMinion(r)
	w.mu.Lock()
	copies := m.copies
	w.mu.Unlock()
	if len(copies) == 0 {
		return
	}
	c := copies[r.IntN(len(copies))]
	if c.states == nil {
		return
	}
	switch r.IntN(3) {
	case 0:
		m.reboot(&c, "disk")
	case 1:
		m.reboot(&c, "folder")
	default:
		if time.Since(c.at) > ledger.TicketLife {
			m.putBack(c, false)
		}
	}
}

func (m *minion) putBack(c diskCopy, disk bool) {
	w := m.w
	m.ledger.Restore(c.ledger)
	w.mu.Lock()
	defer w.mu.Unlock()
	m.lease = nil // its file is another one now
	w.noteLocked("%s: its ledger is put back to %s (whole disk: %t)", m.name, c.at.Sub(w.began), disk)
	if !disk {
		return
	}
	for _, runs := range w.runs {
		for _, r := range runs {
			if r.minion == m && !c.runs[r] {
				r.undone = true
			}
		}
	}
}

// clone makes a second machine with the same key and the same ledger.
func (w *World) clone(r *rand.Rand) {
	m := w.someMinion(r)
	for !m.quiet() {
		if !w.sleep(3*time.Second) || w.isHealed() {
			return
		}
	}
	machine := m.machine
	if r.IntN(3) == 0 {
		machine += "'"
	}
	c := m.ledger.Copy()
	twin := w.newMinion(m.id, m.name+"'", machine)
	twin.ledger.Restore(c)
	w.note("%s: is cloned (machine-id %s)", m.name, machine)
}

// quiet says that no record of a minion is prepared or just started.
func (m *minion) quiet() bool {
	states := m.states()
	for _, s := range states {
		if s == ledger.Prepared || s == ledger.Started {
			return false
		}
	}
	return states != nil
}

// putDatabaseBack puts yesterday's copy in the place of the database.
func (w *World) putDatabaseBack(r *rand.Rand) {
	w.mu.Lock()
	if w.held {
		w.mu.Unlock()
		return
	}
	w.held = true
	p := w.master
	w.mu.Unlock()
	if p != nil {
		p.kill("for a restore")
	}
	for { // an operator is slower than a ticket lives
		w.mu.Lock()
		left := 150*time.Second - time.Since(w.lastSent)
		w.mu.Unlock()
		if left <= 0 {
			break
		}
		if !w.sleep(left) {
			return
		}
	}
	w.mu.Lock()
	if len(w.copies) > 0 && !w.healed {
		w.store.Restore(w.copies[r.IntN(len(w.copies))])
		w.checked = w.store.Written()
		w.timeline++
		for key := range w.starts {
			w.lost[key.request] = true
		}
		w.noteLocked("masterd: its database is put back")
	}
	w.held = false
	w.mu.Unlock()
	w.startMaster()
}

// opened opens what masterd sealed, and compares it with what the model reads.
func (w *World) opened(j job) {
	if !w.opts.Open || j.text == "again" {
		return
	}
	o := message.Opener{Target: j.message.Target, Pinned: signingPublic, MinionKeyPEM: minionPrivatePEM}
	m, err := o.Open(j.text, j.message.Kind)
	if err != nil {
		w.violate("sealed: %v", err)
		return
	}
	body, err := message.DecodeBody(m.Body)
	if err != nil {
		w.violate("sealed: %v", err)
		return
	}
	w.mu.Lock()
	w.stats.opened++
	w.mu.Unlock()
	sum := sha256.Sum256(body.Canonical)
	want := j.message
	if m.Protocol != want.Protocol || m.Target != want.Target || m.Instance != want.Instance || m.Request != want.Request ||
		m.Ticket != want.Ticket || m.Digest != want.Digest || m.Nonce != want.Nonce ||
		string(body.ResultKey) != string(j.body.ResultKey) || body.Fence != j.body.Fence || body.Profile != j.body.Profile ||
		want.Kind == message.Start && hexOf(sum[:]) != want.Digest {
		w.violate("sealed: %+v, and the model reads %+v", m, want)
	}
}
