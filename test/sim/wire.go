package sim

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/oduflow/oduflow-salt/internal/message"
)

// job is what a minion is sent.
type job struct {
	envelope
	jid  string
	name string
}

// request carries a publish to salt-master, and from there to the minions.
func (w *World) request(e envelope, target, jid, name string) {
	if w.chance("request lost "+name, w.plan.RequestLost) {
		w.note("wire: %s is lost before salt-master", name)
		return
	}
	wait := w.span("request "+name, 2*time.Millisecond, 10*time.Millisecond)
	if w.chance("request late "+name, w.plan.RequestLate) {
		wait = w.span("request "+name, time.Second, 4*time.Minute)
		w.note("wire: %s arrives at salt-master %s later", name, wait)
	}
	w.after(wait, func() {
		w.mu.Lock()
		up := w.masterUp
		w.mu.Unlock()
		if !up {
			return
		}
		for _, m := range w.minionsOf(target) {
			w.deliver(m, job{envelope: e, jid: jid, name: name})
		}
	})
}

// deliver carries a job to a minion: never, late, or more than once.
func (w *World) deliver(m *minion, j job) {
	name := j.name + "@" + m.name
	if w.chance("job lost "+name, w.plan.JobLost) {
		w.note("wire: %s is lost", name)
		return
	}
	wait := w.span("job "+name, time.Millisecond, 20*time.Millisecond)
	if w.chance("job late "+name, w.plan.JobLate) {
		wait = w.span("job "+name, time.Second, 4*time.Minute)
		w.note("wire: %s arrives %s later", name, wait)
	}
	w.after(wait, func() { m.receive(j) })
	if w.chance("job twice "+name, w.plan.JobTwice) {
		again := j
		again.jid = "again-" + j.jid
		more := w.span("twice "+name, time.Millisecond, 400*time.Second)
		if w.chance("twice soon "+name, .5) {
			more = w.span("twice "+name, time.Microsecond, 20*time.Millisecond)
		}
		w.note("wire: %s runs a second time %s later, under another JID", name, more)
		w.after(wait+more, func() { m.receive(again) })
	}
}

// carryBack carries what a minion's job returned to the bus.
func (w *World) carryBack(m *minion, j job, text string) {
	name := j.name + "@" + m.name
	if w.chance("return lost "+name, w.plan.ReturnLost) {
		w.note("wire: the return of %s is lost", name)
		return
	}
	wait := w.span("return "+name, time.Millisecond, 20*time.Millisecond)
	if w.chance("return late "+name, w.plan.ReturnLate) {
		wait = w.span("return "+name, time.Second, 3*time.Minute)
	}
	if w.chance("garbled "+name, w.plan.ReturnGarbled) {
		w.after(wait, func() { w.onBus(j.jid, m.id, garble(text, w.draw("garble"))) })
		return
	}
	w.after(wait, func() { w.onBus(j.jid, m.id, text) })
	if w.chance("return twice "+name, w.plan.ReturnTwice) {
		w.after(wait+w.span("return again", time.Millisecond, time.Minute), func() { w.onBus(j.jid, m.id, text) })
	}
}

func garble(text string, r *rand.Rand) string {
	if text == "" {
		return "{}"
	}
	switch i := r.IntN(len(text)); r.IntN(3) {
	case 0:
		return text[:i]
	case 1:
		return text[:i] + "x" + text[i:]
	default:
		return text[:i] + strings.ToUpper(text[i:])
	}
}

// onBus shows a return on the bus, to whoever can hear it.
func (w *World) onBus(jid, id, text string) {
	w.mu.Lock()
	up, p := w.masterUp && !w.deaf, w.master
	if up && len(w.recorded) < 200 {
		w.recorded = append(w.recorded, recorded{id, text})
	}
	w.mu.Unlock()
	if !up || p == nil || !p.hears.Load() {
		return
	}
	p.deliver(jid, id, text)
}

// mischief puts on the bus what no minion said: any minion can.
func (w *World) mischief(j job, m *minion) {
	if w.chance("forged", w.plan.Forged) {
		a := message.Answer{
			Protocol: message.Protocol, Kind: j.message.Kind, Request: j.message.Request, Target: j.message.Target,
			Nonce: j.message.Nonce, Digest: j.message.Digest, Ledger: m.ledgerID(), Result: message.Finished,
			Counts: &message.Counts{Declared: declared, Passed: declared},
		}
		text, err := message.EncodeAnswer(a, make([]byte, message.ResultKeySize))
		if err == nil {
			w.after(w.span("forged", time.Microsecond, 300*time.Millisecond), func() { w.onBus(j.jid, m.id, text) })
		}
	}
	if w.chance("replayed", w.plan.Replayed) {
		w.after(w.span("replayed", time.Millisecond, time.Minute), func() {
			w.mu.Lock()
			n := len(w.recorded)
			w.mu.Unlock()
			if n == 0 {
				return
			}
			w.mu.Lock()
			old := w.recorded[w.opts.Seed%uint64(n)]
			w.mu.Unlock()
			w.onBus(j.jid, old.minion, old.text)
		})
	}
}

func (w *World) minionsOf(id string) (out []*minion) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.minions {
		if m.id == id {
			out = append(out, m)
		}
	}
	return out
}
