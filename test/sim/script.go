package sim

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/start"
)

// instanceNo gives the instance of the n-th server that there ever was.
func instanceNo(n int) string { return fmt.Sprintf("0b5e7a52-6a7e-4a0e-9f0e-2f4d3b1a%04d", n) }

// Run runs one schedule. It must be called in a synctest bubble.
func Run(o Options) Result {
	w := newWorld(o)
	for n := range w.plan.Targets {
		name := fmt.Sprintf("web-%d", n+1)
		w.adopted(w.newMinion(name, name, fmt.Sprintf("machine-%d", n+1), instanceNo(n+1)))
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
	result := Result{Statuses: map[receipt.State]int{}}
	for _, r := range w.store.Receipts() {
		result.Statuses[r.State]++
	}
	w.bringBack()
	close(w.stop)
	if p := w.current(); p != nil {
		p.kill("at the end")
	}
	w.wg.Wait()
	result.Violation, result.Trace = w.violation, w.trace
	result.Effects, result.Starts, result.Opened, result.Known = w.stats.effects, w.stats.starts, w.stats.opened, w.stats.known
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
	id, err := s.Adopt(m.instance)
	if err != nil {
		w.violate("setup: %v", err)
		return
	}
	err = w.store.Adopt(ctx, receipt.Target{
		ID: m.id, Instance: m.instance, Fingerprint: minionFingerprint, Ledger: id.Ledger, Machine: m.machine, AdoptedAt: w.clock.Now(),
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
	if n > 0 && r.Float64() < w.plan.SameSource {
		source = fmt.Sprintf("state%d:\n  test.nop: []\n", r.IntN(n))
	}
	target := 1 + r.IntN(w.plan.Targets)
	q := start.CustomRequest{
		Request: id, Target: fmt.Sprintf("web-%d", target), Instance: instanceNo(target),
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
			case code == problem.NotConfigured: // the database is new, and will know it soon
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
	boot := m.boot
	m.up, m.lease, m.seen = false, nil, map[string]bool{}
	w.noteLocked("%s: reboots", m.name)
	for _, runs := range w.runs {
		for _, r := range runs {
			if r.minion == m && r.state == running {
				r.state = aborted
				w.noteLocked("%s: EFFECT of %s ends with the boot", m.name, requestName(r.request))
			}
			r.forgotten = r.forgotten || r.misplaced && r.minion == m
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
		if m.boot == boot { // else it rebooted again meanwhile
			m.up, m.bootAt = true, time.Now()
			w.noteLocked("%s: is up", m.name)
		}
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
		body.Outcome != j.body.Outcome || !slices.Equal(body.Owed, j.body.Owed) ||
		want.Kind == message.Start && hexOf(sum[:]) != want.Digest {
		w.violate("sealed: %+v, and the model reads %+v", m, want)
	}
}
