package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// misplace notes which runs a ledger that is lost or put back doesn't hold.
// Their witnesses remember them until the machine reboots.
func (m *minion) misplace(holds func(*run) bool) {
	for _, runs := range m.w.runs {
		for _, r := range runs {
			if r.minion == m && !holds(r) {
				r.misplaced, r.forgotten = true, r.forgotten || r.boot != m.boot
			}
		}
	}
}

func (w *World) loseLedger(r *rand.Rand) {
	m := w.someMinion(r)
	w.note("%s: its ledger is lost", m.name)
	m.ledger.Lose()
	w.mu.Lock()
	m.lease = nil
	m.misplace(func(*run) bool { return false })
	w.mu.Unlock()
	if r.IntN(2) == 0 {
		m.reboot(nil, "")
	}
	if r.IntN(3) > 0 {
		w.after(time.Duration(r.Int64N(int64(6*time.Minute))), func() { _ = w.adoptAgain(m) })
	}
}

// adoptAgain is an operator's `masterd adopt`.
func (w *World) adoptAgain(m *minion) error {
	w.mu.Lock()
	p, destroyed := w.master, m.destroyed
	w.mu.Unlock()
	switch {
	case destroyed:
		return nil // its successor is adopted
	case p == nil:
		return errDead
	}
	select { // one operator at a time: package adopt waits under a mutex
	case w.adopting <- struct{}{}:
		defer func() { <-w.adopting }()
	case <-w.stop:
		return errDead
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := p.adopt.Adopt(ctx, m.id, m.instance, "lost", "operator")
	w.note("operator: adopts %s: %v", m.id, err)
	if err == nil {
		w.mu.Lock()
		delete(w.floors, m.id)
		w.mu.Unlock()
	}
	return err
}

func (w *World) adoptUntilDone(m *minion) {
	for w.adoptAgain(m) != nil && w.sleep(w.span("adopt", 5*time.Second, 30*time.Second)) {
	}
}

// takeCopies makes copies of disks and of the database, at odd moments.
func (w *World) takeCopies() {
	r := w.draw("copies")
	if w.plan.DatabaseBack > 0 {
		for range 6 {
			w.after(time.Duration(r.Int64N(int64(w.plan.Length))), w.copyDatabase)
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

func (w *World) copyDatabase() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.copies = append(w.copies, w.store.Copy())
}

// takeCopy is a snapshot of a minion's disk.
func (m *minion) takeCopy() {
	w := m.w
	c := diskCopy{ledger: m.ledger.Copy(), at: time.Now(), runs: map[*run]bool{}}
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

// putLedgerBack restores a copy: the whole disk with a reboot, or the folder
// alone, with one or under whatever works there.
func (w *World) putLedgerBack(r *rand.Rand) {
	m := w.someMinion(r)
	w.mu.Lock()
	copies := m.copies
	w.mu.Unlock()
	if len(copies) == 0 {
		return
	}
	c := copies[r.IntN(len(copies))]
	switch r.IntN(3) {
	case 0:
		m.reboot(&c, "disk")
	case 1:
		m.reboot(&c, "folder")
	default:
		m.putBack(c, false)
	}
}

func (m *minion) putBack(c diskCopy, disk bool) {
	w := m.w
	m.ledger.Restore(c.ledger)
	w.mu.Lock()
	defer w.mu.Unlock()
	m.lease, m.stale = nil, true // the lease's file is another one now
	m.misplace(func(r *run) bool { return c.runs[r] })
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
	machine := m.machine
	if r.IntN(3) == 0 {
		machine += "'"
	}
	c := m.ledger.Copy()
	name := m.name
	for w.named(name) {
		name += "'"
	}
	twin := w.newMinion(m.id, name, machine, m.instance)
	twin.ledger.Restore(c)
	w.mu.Lock()
	m.cloned, twin.cloned = true, true
	w.mu.Unlock()
	w.note("%s: is cloned (machine-id %s)", m.name, machine)
}

// replace destroys a server. Another one, with an instance of its own, gets its
// name, and is adopted.
func (w *World) replace(r *rand.Rand) {
	m := w.someMinion(r)
	m.reboot(nil, "")
	w.mu.Lock()
	m.destroyed = true
	w.minions = slices.DeleteFunc(w.minions, func(x *minion) bool { return x == m })
	n := len(w.starts) + 100 // any number that no other server has
	w.noteLocked("%s: is destroyed", m.name)
	w.mu.Unlock()
	fresh := w.newMinion(m.id, m.name+"*", m.machine+"*", instanceNo(n))
	fresh.down(w.span("boot", 30*time.Second, 2*time.Minute))
	w.after(w.span("adopt", 30*time.Second, 5*time.Minute), func() { w.adoptUntilDone(fresh) })
}

func (w *World) named(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.minions, func(m *minion) bool { return m.name == name })
}

// putDatabaseBack is an operator's `masterd restore` of an older copy.
func (w *World) putDatabaseBack(r *rand.Rand) {
	w.whileStopped("for a restore", func() bool {
		if len(w.copies) == 0 {
			return false
		}
		w.store.Restore(w.copies[r.IntN(len(w.copies))])
		w.newTimeline()
		w.noteLocked("masterd: its database is put back")
		return true
	})
}

// loseDatabase is the loss of the database without a copy: `masterd init`
// begins anew, and every target is adopted again.
func (w *World) loseDatabase() {
	done := w.whileStopped("with its database", func() bool {
		w.store.Init()
		w.newTimeline()
		w.noteLocked("masterd: its database is lost, and begun anew")
		return true
	})
	for _, m := range w.targets() {
		if done {
			w.after(w.span("adopt", time.Second, time.Minute), func() { w.adoptUntilDone(m) })
		}
	}
}

// whileStopped does something to masterd's files between two processes.
func (w *World) whileStopped(why string, do func() bool) (done bool) {
	w.mu.Lock()
	if w.held {
		w.mu.Unlock()
		return false
	}
	w.held = true
	p := w.master
	w.mu.Unlock()
	if p != nil {
		p.kill(why)
	}
	down := w.span("stopped", time.Second, 3*time.Minute)
	if w.chance("stopped shortly", .5) {
		down = w.span("stopped", time.Second, 10*time.Second)
	}
	if !w.sleep(down) {
		return false
	}
	w.mu.Lock()
	done = !w.healed && do()
	w.held = false
	w.mu.Unlock()
	w.startMaster()
	return done
}

// newTimeline notes what the database has lost, and what it never may start.
func (w *World) newTimeline() {
	w.checked = w.store.Written()
	w.timeline++
	w.carried, w.floors = map[string]receipt.State{}, map[string]uint64{}
	for _, m := range w.minions {
		if t, err := w.store.Target(context.Background(), m.id); err == nil && t != nil {
			w.floors[m.id] = t.Generation
		}
	}
	tickets := map[string]string{}
	for _, x := range w.store.Receipts() {
		w.carried[x.Request], tickets[x.Request] = x.State, x.Ticket
	}
	for request, runs := range w.runs {
		for _, r := range runs {
			r.lost = r.lost || w.carried[request] == "" || tickets[request] != r.ticket
		}
	}
}

// targets gives one machine of each id.
func (w *World) targets() (out []*minion) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.minions {
		if !slices.ContainsFunc(out, func(x *minion) bool { return x.id == m.id }) {
			out = append(out, m)
		}
	}
	return out
}
